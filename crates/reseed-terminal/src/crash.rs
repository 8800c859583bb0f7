//! Panics: a bug of this program ends a command with one line, and the finished work of its job stays.

use std::any::Any;
use std::backtrace::Backtrace;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Mutex, PoisonError};

use crate::failure::{Failure, Result};
use crate::shutdown;

/// Message and place of the panics so far. Libraries catch some of them, so that only the message of the one that
/// arrives at the top tells which it is.
static PANICS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());
/// Panics that are remembered.
const REMEMBERED: usize = 16;

/// From here on panics of all threads are recorded and print nothing. Diagnostics show them at once.
pub fn record_panics() {
    panic::set_hook(Box::new(record));
}

fn record(info: &PanicHookInfo) {
    let message = message(info.payload());
    let place = info.location().map_or(String::new(), |at| format!("{}:{}", short(at.file()), at.line()));
    tracing::error!("panic: {message} ({place})\n{}", Backtrace::capture());
    let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    if panics.len() == REMEMBERED {
        panics.remove(0);
    }
    panics.push((message, place));
}

/// The path of a source file without the place of the registry that its crate comes from.
fn short(file: &str) -> &str {
    file.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/')).map_or(file, |(_, rest)| rest)
}

/// Runs a command. A panic in it, or in a thread that it waits for, is a failure.
pub fn caught(command: impl FnOnce() -> Result<()>) -> Result<()> {
    panic::catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|payload| Err(failure(&*payload)))
}

fn failure(payload: &(dyn Any + Send)) -> Failure {
    let message = message(payload);
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    let place = panics.iter().rfind(|(other, _)| *other == message).map(|(_, place)| place.as_str());
    let place = place.filter(|place| !place.is_empty()).map_or(String::new(), |place| format!(" ({place})"));
    let kept = match shutdown::kept() {
        0 => String::new(),
        frames => format!("; {frames} finished frames are kept: --resume continues"),
    };
    Failure::Failed(format!(
        "internal error: {message}{place}, please report it with the command and the output of `reseed doctor`{kept}"
    ))
}

/// The message of a panic in one line.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("unknown").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The failure of a command that panics.
    fn line(command: impl FnOnce()) -> String {
        let command = || {
            command();
            Ok(())
        };
        let failure = caught(command).unwrap_err();
        assert_eq!(failure.code(), 1);
        failure.to_string()
    }

    /// One test, because the hook is the process's.
    #[test]
    fn a_panic_in_any_thread_is_one_line_with_its_place() {
        let before = panic::take_hook();
        record_panics();
        let asserted = line(|| assert_eq!(1 + 1, 3, "sums\nare wrong"));
        let joined = line(|| {
            let _ = panic::catch_unwind(|| panic!("caught by a library"));
            let thread = thread::spawn(|| panic!("of a {}", "thread"));
            thread.join().unwrap_or_else(|payload| panic::resume_unwind(payload));
        });
        panic::set_hook(before);
        assert_eq!(short("/home/me/.cargo/registry/src/index-1/png-0.18.1/src/a.rs"), "png-0.18.1/src/a.rs");
        assert!(asserted.starts_with("internal error: assertion `left == right` failed: sums are wrong"), "{asserted}");
        assert!(joined.starts_with("internal error: of a thread ("), "{joined}");
        for line in [asserted, joined] {
            assert!(line.contains("crash.rs:") && line.contains(", please report it"), "{line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }
}
