//! A job that was interrupted goes on, computes nothing again, and ends in the same bytes.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use common::Lab;
use reseed_media::Size;
use serde_json::Value;

const SIZE: Size = Size { h: 32, w: 48 };
/// Of y4m and folders.
const FRAMES: usize = 60;
/// Of videos: more than a segment when they are interrupted.
const LONG: usize = 190;

/// Everything in a file or folder.
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

/// A video, `in.mkv`, of so many frames.
fn film(lab: &Lab, frames: usize) -> usize {
    lab.film("film.y4m", SIZE, frames);
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-i", "film.y4m", "-c:v", "ffv1", "in.mkv"]).current_dir(lab.path(""));
    assert!(ffmpeg.status().unwrap().success());
    frames
}

/// Four hundred frames that come when they like, in groups that refer to the groups before them.
fn restless_film(lab: &Lab) -> usize {
    let film = "-f lavfi -i testsrc2=size=64x48:rate=25 -frames:v 400 -fps_mode passthrough -enc_time_base 1/1000";
    let codec = "-c:v libx264 -preset fast -bf 3 -x264-params keyint=40:open-gop=1:scenecut=0";
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error"]).args(film.split(' ')).args(["-vf", "settb=1/1000,setpts=40*N+7*mod(N\\,3)"]);
    ffmpeg.args(codec.split(' ')).arg("restless.mkv").current_dir(lab.path(""));
    assert!(ffmpeg.status().unwrap().success());
    400
}

