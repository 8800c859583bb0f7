//! Damaged videos are read as far as they go, and say what is damaged and where.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use crate::clips::ffmpeg;
use reseed_media::{Problem, Size, open};

const SIZE: Size = Size { h: 48, w: 64 };

/// Makes a video of `seconds` seconds at 25 frames per second.
fn make(folder: &Path, name: &str, size: &str, seconds: f64, codec: &str) {
    let source = format!("-f lavfi -i testsrc2=size={size}:rate=25:duration={seconds}");
    ffmpeg(folder, &format!("-v error {source} {codec} -g 12 -pix_fmt yuv420p {name}"));
}

/// Reads all frames, which must have one size. Returns their number and the damage.
fn read(path: &Path) -> (usize, Vec<Problem>) {
    let mut source = open(path).unwrap_or_else(|error| panic!("{error}"));
    let mut frames = 0;
    while let Some(frame) = source.next().unwrap_or_else(|error| panic!("{error}")) {
        assert_eq!(frame.size, SIZE);
        frames += 1;
    }
    let problems = source.problems();
    assert_eq!(source.problems(), [], "each problem is returned once");
    (frames, problems)
}

#[test]
fn a_video_without_its_end_is_read_as_far_as_it_goes() {
    let folder = temp_dir::TempDir::new().unwrap();
    for (name, options) in [("in.mkv", "-c:v libx264"), ("in.mp4", "-c:v libx264 -movflags +faststart")] {
        make(folder.path(), name, "64x48", 8.0, options);
        let path = folder.path().join(name);
        assert_eq!(read(&path), (200, Vec::new()), "{name}");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() * 6 / 10]).unwrap();
        let (frames, problems) = read(&path);
        assert!((60..150).contains(&frames), "{name}: {frames} frames");
        let missing = |problem: &Problem| matches!(problem, Problem::MissingEnd { seconds, .. } if *seconds > 7.9);
        assert!(problems.iter().any(missing), "{name}: {problems:?}");
    }
}

#[test]
fn a_hole_in_a_transport_stream_is_reported_with_its_place() {
    let folder = temp_dir::TempDir::new().unwrap();
    make(folder.path(), "in.ts", "64x48", 4.0, "-c:v mpeg2video -q:v 2 -bf 0");
    let path = folder.path().join("in.ts");
    assert_eq!(read(&path), (100, Vec::new()));
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 3000].iter_mut().enumerate().for_each(|(i, byte)| *byte ^= (i * 37 % 251) as u8);
    fs::write(&path, &bytes).unwrap();
    let (frames, problems) = read(&path);
    assert!((80..=100).contains(&frames), "{frames} frames");
    let [Problem::DecoderErrors { count, seconds, frame, .. }] = &problems[..] else { panic!("{problems:?}") };
    assert!(*count > 0 && (30..70).contains(frame) && (1.0..3.0).contains(seconds), "{problems:?}");
}

#[test]
fn frames_of_another_size_are_scaled_to_the_first_size() {
    let folder = temp_dir::TempDir::new().unwrap();
    make(folder.path(), "a.ts", "64x48", 1.0, "-c:v mpeg2video -q:v 2");
    make(folder.path(), "b.ts", "96x80", 1.0, "-c:v mpeg2video -q:v 2");
    let part = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let path = folder.path().join("in.ts");
    fs::write(&path, [part("a.ts"), part("b.ts")].concat()).unwrap();
    let (frames, problems) = read(&path);
    assert!((48..=50).contains(&frames), "{frames} frames");
    let change = problems.iter().find_map(|problem| match problem {
        Problem::SizeChange { from, to, frame, .. } => Some((*from, *to, *frame)),
        _ => None,
    });
    let (from, to, frame) = change.unwrap_or_else(|| panic!("{problems:?}"));
    assert_eq!((from, to), (SIZE, Size { h: 80, w: 96 }));
    assert!((20..=25).contains(&frame), "frame {frame}");
}

/// The header of an AVI file counts dropped frames, which have no packet.
#[test]
fn the_frames_of_avi_files_are_counted() {
    let folder = temp_dir::TempDir::new().unwrap();
    let source = "-f lavfi -i testsrc2=size=64x48:rate=25:duration=1.4";
    let dropped = "-vf select='not(between(n,10,14))' -vsync passthrough";
    for (name, filter, frames) in [("a.avi", "", 35), ("b.avi", dropped, 30)] {
        ffmpeg(folder.path(), &format!("-v error {source} {filter} -c:v mpeg4 -q:v 3 {name}"));
        let path = folder.path().join(name);
        assert_eq!(open(&path).unwrap().info().frames, Some(frames), "{name}");
        assert_eq!(read(&path), (frames, Vec::new()), "{name}");
    }
}
