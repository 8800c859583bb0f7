//! `reseed plan`, `reseed shard` and `reseed join`: the bytes of `reseed upscale`, whatever machine computes what.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::common::Lab;
use crate::common::video::make;

/// A small network on small frames, so that a shard takes a moment.
const TINY: &str = "--model formula:tiny --scale 1";
/// No network, where the frames do not matter.
const PLAIN: &str = "--model identity --scale 1";

/// A video of `frames` frames with a cut after every 60, and sound.
fn write_video(lab: &Lab, name: &str, frames: usize, times: &str) {
    let seconds = frames as f64 / 30.0;
    let source = format!(
        "-f lavfi -i testsrc2=size=16x16:rate=30:duration={seconds} \
         -f lavfi -i sine=frequency=440:sample_rate=8000:duration={seconds} \
         -vf negate=enable='mod(floor(n/60)\\,2)'{times}"
    );
    make(&lab.path(""), &format!("{source} -fps_mode passthrough -c:v ffv1 -c:a flac"), name);
}

fn shards(lab: &Lab, plan: &str) -> usize {
    let plan: Value = serde_json::from_slice(&fs::read(lab.path(plan)).unwrap()).unwrap();
    plan["shards"].as_u64().unwrap() as usize
}

/// Plans, computes the shards in another order and joins them. Returns the output.
fn computed(lab: &Lab, input: &str, output: &str, options: &str) -> Vec<u8> {
    lab.succeed(&format!("plan {input} {output} --out job.json {options}"));
    (0..shards(lab, "job.json"))
        .rev()
        .for_each(|shard| drop(lab.succeed(&format!("shard job.json {shard} --threads 1"))));
    lab.succeed("join job.json");
    let bytes = fs::read(lab.path(output)).unwrap();
    for name in ["job.json", output] {
        fs::remove_file(lab.path(name)).unwrap();
    }
    fs::remove_dir_all(lab.path("job")).unwrap();
    bytes
}

fn compare(lab: &Lab, input: &str, output: &str, options: &str, sizes: &[usize]) {
    lab.succeed(&format!("upscale {input} {output} --threads 1 {options}"));
    let expected = fs::read(lab.path(output)).unwrap();
    fs::remove_file(lab.path(output)).unwrap();
    for segments in sizes {
        let bytes = computed(lab, input, output, &format!("{options} --segments {segments}"));
        assert!(bytes == expected, "{output}, shards of {segments} segments, {options}");
    }
}

/// Shots end after 60 frames and segments after 120, so that the second and the fourth cut are on the edge of a shard.
#[test]
fn shards_join_to_the_bytes_of_one_machine() {
    let lab = Lab::new();
    write_video(&lab, "in.mkv", 250, "");
    compare(&lab, "in.mkv", "out.mkv", &format!("{TINY} --codec ffv1"), &[1]);
    compare(&lab, "in.mkv", "out.mp4", &format!("{PLAIN} --codec h264"), &[1, 2, 24]);
}

#[test]
fn overlapping_batches_across_shards_agree() {
    let lab = Lab::new();
    write_video(&lab, "in.mkv", 140, "");
    let options = "--codec ffv1 --batch-size 9 --overlap 4 --no-shot-detection --prepend-frames 3";
    compare(&lab, "in.mkv", "out.mkv", &format!("{TINY} {options}"), &[1]);
}

#[test]
fn variable_frame_rates_and_clips_agree() {
    let lab = Lab::new();
    // Every fifth frame is shown twice as long.
    write_video(&lab, "in.mkv", 150, ",setpts='(N+floor(N/5))/30/TB'");
    compare(&lab, "in.mkv", "out.mp4", &format!("{PLAIN} --codec h264 --start 0.5"), &[1]);
}

#[test]
fn a_folder_of_images_is_planned_too() {
    let lab = Lab::new();
    lab.write_frames("in", reseed_media::Size { h: 16, w: 24 }, 130);
    compare(&lab, "in", "out.mkv", &format!("{PLAIN} --codec ffv1"), &[1]);
}

/// A small plan of three shards.
fn planned() -> Lab {
    let lab = Lab::new();
    write_video(&lab, "in.mkv", 250, "");
    lab.succeed(&format!("plan in.mkv out.mkv --out job.json {PLAIN} --codec ffv1 --segments 1"));
    lab
}

