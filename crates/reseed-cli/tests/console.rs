//! Ctrl-C on a console of Windows stops a run quickly, with one line, exit code 130 and no leftover files.
#![cfg(windows)]
#![allow(clippy::unwrap_used)]

use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use reseed_media::Size;
use windows_sys::Win32::System::Console::{
    AllocConsole, CTRL_C_EVENT, FreeConsole, GenerateConsoleCtrlEvent, SetConsoleCtrlHandler,
};
use windows_sys::core::BOOL;

use crate::common::Lab;

/// Environment variable of the process that runs a test alone: Ctrl-C reaches all processes of a console.
const ALONE: &str = "RESEED_TEST_ALONE";

/// Runs a test of this file in a process with a console of its own. Returns whether this is that process.
fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", test, "--nocapture"]).env(ALONE, "1");
        let output = alone.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return false;
    }
    unsafe extern "system" fn ignore(_: u32) -> BOOL {
        1
    }
    // SAFETY: the calls take no pointers but that of a function, which lives as long as the process.
    unsafe {
        FreeConsole();
        assert!(AllocConsole() != 0, "{}", std::io::Error::last_os_error());
        assert!(SetConsoleCtrlHandler(Some(ignore), 1) != 0);
    }
    true
}

/// Starts a run, presses Ctrl-C when `is_time`, and waits for its end.
fn interrupt(mut command: Command, mut is_time: impl FnMut() -> bool) -> Output {
    let mut child: Child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !is_time() {
        assert_eq!(child.try_wait().unwrap(), None, "{command:?} finished before it could be interrupted");
        sleep(Duration::from_millis(5));
    }
    // SAFETY: the call takes integers only.
    assert!(unsafe { GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0) } != 0);
    child.wait_with_output().unwrap()
}

#[test]
fn ctrl_c_leaves_no_files() {
    if !alone("console::ctrl_c_leaves_no_files") {
        return;
    }
    let lab = Lab::new();
    lab.write_frames("in.y4m", Size { h: 64, w: 64 }, 2000);
    let partial = lab.path(".out.y4m.partial");
    let command = lab.command("vae roundtrip in.y4m out.y4m --weights formula:tiny");
    let output = interrupt(command, || partial.exists());
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "reseed: cancelled; nothing was written\n");
    assert_eq!(lab.names(), ["in.y4m"]);
}

/// ffmpeg does not see the Ctrl-C, so that the segments that it writes stay whole.
#[test]
fn a_video_interrupted_by_ctrl_c_resumes() {
    if !alone("console::a_video_interrupted_by_ctrl_c_resumes") {
        return;
    }
    let lab = Lab::new();
    let clip = "-f lavfi -i testsrc2=size=64x48:rate=25:duration=60 -c:v ffv1";
    crate::common::video::make(&lab.path(""), clip, "in.mkv");
    let options = "--model identity --scale 1 --batch-size 20 --codec ffv1 --quiet";
    let journal = lab.path(".out.mkv.reseed").join("job.json");
    // The journal is read while the job runs.
    let has_batch = || std::fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() > 2);
    let output = interrupt(lab.command(&format!("upscale in.mkv out.mkv {options}")), has_batch);
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!lab.path("out.mkv").exists() && journal.exists());
    lab.succeed(&format!("upscale in.mkv out.mkv {options} --resume"));
    lab.succeed(&format!("upscale in.mkv whole.mkv {options}"));
    let read = |name| std::fs::read(lab.path(name)).unwrap();
    assert!(read("out.mkv") == read("whole.mkv"), "a resumed job has other bytes");
    assert_eq!(lab.names(), ["in.mkv", "out.mkv", "whole.mkv"]);
}
