//! A temporary folder, runs of the `reseed` binary in it, and helpers that write inputs and read results.
#![allow(dead_code, clippy::unwrap_used)]

pub mod tiny_job;
pub mod video;

#[cfg(target_os = "linux")]
pub mod fake_gpu;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reseed_media::{Depth, Frame, Info, Kind, Rate, Size};
use reseed_model::weights::safetensors::{Safetensors, header, write_values};
use reseed_model::weights::{Source, formula};
use reseed_ops::Shape;
use serde_json::Value;

/// Exit code and output of a run.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    /// Standard error without progress, which depends on the speed of the machine.
    pub stderr: String,
    /// The lines of progress.
    pub progress: Vec<String>,
}

impl Outcome {
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// Parses standard output, which must hold one JSON object per line and nothing else.
    pub fn events(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let events: Vec<Value> = self.text().lines().map(parse).collect();
        assert!(events.iter().all(Value::is_object), "{events:?}");
        events
    }
}

/// Values `[T, C, H, W]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub dims: Vec<usize>,
    pub values: Vec<f32>,
}

impl Tensor {
    pub fn new(dims: &[usize], value: impl Fn([usize; 4]) -> f32) -> Tensor {
        let &[t, c, h, w] = dims else { panic!("{dims:?}") };
        let index = |i: usize| [i / (c * h * w), i / (h * w) % c, i / w % h, i % w];
        Tensor { dims: dims.into(), values: (0..t * c * h * w).map(|i| value(index(i))).collect() }
    }

    /// Deterministic uniform values in [-1, 1).
    pub fn uniform(dims: &[usize]) -> Tensor {
        let values = formula::uniform("a test", dims.iter().product(), 1);
        Tensor { dims: dims.into(), values: values.iter().map(|v| *v as f32).collect() }
    }

    pub fn at(&self, [t, c, y, x]: [usize; 4]) -> f32 {
        let d = &self.dims;
        self.values[((t * d[1] + c) * d[2] + y) * d[3] + x]
    }
}

/// A temporary folder.
pub struct Lab(temp_dir::TempDir);

