//! A disk that is full or defect at any call: one line, exit code 1, no wrong output, and `--resume` completes the job.
//!
//! A run walks about a hundred calls. With `RESEED_FAULTS=every` it walks every call and every kind of fault
//! (`just faults`).
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic fails the test, which prints what it did")]

use std::fs;

use crate::common::tiny_job::{Form, TinyJob};
use reseed_testing::faults::{DEFECT, FULL, Fault, Shim, WRITES};

/// Calls that a run in continuous integration walks, per job.
const CALLS: usize = 24;
/// For a video, which takes longer.
const VIDEO_CALLS: usize = 4;

fn every() -> bool {
    std::env::var("RESEED_FAULTS").is_ok_and(|value| value == "every")
}

/// The calls of an undisturbed run.
fn calls(job: &TinyJob, shim: &Shim) -> Vec<String> {
    job.clear();
    let log = job.file("calls");
    let mut command = job.command("");
    shim.apply(&mut command, &job.work(), WRITES, Fault::None);
    shim.log(&mut command, &log);
    let outcome = job.run(command);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    fs::read_to_string(log).unwrap().lines().map(str::to_string).collect()
}

/// Runs the job with a fault and asserts all that must hold during and after it.
fn disturb(job: &TinyJob, shim: &Shim, call: &str, fault: Fault) {
    job.clear();
    let mut command = job.command("");
    shim.apply(&mut command, &job.work(), WRITES, fault);
    let outcome = job.run(command);
    let when = format!("{fault:?} (in an undisturbed run: {call})");
    job.assert_intact(&when);
    match outcome.code {
        // The call did not matter, such as the sync of a folder.
        Some(0) => assert!(job.is_complete(), "{when}: exit code 0 and {:?}", job.names()),
        code => {
            let line = &outcome.stderr;
            assert_eq!(code, Some(1), "{when}: {line}");
            assert!(line.starts_with("reseed: ") && line.lines().count() == 1, "{when}: {line}");
        }
    }
    job.assert_resumes(&when);
}

fn walk(form: Form, limit: usize) {
    let job = TinyJob::new(form);
    let Some(shim) = job.shim() else { return };
    let calls = calls(&job, &shim);
    let stride = if every() { 1 } else { calls.len().div_ceil(limit) };
    // The last calls give the output its name.
    let last = calls.len().saturating_sub(3)..calls.len();
    for (i, call) in calls.iter().enumerate().filter(|(i, _)| i % stride == 0 || last.contains(i)) {
        let n = i + 1;
        let faults = [Fault::From(n, FULL), Fault::Once(n, DEFECT), Fault::Once(n, FULL), Fault::From(n, DEFECT)];
        let chosen = if every() { &faults[..] } else { &faults[i / stride % 4..][..1] };
        chosen.iter().for_each(|fault| disturb(&job, &shim, call, *fault));
    }
    println!("{form:?}: {} calls, every {stride}th", calls.len());
}

#[test]
fn a_y4m_job_survives_faults() {
    walk(Form::Y4m, CALLS);
}

#[test]
fn a_folder_job_survives_faults() {
    walk(Form::Folder, CALLS);
}

#[test]
fn a_video_job_survives_faults() {
    walk(Form::Video, VIDEO_CALLS);
}
