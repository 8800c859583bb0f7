//! A whole job of a second at most, and what must hold after it was disturbed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use reseed_media::Size;
use reseed_testing::faults::Shim;

use super::{Lab, Outcome, outcome};

/// What a job reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Y4m,
    Folder,
    Video,
}

/// A job in its own folder. The input is beside the folder `work`, which holds the output and nothing else.
pub struct TinyJob {
    lab: Lab,
    args: String,
    output: &'static str,
    input: PathBuf,
    input_content: Content,
    expected: Content,
    /// Seconds of the undisturbed run.
    pub seconds: f64,
}

/// Names and bytes of a file, or of all files in a folder.
pub type Content = Vec<(String, Vec<u8>)>;

impl TinyJob {
    /// Runs the job once, undisturbed.
    pub fn new(form: Form) -> TinyJob {
        let lab = Lab::new();
        let size = Size { h: 16, w: 16 };
        let (input, output, options) = match form {
            Form::Y4m => ("in.y4m", "out.y4m", "--model formula:tiny --overlap 1"),
            Form::Folder => ("in", "out", "--model formula:tiny --batch-size 4"),
            // Two segments.
            Form::Video => ("in.mkv", "out.mkv", "--model identity --batch-size 40 --codec ffv1"),
        };
        match form {
            Form::Video => {
                lab.write_frames("clip.y4m", size, 130);
                super::video::make(&lab.path(""), "-i clip.y4m -c:v ffv1", input);
                fs::remove_file(lab.path("clip.y4m")).unwrap();
            }
            _ => drop(lab.write_frames(input, size, 11)),
        }
        let args = format!("upscale {input} work/{output} --scale 1 --threads 1 --quiet {options}");
        let (input, seconds) = (lab.path(input), 0.0);
        let input_content = content(&input);
        let mut job = TinyJob { lab, args, output, input, input_content, expected: Vec::new(), seconds };
        job.clear();
        let start = std::time::Instant::now();
        let outcome = job.run(job.command(""));
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        job.seconds = start.elapsed().as_secs_f64();
        job.expected = content(&job.output());
        job
    }

    /// The folder of the output.
    pub fn work(&self) -> PathBuf {
        self.lab.path("work")
    }

    fn output(&self) -> PathBuf {
        self.work().join(self.output)
    }

    /// The library that injects faults, built beside the job; prints why there is none.
    #[allow(clippy::print_stderr, reason = "a test that is skipped prints why")]
    pub fn shim(&self) -> Option<Shim> {
        match Shim::build(&self.lab.path("")) {
            Ok(shim) => Some(shim),
            Err(reason) => {
                eprintln!("{reason}");
                None
            }
        }
    }

    /// A file beside the job.
    pub fn file(&self, name: &str) -> PathBuf {
        self.lab.path(name)
    }

    /// The command of the job with more options.
    pub fn command(&self, options: &str) -> Command {
        self.lab.command(&format!("{} {options}", self.args))
    }

    pub fn run(&self, command: Command) -> Outcome {
        outcome(command)
    }

    /// An empty folder for the output.
    pub fn clear(&self) {
        let _ = reseed_media::files::remove_dir_all(&self.work());
        fs::create_dir(self.work()).unwrap();
    }

    /// Asserts what must hold at any time: the input is untouched, and an output under its own name is complete.
    pub fn assert_intact(&self, when: &str) {
        assert!(content(&self.input) == self.input_content, "{when}: the input changed");
        if self.output().exists() {
            assert!(content(&self.output()) == self.expected, "{when}: a finished output has other content");
        }
    }

    /// Resumes and asserts the bytes of the undisturbed run, and that nothing else is left. A complete output needs no
    /// second run.
    pub fn assert_resumes(&self, when: &str) {
        if self.output().exists() {
            return self.assert_intact(when);
        }
        let outcome = self.run(self.command("--resume"));
        assert_eq!(outcome.code, Some(0), "{when}: --resume fails: {}{:?}", outcome.stderr, self.names());
        assert!(content(&self.output()) == self.expected, "{when}: --resume gives other bytes");
        assert_eq!(self.names(), [self.output], "{when}: --resume leaves files");
    }

    /// Whether the output exists under its own name, with nothing beside it.
    pub fn is_complete(&self) -> bool {
        self.names() == [self.output]
    }

    /// Entries of the folder of the output, hidden ones included.
    pub fn names(&self) -> Vec<String> {
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = fs::read_dir(self.work()).unwrap().map(name).collect();
        names.sort();
        names
    }
}

/// Names and bytes of a file, or of all files in a folder.
fn content(path: &Path) -> Content {
    if path.is_file() {
        return vec![(String::new(), fs::read(path).unwrap())];
    }
    let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Content =
        files.map(|path| (path.file_name().unwrap().to_str().unwrap().into(), fs::read(&path).unwrap())).collect();
    files.sort();
    files
}
