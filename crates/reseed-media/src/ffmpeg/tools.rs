//! ffmpeg and ffprobe: finding them and running them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::channel;

pub(super) use super::process::Process;
use crate::error::{Error, Result};

/// The environment variable with the path of ffmpeg, or of the folder that holds ffmpeg and ffprobe.
const VARIABLE: &str = "RESEED_FFMPEG";

/// The paths of the two programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tools {
    pub ffmpeg: PathBuf,
    pub ffprobe: PathBuf,
}

/// What this build of ffmpeg can do. Asking takes as long as starting ffmpeg, so that it is asked only if needed.
struct Build {
    is_old: bool,
    /// The names of the encoders.
    encoders: Vec<String>,
}

/// The result of the first successful search.
static FOUND: OnceLock<Tools> = OnceLock::new();
static BUILD: OnceLock<Build> = OnceLock::new();
/// Whether ffmpeg is older than 5.1, where `-fps_mode` is called `-vsync`.
static IS_OLD: OnceLock<bool> = OnceLock::new();

impl Tools {
    /// Searches `RESEED_FFMPEG`, or else the folder of this program and then the folders of `PATH`.
    pub fn find() -> Result<Tools> {
        match FOUND.get() {
            Some(tools) => Ok(tools.clone()),
            None => Tools::search().map(|tools| FOUND.get_or_init(|| tools).clone()),
        }
    }

    fn search() -> Result<Tools> {
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
        Ok(Tools { ffmpeg: find("ffmpeg")?, ffprobe: find("ffprobe")? })
    }

    fn build(&self) -> Result<&'static Build> {
        match BUILD.get() {
            Some(build) => Ok(build),
            None => self.ask_build().map(|build| BUILD.get_or_init(|| build)),
        }
    }

    fn ask_build(&self) -> Result<Build> {
        let mut list = command(&self.ffmpeg);
        list.arg("-encoders");
        let failed = |reason| Error::FfmpegFailed { program: self.ffmpeg.clone(), reason };
        let (sender, version) = channel();
        // ffmpeg prints its version first.
        let on_line = move |line: &str| match line.strip_prefix("ffmpeg version ") {
            Some(version) => sender.send(version.to_owned()).is_ok(),
            None => false,
        };
        let text = output_with(list, on_line)?.map_err(failed)?;
        let names = String::from_utf8_lossy(&text);
        let encoders = names.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect();
        Ok(Build { is_old: version.try_recv().is_ok_and(|version| is_old(&version)), encoders })
    }

    /// Takes over a version that ffprobe has reported, which is also that of the ffmpeg beside it.
    pub fn set_version(&self, version: &str) {
        IS_OLD.get_or_init(|| is_old(version));
    }

    /// The option that writes every frame once, whatever its time.
    pub fn passthrough(&self) -> Result<[&'static str; 2]> {
        let is_old = match IS_OLD.get() {
            Some(is_old) => *is_old,
            None => self.build()?.is_old,
        };
        Ok([if is_old { "-vsync" } else { "-fps_mode" }, "passthrough"])
    }

    /// Whether ffmpeg has the encoder `name`.
    pub fn has_encoder(&self, name: &str) -> Result<bool> {
        Ok(self.build()?.encoders.iter().any(|encoder| encoder == name))
    }

    /// Fails unless ffmpeg starts and answers.
    pub fn check(&self) -> Result<()> {
        self.build().map(drop)
    }
}

/// The folder of a path to the program or to its folder.
fn folder_of(named: PathBuf) -> PathBuf {
    match named.parent() {
        Some(parent) if named.is_file() => parent.to_owned(),
        _ => named,
    }
}

/// Whether a version such as `5.0.1-0ubuntu1` is older than 5.1. Builds without a number are recent.
fn is_old(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('n').split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < (5, 1),
        (Some(Ok(major)), _) => major < 5,
        _ => false,
    }
}

/// A path as a `file:` URL, so that ffmpeg takes it for neither an option nor another protocol.
pub(super) fn file_url(path: &Path) -> OsString {
    let mut url = OsString::from("file:");
    url.push(path);
    url
}

/// A command without a console, in a process group of its own, so that Ctrl-C reaches only the parent.
pub(super) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    #[cfg(windows)]
    {
        use windows_sys::Win32::System::Threading::{CREATE_NEW_PROCESS_GROUP, DETACHED_PROCESS};
        let flags = CREATE_NEW_PROCESS_GROUP | DETACHED_PROCESS;
        std::os::windows::process::CommandExt::creation_flags(&mut command, flags);
    }
    command
}

/// Enlarges a pipe to about `bytes` bytes, between the default and the limit for unprivileged processes, so that the
/// two ends wait for each other less often. A failure leaves the default size.
#[cfg(target_os = "linux")]
pub(super) fn set_pipe_size(pipe: &impl std::os::fd::AsRawFd, bytes: usize) {
    const LIMITS: std::ops::RangeInclusive<usize> = 64 << 10..=1 << 20;
    let bytes = bytes.clamp(*LIMITS.start(), *LIMITS.end());
    // SAFETY: the call takes integers only, and the descriptor is open.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, bytes as libc::c_int) };
}

/// Other systems have no call for it.
#[cfg(not(target_os = "linux"))]
pub(super) fn set_pipe_size<T>(_pipe: &T, _bytes: usize) {}

/// Splits text into arguments.
pub(super) fn words(text: &str) -> impl Iterator<Item = &OsStr> {
    text.split_whitespace().map(OsStr::new)
}

/// The most bytes of standard output that are kept of a process.
const MAX_OUTPUT: u64 = 256 << 20;

/// Runs a command that reads a file, and returns its standard output, or the reason of its failure.
pub(super) fn output(command: Command) -> Result<std::result::Result<Vec<u8>, String>> {
    output_with(command, |_| false)
}

/// The same, with a callback for lines of standard error.
fn output_with(
    mut command: Command,
    on_line: impl FnMut(&str) -> bool + Send + 'static,
) -> Result<std::result::Result<Vec<u8>, String>> {
    command.stdout(Stdio::piped());
    let program = PathBuf::from(command.get_program());
    let failed = |cause| Error::Spawn { program: program.clone(), cause };
    let mut process = Process::start(command, on_line)?;
    let mut printed = Vec::new();
    if let Some(stdout) = process.child.stdout.take() {
        let _waiting = process.waiting();
        stdout.take(MAX_OUTPUT).read_to_end(&mut printed).map_err(failed)?;
    }
    if printed.len() as u64 == MAX_OUTPUT {
        return Ok(Err(format!("it printed more than {} MiB", MAX_OUTPUT >> 20)));
    }
    Ok(process.wait().map_err(failed)?.check_read().map(|()| printed))
}

/// Runs a command that writes a file, and returns the reason of its failure.
pub(super) fn run(command: Command) -> Result<std::result::Result<(), String>> {
    let program = PathBuf::from(command.get_program());
    let exit = Process::start(command, |_| false)?.wait().map_err(|cause| Error::Spawn { program, cause })?;
    Ok(exit.check())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_5_1_are_old() {
        let old = |version: &str| is_old(&format!("{version} Copyright (c) 2000-2026"));
        assert!(old("4.4.2-0ubuntu0.22.04.1") && old("n5.0.1") && old("5.0"));
        assert!(!old("5.1.9-0+deb12u1") && !old("7.1") && !old("N-118000-gabcdef") && !old("8"));
    }

    #[test]
    fn file_names_become_file_urls() {
        assert_eq!(file_url(Path::new("-i")), "file:-i");
        assert_eq!(file_url(Path::new("http://x y\n'")), "file:http://x y\n'");
    }
}
