//! Ctrl-C, SIGTERM and SIGHUP, and on Windows Ctrl-Break and the end of the console: a run stops cleanly if it can do
//! so soon, and is ended if it cannot.

use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{park, sleep, spawn};
use std::time::Duration;

use reseed::{Error, Job};

use crate::console;
use crate::failure::Failure;

/// How long a run may take to stop by itself. A device does not stop within a large product, nor a disk while it reads
/// a model.
const GRACE: Duration = Duration::from_millis(700);

static CANCELLED: AtomicBool = AtomicBool::new(false);
static ENDING: AtomicBool = AtomicBool::new(false);
static KEPT: AtomicUsize = AtomicUsize::new(0);
static LEFT: Mutex<&'static str> = Mutex::new("nothing was written");
static UNFINISHED: Mutex<Vec<Unfinished>> = Mutex::new(Vec::new());

/// What has to be removed when the process ends early.
#[derive(PartialEq, Eq)]
enum Unfinished {
    /// A file.
    File(PathBuf),
    /// The journal at an output, unless frames of it are finished.
    Journal(PathBuf),
}

/// From here on Ctrl-C, SIGTERM and SIGHUP stop the run soon; a second one ends it at once.
pub fn catch_signals() {
    let hangups_are_ignored = hangups_are_ignored();
    // Without a handler the system ends the run at once.
    let _ = ctrlc::set_handler(|| match CANCELLED.swap(true, Ordering::SeqCst) {
        true => end(),
        false => drop(spawn(|| {
            sleep(GRACE);
            end();
        })),
    });
    if hangups_are_ignored {
        ignore_hangups();
    }
    #[cfg(windows)]
    crate::windows::on_close(|| {
        CANCELLED.store(true, Ordering::SeqCst);
        sleep(GRACE);
        end()
    });
}

/// Whether SIGHUP is ignored, as under `nohup`: such a run survives its terminal.
#[cfg(unix)]
fn hangups_are_ignored() -> bool {
    // SAFETY: a zeroed action is a valid place for the system to write to, and a null action changes nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(unix)]
fn ignore_hangups() {
    // SAFETY: ignoring a signal runs no code of this program.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

#[cfg(not(unix))]
fn hangups_are_ignored() -> bool {
    false
}

#[cfg(not(unix))]
fn ignore_hangups() {}

/// Whether the run was asked to stop.
pub fn is_cancelled() -> bool {
    CANCELLED.load(Ordering::SeqCst)
}

/// So many frames are safe for a later run.
pub fn set_kept(frames: usize) {
    KEPT.store(frames, Ordering::SeqCst);
}

/// Frames that are safe for a later run.
pub fn kept() -> usize {
    KEPT.load(Ordering::SeqCst)
}

/// Sets what a cancelled command leaves, in words, where it keeps no frames.
pub fn set_left(what: &'static str) {
    *LEFT.lock().unwrap_or_else(PoisonError::into_inner) = what;
}

/// What a cancelled command leaves.
pub fn left() -> &'static str {
    *LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is removed when the run ends early, for as long as the guard lives.
pub fn guard_file(path: &Path) -> Guard {
    Guard::new(Unfinished::File(path.into()))
}

/// The same of an output's journal.
pub fn guard_journal(output: &Path) -> Guard {
    Guard::new(Unfinished::Journal(output.into()))
}

/// Unregisters what it guards.
pub struct Guard(usize);

impl Guard {
    fn new(unfinished: Unfinished) -> Guard {
        let mut all = unfinished_work();
        all.push(unfinished);
        Guard(all.len())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Guards are dropped in the reverse order of their creation.
        unfinished_work().truncate(self.0 - 1);
    }
}

fn unfinished_work() -> MutexGuard<'static, Vec<Unfinished>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process. Finished work stays on disk; files that no later run can use are removed.
fn end() -> ! {
    claim();
    reseed::media::discard_unfinished();
    for unfinished in unfinished_work().drain(..) {
        match unfinished {
            Unfinished::File(path) => drop(std::fs::remove_file(path)),
            Unfinished::Journal(output) => Job::discard_unused(&output),
        }
    }
    let cancelled = match kept() {
        0 => Error::Cancelled,
        frames => Error::Kept { frames, error: Box::new(Error::Cancelled) },
    };
    let failure = Failure::from(cancelled);
    let code = i32::from(failure.code());
    // A reader who reads no more must not keep the process alive.
    spawn(move || {
        sleep(GRACE);
        exit(code);
    });
    console::error(&failure);
    exit(code);
}

/// Makes the caller the one who ends the process; every other thread waits here.
pub fn claim() {
    while ENDING.swap(true, Ordering::SeqCst) {
        park();
    }
}
