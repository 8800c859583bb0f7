//! `kill -9` at random moments, then `--resume`: the bytes of the undisturbed run.
//!
//! A run kills ten times; `RESEED_KILLS` sets another number, and `RESEED_SEED` other moments (`just kills`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic fails the test, which prints what it did")]

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::tiny_job::{Form, TinyJob};
use reseed_testing::faults::{Fault, WRITES};
use reseed_testing::fuzz::Random;

/// Calls that change or remove files: a kill between any two must do no harm.
const REMOVES: &str = "unlink";
/// Kills of one job before it may end.
const KILLS_IN_A_ROW: usize = 3;

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Kills a command after a part of the time that the undisturbed run took. Returns whether it was still running.
fn kill_after(mut command: Command, seconds: f64) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let running = child.try_wait().unwrap().is_none();
    // It may end by itself now; then there is nothing to kill.
    let _ = child.kill();
    child.wait().unwrap();
    running
}

fn kill_and_resume(form: Form, kills: usize, seed: u64) {
    let (job, mut random) = (TinyJob::new(form), Random::new(seed));
    let calls = format!("{WRITES},{REMOVES}");
    let shim = job.shim();
    // The number of calls of an undisturbed run.
    let total = shim.as_ref().map(|shim| {
        job.clear();
        let mut command = job.command("");
        shim.apply(&mut command, &job.work(), &calls, Fault::None);
        shim.log(&mut command, &job.file("calls"));
        assert_eq!(job.run(command).code, Some(0));
        fs::read_to_string(job.file("calls")).unwrap().lines().count()
    });
    let mut killed = 0;
    while killed < kills {
        job.clear();
        let mut when = format!("{form:?}, seed {seed}:");
        for i in 0..=random.below(KILLS_IN_A_ROW) {
            let mut command = job.command(if i == 0 { "" } else { "--resume" });
            match (&shim, total) {
                // At an exact call, which meets the short moments between two changes of the disk.
                (Some(shim), Some(total)) if random.below(2) == 0 => {
                    let n = 1 + random.below(total);
                    when += &format!(" killed at call {n};");
                    shim.apply(&mut command, &job.work(), &calls, Fault::Kill(n));
                    killed += usize::from(job.run(command).code.is_none());
                }
                _ => {
                    let seconds = job.seconds * 1.1 * random.below(1000) as f64 / 1000.0;
                    when += &format!(" killed after {seconds:.3} s;");
                    killed += usize::from(kill_after(command, seconds));
                }
            }
            job.assert_intact(&when);
        }
        job.assert_resumes(&when);
    }
    println!("{form:?}: {killed} kills");
}

#[test]
fn a_killed_y4m_job_resumes() {
    kill_and_resume(Form::Y4m, setting("RESEED_KILLS", 10).div_ceil(3), setting("RESEED_SEED", 1) as u64);
}

#[test]
fn a_killed_folder_job_resumes() {
    kill_and_resume(Form::Folder, setting("RESEED_KILLS", 10).div_ceil(3), setting("RESEED_SEED", 1) as u64);
}

#[test]
fn a_killed_video_job_resumes() {
    kill_and_resume(Form::Video, setting("RESEED_KILLS", 10).div_ceil(3), setting("RESEED_SEED", 1) as u64);
}
