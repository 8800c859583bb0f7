//! Jobs on small files that are interrupted and resumed.
#![allow(clippy::unwrap_used, dead_code, reason = "every test uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use reseed::{Batching, Event, Existing, Job, JobSpec, Observer, Report, Result, Session, Settings, Target};
use reseed_media::{Depth, Frame, Size};

pub const SIZE: Size = Size { h: 16, w: 16 };

/// A session with a tiny model.
pub fn session() -> Session {
    Session::builder().model("formula:tiny").device("cpu").threads(1).open().unwrap()
}

/// A frame with moving lines.
fn frame(i: usize) -> Frame {
    let value = |k: usize| {
        let (x, y) = ((k / 3 % SIZE.w + i) as f32, (k / 3 / SIZE.w) as f32);
        0.5 + 0.3 * (0.4 * x + 0.7 * y + (k % 3) as f32).sin()
    };
    let unit: Vec<f32> = (0..3 * SIZE.pixels()).map(value).collect();
    Frame::from_unit(SIZE, &unit, Depth::Eight)
}

/// Writes a y4m video of `frames` frames.
pub fn write_y4m(path: &Path, frames: usize) {
    let info = reseed_media::Info { size: SIZE, ..reseed_media::sample().info().clone() };
    let mut sink = reseed_media::create(path, &info).unwrap();
    (0..frames).for_each(|i| sink.write(&frame(i)).unwrap());
    sink.finish().unwrap();
}

/// An input, and where its output goes.
pub struct Setup {
    folder: temp_dir::TempDir,
    pub output: PathBuf,
    /// Frames of a batch.
    pub batch: usize,
}

impl Setup {
    /// A y4m video of `frames` frames, or a folder or a Matroska video with the same ones.
    pub fn new(frames: usize, output: &str) -> Setup {
        let folder = temp_dir::TempDir::new().unwrap();
        let y4m = folder.path().join("in.y4m");
        write_y4m(&y4m, frames);
        if output.ends_with("mkv") {
            let mut ffmpeg = Command::new("ffmpeg");
            ffmpeg.args(["-v", "error", "-i"]).arg(&y4m).args(["-c:v", "ffv1"]).arg(folder.path().join("in.mkv"));
            assert!(ffmpeg.status().expect("these tests need ffmpeg").success());
        } else if !output.contains('.') {
            let images = folder.path().join("in");
            let mut source = reseed_media::open(&y4m).unwrap();
            let info = reseed_media::Info { kind: reseed_media::Kind::Folder, ..source.info().clone() };
            let mut sink = reseed_media::create(&images, &info).unwrap();
            while let Some(frame) = source.next().unwrap() {
                sink.write(&frame).unwrap();
            }
            sink.finish().unwrap();
        }
        fs::create_dir(folder.path().join("out")).unwrap();
        let output = folder.path().join("out").join(output);
        Setup { folder, output, batch: 5 }
    }

    pub fn input(&self) -> PathBuf {
        let extension = self.output.extension().map_or(String::new(), |e| format!(".{}", e.to_str().unwrap()));
        self.folder.path().join(format!("in{extension}"))
    }

    /// Batches share two frames.
    pub fn spec(&self, existing: Existing) -> JobSpec {
        let batching = Batching { size: self.batch, overlap: 2, uniform: false };
        let settings = Settings { target: Target::Scale(1.0), batching, ..Settings::default() };
        JobSpec { existing, ..JobSpec::new(self.input(), &self.output, settings) }
    }

    pub fn run(&self, session: &Session, existing: Existing, observer: &mut dyn Observer) -> Result<Report> {
        Job::open(self.spec(existing))?.run(session, observer)
    }

    /// The folder of the output.
    pub fn place(&self) -> &Path {
        self.output.parent().unwrap()
    }

    /// Removes everything beside the input, and puts these files there.
    pub fn restore(&self, files: &[(PathBuf, Vec<u8>)]) {
        fs::remove_dir_all(self.place()).unwrap();
        fs::create_dir(self.place()).unwrap();
        for (path, bytes) in files {
            let path = self.place().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }

    /// Paths and bytes of all files beside the input.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut open = vec![self.place().to_owned()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    let bytes = fs::read(&path).unwrap();
                    found.push((path.strip_prefix(self.place()).unwrap().to_owned(), bytes));
                }
            }
        }
        found.sort();
        found
    }
}

/// Cancels a job, or panics, when so many batches are saved.
pub struct StopAfter {
    pub batches: usize,
    pub panics: bool,
}

impl Observer for StopAfter {
    fn event(&mut self, event: &Event) {
        if matches!(event, Event::Saved { .. }) {
            self.batches -= 1;
            assert!(self.batches > 0 || !self.panics, "the observer panics");
        }
    }

    fn cancelled(&mut self) -> bool {
        self.batches == 0
    }
}
