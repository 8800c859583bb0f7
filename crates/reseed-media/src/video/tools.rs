//! ffmpeg and ffprobe as child processes: where they are, how they are started, what they said before they died.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};

/// Names the program, or the folder that holds it and ffprobe.
const VARIABLE: &str = "RESEED_FFMPEG";

/// Where the two programs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tools {
    pub ffmpeg: PathBuf,
    pub ffprobe: PathBuf,
    /// Whether its option for frames to keep their times still has the old name.
    old: bool,
    /// Names of its encoders.
    encoders: Vec<String>,
}

/// Asked once: what a program can does not change while we run.
static FOUND: OnceLock<Tools> = OnceLock::new();

impl Tools {
    /// Looks where `RESEED_FFMPEG` says, or else beside this program and then in the folders of `PATH`.
    pub fn find() -> Result<Tools> {
        match FOUND.get() {
            Some(tools) => Ok(tools.clone()),
            None => Tools::ask().map(|tools| FOUND.get_or_init(|| tools).clone()),
        }
    }

    fn ask() -> Result<Tools> {
        let folders = match env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            Some(named) => vec![folder_of(PathBuf::from(named))],
            None => {
                let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
                let path = env::var_os("PATH").unwrap_or_default();
                beside.into_iter().chain(env::split_paths(&path)).collect()
            }
        };
        let find = |name: &'static str| {
            let file = format!("{name}{}", env::consts::EXE_SUFFIX);
            let found = folders.iter().map(|folder| folder.join(&file)).find(|path| path.is_file());
            found.ok_or(Error::NoFfmpeg { program: name })
        };
        let (ffmpeg, ffprobe) = (find("ffmpeg")?, find("ffprobe")?);
        let mut list = command(&ffmpeg);
        list.arg("-encoders");
        let failed = |reason| Error::BadFfmpeg { program: ffmpeg.clone(), reason };
        let (to, version) = channel();
        // It says its version before anything else.
        let listen = move |line: &str| line.starts_with(VERSION) && to.send(line.to_owned()).is_ok();
        let text = output_with(list, listen)?.map_err(failed)?;
        let names = String::from_utf8_lossy(&text);
        let encoders = names.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect();
        let old = version.try_recv().is_ok_and(|version| is_old(&version));
        Ok(Tools { ffmpeg, ffprobe, old, encoders })
    }

    /// The option with which every frame is written once, whatever its time.
    pub fn passthrough(&self) -> [&'static str; 2] {
        [if self.old { "-vsync" } else { "-fps_mode" }, "passthrough"]
    }

    /// The first of these encoders that ffmpeg has.
    pub fn encoder(&self, names: &[String]) -> Option<String> {
        names.iter().find(|name| self.encoders.contains(name)).cloned()
    }
}

/// The folder that a path to the program, or to its folder, stands for.
fn folder_of(named: PathBuf) -> PathBuf {
    match named.parent() {
        Some(parent) if named.is_file() => parent.to_owned(),
        _ => named,
    }
}

/// What it says first of all, before its version.
const VERSION: &str = "ffmpeg version ";

/// Whether `ffmpeg version 5.0.1-...` is before 5.1. Builds without a number are of the newest sources.
fn is_old(text: &str) -> bool {
    let version = text.strip_prefix(VERSION).unwrap_or_default().trim_start_matches('n');
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < (5, 1),
        (Some(Ok(major)), _) => major < 5,
        _ => false,
    }
}

/// How to get the programs on this system.
pub(crate) fn install_command() -> &'static str {
    match env::consts::OS {
        "macos" => "brew install ffmpeg",
        "windows" => "winget install Gyan.FFmpeg",
        _ => "sudo apt-get install ffmpeg",
    }
}

/// A path as ffmpeg takes it literally, whatever characters it has and whatever it begins with.
pub(crate) fn file_url(path: &Path) -> OsString {
    let mut url = OsString::from("file:");
    url.push(path);
    url
}

/// A command without a console: it reads no keys, and Ctrl-C in a terminal is for its parent alone to hear.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    #[cfg(windows)]
    {
        /// `CREATE_NEW_PROCESS_GROUP` and `CREATE_NO_WINDOW`.
        const FLAGS: u32 = 0x200 | 0x0800_0000;
        std::os::windows::process::CommandExt::creation_flags(&mut command, FLAGS);
    }
    command
}

/// Lets a pipe hold more of a frame of `pixels` pixels than the few pages it has, so that neither end waits for the other at
/// every turn; but not many frames, so that an end that is gone is soon missed. Whoever is not allowed to has a pipe all the
/// same.
#[cfg(target_os = "linux")]
pub(crate) fn widen(pipe: &impl std::os::fd::AsRawFd, pixels: usize) {
    /// What a pipe holds anyway, and what everyone is allowed to.
    const BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=1 << 20;
    let bytes = pixels.clamp(*BYTES.start(), *BYTES.end());
    // SAFETY: it takes a number, and the pipe is open.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, bytes as libc::c_int) };
}

