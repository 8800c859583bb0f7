//! `--resume` continues an interrupted job, recomputes no finished batch and produces the same bytes.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common;
use crate::common::Lab;
use reseed_media::Size;
use serde_json::Value;

const SIZE: Size = Size { h: 32, w: 48 };
/// Frames of a y4m video or a folder.
const FRAMES: usize = 60;
/// Frames of an encoded video: it is interrupted after its first segment.
const VIDEO_FRAMES: usize = 190;

/// Names and bytes of a file or of all files in a folder.
fn content(path: &Path) -> Vec<(String, Vec<u8>)> {
    if path.is_file() {
        return vec![(String::new(), fs::read(path).unwrap())];
    }
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        names.map(|p| (p.file_name().unwrap().to_str().unwrap().into(), fs::read(&p).unwrap())).collect();
    files.sort();
    files
}

/// The last line of a journal.
fn last_line(lab: &Lab, output: &str) -> Value {
    let text = fs::read_to_string(lab.path(&format!(".{output}.reseed/job.json"))).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Encodes the video `in.mkv`. Returns its frame count.
fn encode_video(lab: &Lab, frames: usize) -> usize {
    lab.write_frames("clip.y4m", SIZE, frames);
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-i", "clip.y4m", "-c:v", "ffv1", "in.mkv"]).current_dir(lab.path(""));
    assert!(ffmpeg.status().unwrap().success());
    frames
}

/// Encodes `vfr.mkv`: 400 frames at a variable frame rate in open GOPs. Returns its frame count.
fn encode_vfr_video(lab: &Lab) -> usize {
    let source = "-f lavfi -i testsrc2=size=32x16:rate=25 -frames:v 400 -fps_mode passthrough -enc_time_base 1/1000";
    let codec = "-c:v libx264 -preset fast -bf 3 -x264-params keyint=40:open-gop=1:scenecut=0";
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error"]).args(source.split(' ')).args(["-vf", "settb=1/1000,setpts=40*N+7*mod(N\\,3)"]);
    ffmpeg.args(codec.split(' ')).arg("vfr.mkv").current_dir(lab.path(""));
    assert!(ffmpeg.status().unwrap().success());
    400
}

/// Wrappers of ffmpeg and ffprobe that log their arguments. Returns their folder and the log file.
fn logging_ffmpeg(lab: &Lab) -> (std::path::PathBuf, std::path::PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let (folder, log) = (lab.path("tools"), lab.path("log"));
    fs::create_dir(&folder).unwrap();
    for name in ["ffmpeg", "ffprobe"] {
        let script = format!("#!/bin/sh\necho \"$*\" >> '{}'\nexec {name} \"$@\"\n", log.display());
        fs::write(folder.join(name), script).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    (folder, log)
}

/// A job, with the output and the number of batches of an uninterrupted run.
struct Job {
    lab: Lab,
    args: String,
    output: &'static str,
    frames: usize,
    expected: Vec<(String, Vec<u8>)>,
    batches: u64,
}

impl Job {
    fn new(input: &str, output: &'static str, options: &str) -> Job {
        let lab = Lab::new();
        let frames = match input {
            "in.mkv" => encode_video(&lab, VIDEO_FRAMES),
            "vfr.mkv" => encode_vfr_video(&lab),
            _ => lab.write_frames(input, SIZE, FRAMES).1.len(),
        };
        let args = format!("upscale {input} {output} --model formula:tiny --scale 1 --json {options}");
        let outcome = lab.succeed(&args);
        let expected = content(&lab.path(output));
        let batches = outcome.events().last().unwrap()["batches"].as_u64().unwrap();
        let job = Job { lab, args, output, frames, expected, batches };
        job.remove_output();
        job
    }

    fn remove_output(&self) {
        let path = self.lab.path(self.output);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    /// Sends a signal to a run when two thirds of its frames are written. Returns exit code and standard error.
    fn interrupt(&self, signal: &str) -> (Option<i32>, String) {
        let mut command = self.lab.command(&self.args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            assert_ne!(event["event"], "done", "the job finished before it could be interrupted");
            if event["frame"].as_u64().unwrap() >= self.frames as u64 * 2 / 3 {
                break;
            }
        }
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        // Drain the remaining events so that the job never blocks on a full pipe.
        lines.for_each(drop);
        (child.wait().unwrap().code(), stderr)
    }

    /// Number of batches after the first `done` that are computed and not yet written.
    fn computed_batches(&self, done: u64) -> u64 {
        let folder = self.lab.path(&format!(".{}.reseed", self.output));
        (done..).take_while(|batch| folder.join(format!("made-{batch}")).exists()).count() as u64
    }

    /// Resumes and asserts the same bytes, and that only batches run that are neither written nor computed.
    fn resume(&self) {
        self.resume_with(self.lab.command(&format!("{} --resume", self.args)));
    }

    fn resume_with(&self, command: Command) {
        let line = last_line(&self.lab, self.output);
        let (done, frames) = (line["batches"].as_u64().unwrap(), line["frames"].as_u64().unwrap());
        assert!(done > 0 && done < self.batches, "{done} of {} batches", self.batches);
        let left = self.batches - done - self.computed_batches(done);
        let outcome = common::outcome(command);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let events = outcome.events();
        assert_eq!(events.last().unwrap()["batches"].as_u64(), Some(left), "batches computed again");
        let first = events.iter().find(|event| event["event"] == "progress").unwrap();
        assert_eq!(first["frame"].as_u64(), Some(frames + 1));
        assert!(content(&self.lab.path(self.output)) == self.expected, "the output differs from the uninterrupted run");
        assert!(!self.lab.names().iter().any(|name| name.contains(".reseed") || name.contains("partial")));
        self.remove_output();
    }
}

#[test]
fn a_job_resumes_after_ctrl_c_sigterm_and_sighup() {
    let job = Job::new("in.y4m", "out.y4m", "--overlap 2");
    for signal in ["-INT", "-TERM", "-HUP"] {
        let (code, stderr) = job.interrupt(signal);
        assert_eq!(code, Some(130), "{signal}: {stderr}");
        let frames = last_line(&job.lab, "out.y4m")["frames"].as_u64().unwrap();
        assert_eq!(stderr, format!("reseed: cancelled; {frames} finished frames are kept: --resume continues\n"));
        job.resume();
    }
}

#[test]
fn a_job_resumes_after_sigkill() {
    for (input, output, options) in [("in.y4m", "out.y4m", "--overlap 1 --prepend-frames 3"), ("in", "out", "")] {
        let job = Job::new(input, output, options);
        assert_eq!(job.interrupt("-KILL").0, None);
        job.resume();
    }
}

#[test]
fn a_video_resumes_after_sigkill_in_its_second_segment() {
    let job = Job::new("in.mkv", "out.mp4", "--overlap 1");
    assert_eq!(job.interrupt("-KILL").0, None);
    job.resume();
}

#[test]
fn a_resumed_video_is_decoded_from_a_seek_position() {
    let job = Job::new("vfr.mkv", "out.mkv", "--no-shot-detection");
    assert_eq!(job.interrupt("-KILL").0, None);
    let (tools, log) = logging_ffmpeg(&job.lab);
    let mut command = job.lab.command(&format!("{} --resume", job.args));
    command.env("RESEED_FFMPEG", tools);
    job.resume_with(command);
    let log = fs::read_to_string(log).unwrap();
    let decoders: Vec<&str> = log.lines().filter(|line| line.contains("pipe:1")).collect();
    let sought: Vec<bool> = decoders.iter().map(|line| line.contains("-noaccurate_seek")).collect();
    assert_eq!(sought, [false, true], "expected one decoder from the start and then one that seeks");
}

#[test]
fn a_job_resumes_after_torn_writes() {
    let job = Job::new("in.y4m", "out.y4m", "");
    assert_eq!(job.interrupt("-KILL").0, None);
    for (name, torn) in [(".out.y4m.reseed/job.json", "{\"batches\":9"), (".out.y4m.partial", "FRAME\nhalf a fra")] {
        let mut bytes = fs::read(job.lab.path(name)).unwrap();
        bytes.extend(torn.as_bytes());
        fs::write(job.lab.path(name), bytes).unwrap();
    }
    let journal = job.lab.path(".out.y4m.reseed/job.json");
    let text = fs::read_to_string(&journal).unwrap();
    let complete = text.rsplit_once('\n').unwrap().0;
    let line: Value = serde_json::from_str(complete.lines().last().unwrap()).unwrap();
    let done = line["batches"].as_u64().unwrap();
    let left = job.batches - done - job.computed_batches(done);
    let outcome = job.lab.succeed(&format!("{} --resume", job.args));
    assert_eq!(outcome.events().last().unwrap()["batches"].as_u64(), Some(left));
    assert!(content(&job.lab.path("out.y4m")) == job.expected);
}

#[test]
fn a_job_resumes_after_a_full_disk() {
    let job = Job::new("in.y4m", "out.y4m", "--overlap 1");
    // Limit the file size, in blocks of 512 bytes, to half of the output.
    let blocks = job.expected[0].1.len() / 2 / 512;
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_reseed")).args(job.args.split_whitespace());
    command.current_dir(job.lab.path(""));
    let outcome = common::outcome(command);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("out.y4m: cannot write: ") && outcome.stderr.lines().count() == 1,
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("finished frames are kept: --resume continues"), "{}", outcome.stderr);
    job.resume();
}

/// The file size limit fails the encoder in the middle of a segment. Frames that it received before are kept.
#[test]
fn a_video_resumes_after_an_encoder_meets_a_full_disk() {
    // Without shared frames, whose file would meet the limit first.
    let job = Job::new("in.mkv", "out.mkv", "--codec ffv1 --overlap 0");
    let script = "trap '' XFSZ; ulimit -f 80; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_reseed")).args(job.args.split_whitespace());
    command.current_dir(job.lab.path(""));
    let outcome = common::outcome(command);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("out.mkv: ffmpeg failed while writing it: "), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("finished frames are kept: --resume continues"), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    job.resume();
}