impl Lab {
    pub fn new() -> Lab {
        Lab(temp_dir::TempDir::new().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Sorted names of all entries of the folder, hidden ones included.
    pub fn names(&self) -> Vec<String> {
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = fs::read_dir(self.0.path()).unwrap().map(name).collect();
        names.sort();
        names
    }

    /// `reseed` with these arguments and the folder as its working directory.
    pub fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reseed"));
        command.args(args.split_whitespace()).current_dir(self.0.path()).stdin(Stdio::null());
        // Tests compare results of the CPU, also on a machine with a GPU.
        command.env("CUDA_VISIBLE_DEVICES", "");
        // The user's own configuration would change them.
        command.env_remove("RESEED_CONFIG").env("XDG_CONFIG_HOME", self.path(".config"));
        command.env("APPDATA", self.path(".config"));
        #[cfg(unix)]
        heed_hangups(&mut command);
        command
    }

    pub fn run(&self, args: &str) -> Outcome {
        outcome(self.command(args))
    }

    /// Runs and asserts success.
    pub fn succeed(&self, args: &str) -> Outcome {
        let outcome = self.run(args);
        assert_eq!(outcome.code, Some(0), "reseed {args}: {}", outcome.stderr);
        outcome
    }

    /// Runs successfully and reads the tensor from `out`.
    pub fn tensor_of(&self, args: &str) -> Tensor {
        self.succeed(args);
        self.read("out", "output")
    }

    pub fn read(&self, file: &str, name: &str) -> Tensor {
        let file = Safetensors::open(&self.path(file)).unwrap();
        Tensor { dims: file.shapes()[name].dims().into(), values: file.read(name).unwrap() }
    }

    /// Writes a safetensors file with these tensors in this order.
    pub fn write(&self, file: &str, tensors: &[(&str, &Tensor)], metadata: &[(&str, &str)]) {
        let metadata: BTreeMap<String, String> = metadata.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let shapes: Vec<(&str, Shape)> = tensors.iter().map(|(name, t)| (*name, Shape::from(&t.dims[..]))).collect();
        let mut to = File::create(self.path(file)).unwrap();
        to.write_all(&header(&shapes, &metadata)).unwrap();
        tensors.iter().for_each(|(_, tensor)| write_values(&mut to, &tensor.values).unwrap());
    }

    /// Writes a safetensors file with the single tensor `input`.
    pub fn input(&self, file: &str, tensor: &Tensor) {
        self.write(file, &[("input", tensor)], &[]);
    }

    /// Copies a golden file to `in`. Returns its command-line options and the expected result.
    pub fn golden(&self, name: &str) -> (String, Tensor) {
        let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reseed-testing/golden/vae");
        let golden = goldens.join(format!("{name}.safetensors"));
        fs::copy(&golden, self.path("in")).unwrap_or_else(|e| panic!("{}: {e}", golden.display()));
        let file = Safetensors::open(&golden).unwrap();
        let case: Value = serde_json::from_str(file.metadata("case").unwrap()).unwrap();
        let option = |key: &str| match &case[key] {
            Value::Array(sides) => format!(" --{key} {}x{}", sides[0], sides[1]),
            _ => String::new(),
        };
        (format!("--weights formula:tiny{}{}", option("tile"), option("overlap")), self.read("in", "output"))
    }

    /// Writes frames. The extension of `name` selects a y4m video or an image; no extension, a folder of images.
    pub fn write_frames(&self, name: &str, size: Size, frames: usize) -> (Info, Vec<Frame>) {
        let extension = Path::new(name).extension().and_then(|e| e.to_str());
        let kind = match extension {
            Some("y4m") => Kind::Y4m(reseed_media::y4m::Format::for_depth(Depth::Eight)),
            Some(_) => Kind::Image,
            None => Kind::Folder,
        };
        // Names that need numeric sorting, in two image formats.
        let names = match extension {
            None => (0..frames).map(|i| format!("{}.{}", 9 + i, ["png", "tiff"][i % 2]).into()).collect(),
            Some(_) => Vec::new(),
        };
        let rate = Rate { num: 24000, den: 1001 };
        let (depth, tags) = (Depth::Eight, reseed_media::ImageTags::default());
        let info = Info { size, frames: Some(frames), rate, depth, alpha: false, kind, names, tags };
        let mut sink = reseed_media::create(&self.path(name), &info).unwrap();
        let frames: Vec<Frame> = (0..frames).map(|i| smooth_frame(size, i)).collect();
        frames.iter().for_each(|frame| sink.write(frame).unwrap());
        sink.finish().unwrap();
        (info, frames)
    }
}

/// A smooth frame that changes with `i`.
pub fn smooth_frame(size: Size, i: usize) -> Frame {
    let value = |k: usize| {
        let (x, y) = ((k / 3 % size.w) as f32 / size.w as f32, (k / 3 / size.w) as f32 / size.h as f32);
        0.5 + 0.5 * [x - y, y * y - x, x * y][k % 3] * (1.0 - i as f32 / 20.0)
    };
    let unit: Vec<f32> = (0..3 * size.pixels()).map(value).collect();
    Frame::from_unit(size, &unit, Depth::Eight)
}

/// Reads the frames of a file or folder.
pub fn frames(path: &Path) -> (Info, Vec<Frame>) {
    let mut source = reseed_media::open(path).unwrap();
    let frames = std::iter::from_fn(|| source.next().unwrap()).collect();
    (source.info().clone(), frames)
}

pub fn outcome(mut command: Command) -> Outcome {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let is_progress = |line: &&str| line.contains("% ") && line.contains(" frame ");
    let progress = text.lines().filter(is_progress).map(str::to_owned).collect();
    let stderr = text.split_inclusive('\n').filter(|line| !is_progress(line)).collect();
    Outcome { code: output.status.code(), stdout: output.stdout, stderr, progress }
}

/// Text of this system with the separators of paths that all others have.
pub fn slashes(text: &str) -> String {
    if cfg!(windows) { text.replace('\\', "/") } else { text.to_owned() }
}

/// A run under `nohup` ignores SIGHUP. A test under `nohup` sends it.
#[cfg(unix)]
fn heed_hangups(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only `signal` is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        })
    };
}