/// Programs that write down what they are asked for.
fn tell_tale(lab: &Lab) -> (std::path::PathBuf, std::path::PathBuf) {
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

/// A job, and what it makes when nothing happens to it.
struct Job {
    lab: Lab,
    words: String,
    output: &'static str,
    frames: usize,
    whole: Vec<(String, Vec<u8>)>,
    batches: u64,
}

impl Job {
    fn new(input: &str, output: &'static str, options: &str) -> Job {
        let lab = Lab::new();
        let frames = match input {
            "in.mkv" => film(&lab, LONG),
            "restless.mkv" => restless_film(&lab),
            _ => lab.film(input, SIZE, FRAMES).1.len(),
        };
        let words = format!("upscale {input} {output} --model formula:tiny --scale 1 --json {options}");
        let said = lab.succeed(&words);
        let whole = content(&lab.path(output));
        let batches = said.events().last().unwrap()["batches"].as_u64().unwrap();
        let job = Job { lab, words, output, frames, whole, batches };
        job.clear();
        job
    }

    fn clear(&self) {
        let path = self.lab.path(self.output);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    /// Ends a run by a signal once two thirds of the frames are written.
    fn interrupt(&self, signal: &str) -> (Option<i32>, String) {
        let mut command = self.lab.command(&self.words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            assert_ne!(event["event"], "done", "the job is over before it can be interrupted");
            if event["frame"].as_u64().unwrap() >= self.frames as u64 * 2 / 3 {
                break;
            }
        }
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        // The rest of its events, so that it never waits for us.
        lines.for_each(drop);
        (child.wait().unwrap().code(), said)
    }

    /// Batches behind the first `done` that were computed and not yet written.
    fn made(&self, done: u64) -> u64 {
        let folder = self.lab.path(&format!(".{}.reseed", self.output));
        (done..).take_while(|batch| folder.join(format!("made-{batch}")).exists()).count() as u64
    }

    /// Goes on: the same bytes, and only batches that are neither in the journal nor made.
    fn resume(&self) {
        self.resume_with(self.lab.command(&format!("{} --resume", self.words)));
    }

    fn resume_with(&self, command: Command) {
        let line = last_line(&self.lab, self.output);
        let (done, frames) = (line["batches"].as_u64().unwrap(), line["frames"].as_u64().unwrap());
        assert!(done > 0 && done < self.batches, "{done} of {} batches", self.batches);
        let left = self.batches - done - self.made(done);
        let said = common::outcome(command);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        let events = said.events();
        assert_eq!(events.last().unwrap()["batches"].as_u64(), Some(left), "batches computed again");
        assert_eq!(events[0]["frame"].as_u64(), Some(frames + 1));
        assert!(content(&self.lab.path(self.output)) == self.whole, "other bytes than without interruption");
        assert!(!self.lab.names().iter().any(|name| name.contains(".reseed") || name.contains("partial")));
        self.clear();
    }
}

#[test]
fn after_ctrl_c() {
    let job = Job::new("in.y4m", "out.y4m", "--overlap 2");
    let (code, said) = job.interrupt("-INT");
    assert_eq!(code, Some(130), "{said}");
    let frames = last_line(&job.lab, "out.y4m")["frames"].as_u64().unwrap();
    assert_eq!(said, format!("reseed: cancelled; {frames} finished frames are kept: --resume continues\n"));
    job.resume();
}

#[test]
fn after_kill() {
    for (input, output, options) in [("in.y4m", "out.y4m", "--overlap 1 --prepend-frames 3"), ("in", "out", "")] {
        let job = Job::new(input, output, options);
        assert_eq!(job.interrupt("-KILL").0, None);
        job.resume();
    }
}

#[test]
fn after_a_kill_behind_the_first_segment_of_a_video() {
    let job = Job::new("in.mkv", "out.mp4", "--overlap 1");
    assert_eq!(job.interrupt("-KILL").0, None);
    job.resume();
}

#[test]
fn after_a_kill_a_film_is_read_from_shortly_before_its_place() {
    let job = Job::new("restless.mkv", "out.mkv", "--no-shot-detection");
    assert_eq!(job.interrupt("-KILL").0, None);
    let (tools, log) = tell_tale(&job.lab);
    let mut command = job.lab.command(&format!("{} --resume", job.words));
    command.env("RESEED_FFMPEG", tools);
    job.resume_with(command);
    let log = fs::read_to_string(log).unwrap();
    let decoders: Vec<&str> = log.lines().filter(|line| line.contains("pipe:1")).collect();
    let sought: Vec<bool> = decoders.iter().map(|line| line.contains("-noaccurate_seek")).collect();
    assert_eq!(sought, [false, true], "one decoder to begin with, one that seeks, none from the start again");
}

#[test]
fn after_a_kill_in_the_middle_of_a_write() {
    let job = Job::new("in.y4m", "out.y4m", "");
    assert_eq!(job.interrupt("-KILL").0, None);
    for (name, torn) in [(".out.y4m.reseed/job.json", "{\"batches\":9"), (".out.y4m.partial", "FRAME\nhalf a fra")] {
        let mut bytes = fs::read(job.lab.path(name)).unwrap();
        bytes.extend(torn.as_bytes());
        fs::write(job.lab.path(name), bytes).unwrap();
    }
    let journal = job.lab.path(".out.y4m.reseed/job.json");
    let text = fs::read_to_string(&journal).unwrap();
    let whole = text.rsplit_once('\n').unwrap().0;
    let line: Value = serde_json::from_str(whole.lines().last().unwrap()).unwrap();
    let done = line["batches"].as_u64().unwrap();
    let left = job.batches - done - job.made(done);
    let said = job.lab.succeed(&format!("{} --resume", job.words));
    assert_eq!(said.events().last().unwrap()["batches"].as_u64(), Some(left));
    assert!(content(&job.lab.path("out.y4m")) == job.whole);
}

#[test]
fn after_a_full_disk() {
    let job = Job::new("in.y4m", "out.y4m", "--overlap 1");
    // A limit on the length of files, in blocks of 512 bytes: half of the output does not fit.
    let blocks = job.whole[0].1.len() / 2 / 512;
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_reseed")).args(job.words.split_whitespace());
    command.current_dir(job.lab.path(""));
    let said = common::outcome(command);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("out.y4m: cannot write: ") && said.stderr.lines().count() == 1, "{}", said.stderr);
    assert!(said.stderr.contains("finished frames are kept: --resume continues"), "{}", said.stderr);
    job.resume();
}

/// Encoders are refused the end of their segment, whatever its length; frames that they had are safe.
#[test]
fn after_a_disk_that_is_full_for_encoders() {
    let job = Job::new("in.mkv", "out.mkv", "--codec ffv1");
    let script = "trap '' XFSZ; ulimit -f 80; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_reseed")).args(job.words.split_whitespace());
    command.current_dir(job.lab.path(""));
    let said = common::outcome(command);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("out.mkv: ffmpeg failed while writing it: "), "{}", said.stderr);
    assert!(said.stderr.contains("finished frames are kept: --resume continues"), "{}", said.stderr);
    assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    job.resume();
}

