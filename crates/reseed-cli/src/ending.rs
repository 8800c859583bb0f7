//! Ctrl-C: a run ends cleanly if it can do so soon, and at once if it cannot.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{park, sleep, spawn};
use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::job::journal;

/// How long a run may take to end by itself. A device does not stop in the middle of a large product, nor a disk in the
/// middle of a model.
const GRACE: Duration = Duration::from_millis(700);

static CANCELLED: AtomicBool = AtomicBool::new(false);
static ENDING: AtomicBool = AtomicBool::new(false);
static KEPT: AtomicUsize = AtomicUsize::new(0);
static LEFTOVERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From here on Ctrl-C ends the run soon; a second one ends it at once.
pub fn catch_ctrl_c() {
    // A handler that cannot be set leaves the system's own, which ends the run at once.
    let _ = ctrlc::set_handler(|| match CANCELLED.swap(true, Ordering::SeqCst) {
        true => end(),
        false => drop(spawn(|| {
            sleep(GRACE);
            end();
        })),
    });
}

/// An error once Ctrl-C has been pressed.
pub fn check_cancelled() -> Result<()> {
    if CANCELLED.load(Ordering::SeqCst) { Err(cancelled()) } else { Ok(()) }
}

/// What is told of a run that was cancelled.
pub fn cancelled() -> Failure {
    Failure::Cancelled { kept: KEPT.load(Ordering::SeqCst) }
}

/// So many frames stay for a later run.
pub fn kept(frames: usize) {
    KEPT.store(frames, Ordering::SeqCst);
}

/// How many frames stay for a later run.
pub fn frames_kept() -> usize {
    KEPT.load(Ordering::SeqCst)
}

/// What has to go when the run ends before its time.
pub fn remove(path: &Path) {
    leftovers().push(path.into());
}

/// What may stay after all, or has gone already.
pub fn spare(path: &Path) {
    leftovers().retain(|other| other != path);
}

fn leftovers() -> MutexGuard<'static, Vec<PathBuf>> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process in the middle of whatever it does. What is on disk is as a run that was killed would leave it, less
/// what no later run can use.
fn end() {
    claim();
    reseed_media::discard_unfinished();
    for path in leftovers().drain(..) {
        match path.is_dir() {
            true => journal::discard(&path),
            false => drop(std::fs::remove_file(&path)),
        }
    }
    let failure = cancelled();
    let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    eprintln!("{clear}reseed: {failure}");
    exit(i32::from(failure.code()));
}

/// Makes the caller the one who ends the process; everybody else waits here for that.
pub fn claim() {
    while ENDING.swap(true, Ordering::SeqCst) {
        park();
    }
}