/// An encoder whose options were wrong is corrected, and no frame is computed again.
#[test]
fn encoder_options_may_change_until_a_segment_is_encoded() {
    let mut job = Job::new("in.y4m", "out.mp4", "--crf 20");
    let corrected = job.args.clone();
    job.args = corrected.replace("--crf 20", "--crf 40");
    assert_eq!(job.interrupt("-KILL").0, None);
    job.args = corrected;
    job.resume();
}

#[test]
fn resume_refuses_changed_settings() {
    let job = Job::new("in.y4m", "out.y4m", "");
    job.interrupt("-KILL");
    let before = fs::read(job.lab.path(".out.y4m.reseed/job.json")).unwrap();
    let refused = |args: &str, line: &str| {
        let outcome = job.lab.run(args);
        assert_eq!(outcome.code, Some(2), "reseed {args}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains(line) && outcome.stderr.lines().count() == 1,
            "reseed {args}: {}",
            outcome.stderr
        );
        assert!(fs::read(job.lab.path(".out.y4m.reseed/job.json")).unwrap() == before, "reseed {args}");
        assert!(job.lab.path(".out.y4m.partial").exists(), "reseed {args}");
    };
    let args = &job.args;
    refused(args, "frames of it; --resume continues, --overwrite starts again");
    refused(&format!("{args} --resume --batch-size 9"), "cannot be resumed: batch size was 5 and is now 9;");
    refused(&args.replace("--scale 1", "--scale 1.5 --resume"), "target was scale 1 and is now scale 1.5;");
    refused(&args.replace("--scale 1", "--size 48x32 --resume"), "target was scale 1 and is now 48x32;");
    refused(&format!("{args} --resume --dtype f16"), " and is now f16;");
    fs::write(job.lab.path("other.y4m"), fs::read(job.lab.path("in.y4m")).unwrap()).unwrap();
    refused(&args.replace("in.y4m", "other.y4m --resume"), "input was in.y4m (");
    refused("upscale in.y4m - --model formula:tiny --resume", "a pipe cannot be resumed");
    // `--threads` does not change the result and is accepted; `--overwrite` restarts the job.
    job.lab.succeed(&format!("{args} --overwrite --threads 1"));
    assert!(content(&job.lab.path("out.y4m")) == job.expected);
    assert!(!job.lab.path(".out.y4m.reseed").exists());
}