#[test]
fn a_killed_shard_leaves_nothing_behind_and_runs_again() {
    let lab = planned();
    let work = lab.path("work");
    let args = format!("shard job.json 1 --work {}", work.display());
    let mut child = lab.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !work.exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!lab.path("job/shards/000001.json").exists());
    lab.succeed(&args);
    let again = lab.succeed(&args);
    assert!(again.text().contains("already complete"), "{}", again.text());
    let missing = lab.run("join job.json");
    assert_eq!((missing.code, missing.stderr.contains("2 of 3 shards are missing, the first is 0")), (Some(1), true));
    assert!(!lab.path("out.mkv").exists());
}

/// Two machines may compute the same shard at the same time.
#[test]
fn two_writers_leave_one_shard() {
    let lab = planned();
    let start = |work: &str| {
        let args = format!("shard job.json 2 --work {}", lab.path(work).display());
        lab.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let both = [start("a"), start("b")].map(|mut child| child.wait().unwrap().success());
    assert_eq!(both, [true, true]);
    assert_eq!(entries(&lab.path("job/shards")), ["000002.json"]);
    assert_eq!(entries(&lab.path("job/segments")).len(), 1);
}

fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn machines_of_another_kind_are_refused() {
    let lab = planned();
    lab.succeed("shard job.json 0");
    let class = fs::read_to_string(lab.path("job/class.json")).unwrap();
    let device = serde_json::from_str::<Value>(&class).unwrap()["device"].as_str().unwrap().to_owned();
    fs::write(lab.path("job/class.json"), class.replace(&device, "another device")).unwrap();
    let refused = lab.run("shard job.json 1");
    assert_eq!((refused.code, refused.stderr.contains("another device")), (Some(6), true), "{}", refused.stderr);
    lab.succeed("shard job.json 1 --mixed");
    fs::write(lab.path("job/class.json"), class.replace("slice: 1", "slice: 9")).unwrap();
    let refused = lab.run("shard job.json 2");
    assert_eq!((refused.code, refused.stderr.contains("memory")), (Some(5), true), "{}", refused.stderr);
}

#[test]
fn another_input_is_refused() {
    let lab = planned();
    write_video(&lab, "in.mkv", 250, ",hue=h=90");
    let refused = lab.run("shard job.json 0");
    assert_eq!(
        (refused.code, refused.stderr.contains("frame 1 is not the one")),
        (Some(3), true),
        "{}",
        refused.stderr
    );
    write_video(&lab, "in.mkv", 100, "");
    let refused = lab.run("shard job.json 1");
    assert_eq!((refused.code, refused.stderr.contains("is not the one")), (Some(3), true), "{}", refused.stderr);
}

#[test]
fn damage_in_the_storage_is_found() {
    let lab = planned();
    (0..3).for_each(|shard| drop(lab.succeed(&format!("shard job.json {shard}"))));
    let segment = lab.path("job/segments").join(&entries(&lab.path("job/segments"))[1]);
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let refused = lab.run("join job.json");
    assert_eq!((refused.code, refused.stderr.contains("remove shard 1")), (Some(1), true), "{}", refused.stderr);
    assert!(!lab.path("out.mkv").exists());
    fs::remove_file(&segment).unwrap();
    fs::remove_file(lab.path("job/shards/000001.json")).unwrap();
    lab.succeed("shard job.json 1");
    lab.succeed("join job.json");
    let refused = lab.run("join job.json");
    assert_eq!((refused.code, refused.stderr.contains("already exists")), (Some(2), true), "{}", refused.stderr);
    lab.succeed("join job.json --overwrite");
}

#[test]
fn wrong_plans_are_one_line() {
    let lab = planned();
    fs::write(lab.path("broken.json"), "{\"format\": 1}").unwrap();
    for (args, code, reason) in [
        ("shard none.json 0", 3, "no such plan"),
        ("shard broken.json 0", 3, "not a usable shard plan"),
        ("shard job.json 3", 2, "the plan has 3"),
        ("shard job 0", 2, "a name ending in .json"),
        ("plan in.mkv out.mkv --out job.json", 2, "already exists"),
        ("plan in.mkv out.y4m --out new.json", 2, "shards are joined into a video"),
        ("plan none.mkv out.mkv --out new.json", 3, "none.mkv"),
        ("shard ftp://host/job.json 0", 2, "s3://"),
    ] {
        let outcome = lab.run(args);
        assert_eq!(outcome.code, Some(code), "{args}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(reason), "{args}: {}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().filter(|line| !line.contains("note")).count(), 1, "{}", outcome.stderr);
    }
    assert!(!lab.path("new.json").exists());
}