#[test]
fn only_the_same_job_goes_on() {
    let job = Job::new("in.y4m", "out.y4m", "");
    job.interrupt("-KILL");
    let before = fs::read(job.lab.path(".out.y4m.reseed/job.json")).unwrap();
    let refused = |words: &str, line: &str| {
        let said = job.lab.run(words);
        assert_eq!(said.code, Some(2), "reseed {words}: {}", said.stderr);
        assert!(said.stderr.contains(line) && said.stderr.lines().count() == 1, "reseed {words}: {}", said.stderr);
        assert!(fs::read(job.lab.path(".out.y4m.reseed/job.json")).unwrap() == before, "reseed {words}");
        assert!(job.lab.path(".out.y4m.partial").exists(), "reseed {words}");
    };
    let words = &job.words;
    refused(words, "frames of it; --resume continues, --overwrite starts again");
    refused(&format!("{words} --resume --batch-size 9"), "cannot be resumed: batch size was 5 and is now 9;");
    refused(&words.replace("--scale 1", "--scale 1.5 --resume"), "target was scale 1 and is now scale 1.5;");
    refused(&words.replace("--scale 1", "--size 48x32 --resume"), "target was scale 1 and is now 48x32;");
    refused(&format!("{words} --resume --dtype f16"), " and is now f16;");
    fs::write(job.lab.path("other.y4m"), fs::read(job.lab.path("in.y4m")).unwrap()).unwrap();
    refused(&words.replace("in.y4m", "other.y4m --resume"), "input was in.y4m (");
    refused("upscale in.y4m - --model formula:tiny --resume", "a pipe cannot be resumed");
    // Options that change nothing are no reason to refuse, and those that want it start anew.
    job.lab.succeed(&format!("{words} --overwrite --threads 1"));
    assert!(content(&job.lab.path("out.y4m")) == job.whole);
    assert!(!job.lab.path(".out.y4m.reseed").exists());
}

#[test]
fn a_lost_output_is_not_gone_on_with() {
    let job = Job::new("in.y4m", "out.y4m", "");
    job.interrupt("-KILL");
    fs::write(job.lab.path(".out.y4m.partial"), "YUV4MPEG2").unwrap();
    let said = job.lab.run(&format!("{} --resume", job.words));
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains(".out.y4m.partial: cannot resume, saved frame 1 is missing"), "{}", said.stderr);
}

/// The level of the CPU changes bytes; its threads and the amount of output do not.
#[test]
fn a_refused_resume_keeps_the_finished_work() {
    let job = Job::new("in.mkv", "out.mp4", "");
    assert_eq!(job.interrupt("-KILL").0, None);
    let folder = job.lab.path(".out.mp4.reseed");
    let before = content(&folder);
    let mut command = job.lab.command(&format!("{} --resume", job.words));
    command.env("RESEED_CPU", "reference");
    let said = common::outcome(command);
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    assert!(
        said.stderr.contains("device was cpu ") && said.stderr.contains(" and is now cpu reference;"),
        "{}",
        said.stderr
    );
    assert!(content(&folder) == before, "finished work is gone");
    job.resume_with(job.lab.command(&format!("{} --resume --threads 1 --quiet", job.words)));
}
