//! All output of the program. A terminal that is gone, a full disk or a closed pipe never stops a job: errors of
//! standard error are ignored, and an error of standard output is reported when the command has ended.

use std::fmt::{Arguments, Display};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::failure::{Failure, Result};

static STDOUT_IS_TAKEN: AtomicBool = AtomicBool::new(false);
static QUIET: AtomicBool = AtomicBool::new(false);
static JSON: AtomicBool = AtomicBool::new(false);
/// Whether the last line of the terminal is a progress line without an end.
static LIVE: AtomicBool = AtomicBool::new(false);
/// The first error of standard output.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// Clears a line of a terminal.
const CLEAR: &str = "\r\x1b[K";

/// Sets whether notes, warnings, progress and summaries are left out, and whether events are printed as JSON.
pub fn configure(quiet: bool, json: bool) {
    QUIET.store(quiet, Ordering::SeqCst);
    JSON.store(json, Ordering::SeqCst);
}

/// Where frames go to standard output, results go to standard error from here on.
pub fn make_way_for(output: &Path) {
    STDOUT_IS_TAKEN.store(output == Path::new("-"), Ordering::SeqCst);
}

/// Whether notes, warnings, progress and summaries are left out.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::SeqCst)
}

/// Whether standard error is a terminal on which a line can be replaced.
pub fn is_live() -> bool {
    io::stderr().is_terminal() && has_escapes()
}

#[cfg(windows)]
use crate::windows::has_escapes;

#[cfg(not(windows))]
fn has_escapes() -> bool {
    true
}

/// A line of results.
pub fn line(what: Arguments) {
    match STDOUT_IS_TAKEN.load(Ordering::SeqCst) {
        true => remark(&what),
        false => data(format!("{what}\n").as_bytes()),
    }
}

/// Bytes on standard output.
pub fn data(bytes: &[u8]) {
    clear();
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        LOST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Fails where results could not be printed. A reader who has closed the pipe has seen enough.
pub fn lost() -> Result<()> {
    let lost = LOST.lock().unwrap_or_else(PoisonError::into_inner).take();
    lost.and_then(stdout_failure).map_or(Ok(()), Err)
}

/// The failure for an error of standard output.
pub fn stdout_failure(error: io::Error) -> Option<Failure> {
    (error.kind() != ErrorKind::BrokenPipe).then(|| Failure::Failed(format!("standard output: {error}")))
}

/// A line on standard error.
pub fn remark(what: &dyn Display) {
    let clear = if LIVE.swap(false, Ordering::SeqCst) { CLEAR } else { "" };
    error_bytes(&format!("{clear}{what}\n"));
}

/// A note for the user.
pub fn note(what: &str) {
    if !is_quiet() {
        remark(&format_args!("reseed: {what}"));
    }
}

/// A warning, whose JSON event has this kind.
pub fn warn(kind: &str, what: &dyn Display) {
    if !is_quiet() {
        remark(&format_args!("warning: {what}"));
    }
    event(|| json!({"event": "warning", "kind": kind, "message": what.to_string()}));
}

/// The error that ends a command.
pub fn error(failure: &Failure) {
    remark(&format_args!("reseed: {failure}"));
    event(|| error_event(failure));
}

/// An error as JSON.
pub fn error_event(failure: &Failure) -> Value {
    json!({"event": "error", "kind": failure.kind_name(), "exit_code": failure.code(), "message": failure.to_string()})
}

/// An event, where JSON is asked for.
pub fn event(value: impl FnOnce() -> Value) {
    if JSON.load(Ordering::SeqCst) {
        line(format_args!("{}", value()));
    }
}

/// Replaces the progress line of a terminal.
pub fn live(text: &str) {
    LIVE.store(true, Ordering::SeqCst);
    error_bytes(&format!("{CLEAR}{text}"));
}

/// Clears the progress line.
pub fn clear() {
    if LIVE.swap(false, Ordering::SeqCst) {
        error_bytes(CLEAR);
    }
}

/// Writes in one piece, so that lines of several threads do not mix.
fn error_bytes(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