#[test]
fn resume_refuses_a_damaged_partial_output() {
    let job = Job::new("in.y4m", "out.y4m", "");
    job.interrupt("-KILL");
    fs::write(job.lab.path(".out.y4m.partial"), "YUV4MPEG2").unwrap();
    let outcome = job.lab.run(&format!("{} --resume", job.args));
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains(".out.y4m.partial: cannot resume, saved frame 1 is missing"), "{}", outcome.stderr);
}

/// The CPU level changes the result; the thread count and `--quiet` do not. The default type depends on the level.
#[test]
fn a_refused_resume_keeps_the_finished_work() {
    let job = Job::new("in.mkv", "out.mp4", "--dtype f32");
    assert_eq!(job.interrupt("-KILL").0, None);
    let folder = job.lab.path(".out.mp4.reseed");
    let journal = || fs::read(folder.join("job.json")).unwrap();
    let names = || fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>();
    let before = (journal(), names());
    let mut command = job.lab.command(&format!("{} --resume", job.args));
    command.env("RESEED_CPU", "reference");
    let outcome = common::outcome(command);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("device was cpu ") && outcome.stderr.contains(" and is now cpu reference;"),
        "{}",
        outcome.stderr
    );
    // The encoder of the killed run may still finish its segment, so that files may grow and be added.
    assert!(journal() == before.0 && names().is_superset(&before.1), "finished work was deleted: {:?}", names());
    job.resume_with(job.lab.command(&format!("{} --resume --threads 1 --quiet", job.args)));
}