/// Pipes are as wide as the system makes them.
#[cfg(not(target_os = "linux"))]
pub(crate) fn widen<T>(_pipe: &T, _pixels: usize) {}

/// Words as arguments.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &OsStr> {
    text.split_whitespace().map(OsStr::new)
}

/// A running child whose messages are read as they come, so that it never waits for us to. Killed when dropped.
pub(crate) struct Process {
    pub child: Child,
    log: Option<JoinHandle<Option<String>>>,
}

/// How a child ended, and its last word.
pub(crate) struct End {
    status: ExitStatus,
    last: Option<String>,
}

impl Process {
    /// Starts a command. `listen` takes the lines that are meant for us; the last other line is kept.
    pub fn start(mut command: Command, listen: impl FnMut(&str) -> bool + Send + 'static) -> Result<Process> {
        let mut child =
            command.spawn().map_err(|cause| Error::Start { program: command.get_program().into(), cause })?;
        let log = child.stderr.take().map(|stderr| thread::spawn(move || last_word(stderr, listen)));
        Ok(Process { child, log })
    }

    /// Waits for the end.
    pub fn wait(mut self) -> std::io::Result<End> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        Ok(End { status, last: self.last() })
    }

    /// Waits for the end of one that has stopped listening, and gives its last word, or how it ended.
    pub fn reason(&mut self) -> Option<String> {
        let status = self.child.wait().ok()?;
        Some(self.last().unwrap_or_else(|| ended(status)))
    }

    fn last(&mut self) -> Option<String> {
        self.log.take().and_then(|log| log.join().ok()).flatten()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and that is well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.last();
    }
}

impl End {
    /// Nothing, or the reason for a failure in the child's own words.
    pub fn check(self) -> std::result::Result<(), String> {
        match self.status.success() {
            true => Ok(()),
            false => Err(self.last.unwrap_or_else(|| ended(self.status))),
        }
    }
}

fn ended(status: ExitStatus) -> String {
    format!("it ended with {status}")
}

/// Lines that say nothing of the cause, which stands before them.
const EMPTY_WORDS: [&str; 3] = ["Conversion failed!", "Error while processing the decoded data", "Nothing was written"];

fn last_word(stderr: ChildStderr, mut listen: impl FnMut(&str) -> bool) -> Option<String> {
    let mut last = None;
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if !listen(text) && !text.is_empty() && !EMPTY_WORDS.iter().any(|words| text.starts_with(words)) {
            last = Some(plain(text).to_owned());
        }
        line.clear();
    }
    last
}

/// A message without the address of its speaker: `[mov,mp4 @ 0x55d0] moov atom not found`.
fn plain(line: &str) -> &str {
    match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((speaker, message)) if speaker.contains(" @ ") => message,
        _ => line,
    }
}

/// Runs a command to its end and gives what it printed.
pub(crate) fn output(command: Command) -> Result<std::result::Result<Vec<u8>, String>> {
    output_with(command, |_| false)
}

/// The same, with a listener for lines that are meant for us.
fn output_with(
    mut command: Command,
    listen: impl FnMut(&str) -> bool + Send + 'static,
) -> Result<std::result::Result<Vec<u8>, String>> {
    command.stdout(Stdio::piped());
    let program = PathBuf::from(command.get_program());
    let failed = |cause| Error::Start { program: program.clone(), cause };
    let mut process = Process::start(command, listen)?;
    let mut printed = Vec::new();
    if let Some(mut stdout) = process.child.stdout.take() {
        std::io::Read::read_to_end(&mut stdout, &mut printed).map_err(failed)?;
    }
    Ok(process.wait().map_err(failed)?.check().map(|()| printed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_speakers_go() {
        assert_eq!(plain("[mov,mp4,m4a @ 0x5581] moov atom not found"), "moov atom not found");
        assert_eq!(plain("[1] is odd"), "[1] is odd");
        assert_eq!(plain("file:a.mp4: Invalid data"), "file:a.mp4: Invalid data");
    }

    #[test]
    fn versions_are_told_apart() {
        let old = |version: &str| is_old(&format!("ffmpeg version {version} Copyright (c) 2000-2026"));
        assert!(old("4.4.2-0ubuntu0.22.04.1") && old("n5.0.1") && old("5.0"));
        assert!(!old("5.1.9-0+deb12u1") && !old("7.1") && !old("N-118000-gabcdef") && !old("8"));
    }

    #[test]
    fn no_name_is_taken_for_an_option_or_another_protocol() {
        assert_eq!(file_url(Path::new("-i")), "file:-i");
        assert_eq!(file_url(Path::new("http://x y\n'")), "file:http://x y\n'");
    }
}