#[test]
fn a_complete_output_is_success() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", SIZE, 6);
    let args = "upscale in.y4m out.y4m --model formula:tiny --scale 1 --resume";
    lab.succeed(args);
    let complete = content(&lab.path("out.y4m"));
    assert_eq!(lab.succeed(args).stderr, "reseed: out.y4m: already complete\n");
    assert_eq!(lab.succeed(&format!("{args} --json")).events()[0]["event"], "complete");
    assert!(content(&lab.path("out.y4m")) == complete && lab.names() == ["in.y4m", "out.y4m"]);
}

#[test]
fn a_folder_resumes_without_its_complete_videos() {
    let lab = Lab::new();
    fs::create_dir(lab.path("tapes")).unwrap();
    ["tapes/a.y4m", "tapes/b.y4m", "tapes/c.y4m"].iter().for_each(|name| drop(lab.write_frames(name, SIZE, 6)));
    let args = "upscale tapes restored --model formula:tiny --scale 1 --resume";
    lab.succeed(args);
    let complete = content(&lab.path("restored"));
    fs::remove_file(lab.path("restored/b.y4m")).unwrap();
    let again = lab.succeed(args);
    let notes: Vec<&str> = again.stderr.lines().filter(|line| line.ends_with("already complete")).collect();
    assert_eq!(notes, ["reseed: restored/a.y4m: already complete", "reseed: restored/c.y4m: already complete"]);
    assert!(content(&lab.path("restored")) == complete);
}
