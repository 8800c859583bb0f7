//! A part of a video has exact frames, and its sound, subtitles and chapters begin and end with them.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::clips::{Decoded, copy, ffmpeg, ffprobe, master};
use reseed_media::video::Clip;
use reseed_media::{Frame, open, open_clip};

const H264: &str = "-c:v libx264 -preset veryfast -bf 3 -g 12";
const MPEG2: &str = "-c:v mpeg2video -bf 2 -g 12 -q:v 3";

fn seconds(start: f64, end: Option<f64>) -> Clip {
    let time = Duration::from_secs_f64;
    Clip { start: Some(time(start)), end: end.map(time), ..Clip::default() }
}

fn frames(path: &Path, clip: Clip) -> Vec<Frame> {
    let mut source = open_clip(path, clip).unwrap();
    std::iter::from_fn(|| source.next().unwrap()).collect()
}

/// Frames of every format, with and without a start that a seek reaches, equal those of the whole file.
#[test]
fn the_frames_of_a_clip_equal_those_of_the_whole_file() {
    let folder = temp_dir::TempDir::new().unwrap();
    let folder = folder.path();
    ffmpeg(folder, "-v error -f lavfi -i testsrc2=size=64x48:rate=25:duration=4.4 -c:v ffv1 master.nut");
    let sources = [
        ("a.ts", format!("{MPEG2} -f mpegts")),
        ("a.vob", format!("{MPEG2} -f vob")),
        ("a.m2ts", format!("{H264} -f mpegts -mpegts_m2ts_mode 1")),
        ("a.h264", format!("{H264} -f h264")),
        ("a.mkv", H264.to_owned()),
        ("a.mp4", H264.to_owned()),
        ("a.avi", "-c:v mpeg4 -g 12 -q:v 3".to_owned()),
        ("a.flv", H264.to_owned()),
    ];
    for (name, codec) in sources {
        ffmpeg(folder, &format!("-v error -i master.nut {codec} {name}"));
        let path = folder.join(name);
        let mut source = open(&path).unwrap();
        let all: Vec<Frame> = std::iter::from_fn(|| source.next().unwrap()).collect();
        assert_eq!(all.len(), 110, "{name}");
        // Frame 89 is at 3.56 s. Times between two frames belong to the later one.
        for (start, end, expected) in [(3.55, 4.01, 89..101), (0.52, 1.04, 13..26), (4.0, 9.0, 100..110)] {
            let part = frames(&path, seconds(start, Some(end)));
            assert_eq!(part.len(), expected.len(), "{name} from {start} to {end}");
            assert!(part == all[expected], "{name} from {start} to {end}: other frames");
        }
    }
}

/// The beep is where the flash is, nothing sounds before the first frame or long after the last, and PCM ends with it.
#[test]
fn the_sound_of_a_clip_begins_with_its_first_frame() {
    let folder = temp_dir::TempDir::new().unwrap();
    let folder = folder.path();
    // A constant tone shows where the sound begins and ends.
    master(folder, "beeps.nut", 5.0, &[0.4, 3.2, 4.6]);
    let sources = [
        ("aac.mkv", format!("{H264} -c:a aac")),
        ("pcm.mov", format!("{H264} -c:a pcm_s16le")),
        ("mp2.ts", format!("{MPEG2} -c:a mp2 -f mpegts")),
    ];
    for (name, codecs) in sources {
        ffmpeg(folder, &format!("-v error -i beeps.nut {codecs} {name}"));
        let whole = Decoded::of(folder, name);
        let expected = whole.offset();
        let outputs = ["out.mp4", "out.mkv", "out.mov"];
        copy(folder, name, seconds(2.51, Some(4.0)), &outputs);
        for output in outputs {
            let found = Decoded::of(folder, output);
            assert_eq!(found.frames.len(), 37, "{name} to {output}");
            assert!(found.frames[0].0.abs() < 0.001, "{name} to {output}: starts at {}", found.frames[0].0);
            let off = 1000.0 * (found.offset() - expected);
            assert!(off.abs() <= 1.0, "{name} to {output}: {off:+.2} ms");
            let length = found.audio.len() as f64 / 48_000.0;
            let packet = if name == "pcm.mov" { 0.001 } else { 0.035 };
            assert!((length - 1.48).abs() <= packet, "{name} to {output}: {length} s of sound");
            let duration = ffprobe(folder, "format=duration", output).parse::<f64>().unwrap();
            assert!((duration - 1.48).abs() <= 0.035, "{name} to {output}: {duration} s");
            let start = ffprobe(folder, "format=start_time", output).parse::<f64>().unwrap();
            assert!(start.abs() <= 0.001, "{name} to {output} starts at {start} s");
        }
    }
}

#[test]
fn subtitles_and_chapters_of_a_clip_are_cut_and_moved() {
    let folder = temp_dir::TempDir::new().unwrap();
    let folder = folder.path();
    let words = "1\n00:00:00,200 --> 00:00:00,800\nBefore\n\n2\n00:00:00,900 --> 00:00:01,500\nAcross the start\n\n\
                 3\n00:00:01,700 --> 00:00:01,900\nInside\n\n4\n00:00:02,300 --> 00:00:02,900\nAfter\n";
    fs::write(folder.join("words.srt"), words).unwrap();
    let chapter = |start, end, title| format!("[CHAPTER]\nTIMEBASE=1/1000\nSTART={start}\nEND={end}\ntitle={title}\n");
    let chapters = chapter(0, 800, "One") + &chapter(800, 1800, "Two") + &chapter(1800, 3000, "Three");
    fs::write(folder.join("chapters.txt"), format!(";FFMETADATA1\n{chapters}")).unwrap();
    let inputs = "-f lavfi -i testsrc2=size=64x48:rate=25:duration=3 -i words.srt -i chapters.txt";
    let maps = "-map 0 -map 1 -map_chapters 2 -metadata:s:s:0 language=fra";
    ffmpeg(folder, &format!("-v error {inputs} {maps} {H264} -c:s srt in.mkv"));
    let outputs = ["out.mkv", "out.mp4"];
    copy(folder, "in.mkv", seconds(1.0, Some(2.0)), &outputs);
    for output in outputs {
        let (text, _) = ffmpeg(folder, &format!("-v error -i {output} -map 0:s:0 -f srt -"));
        let text = String::from_utf8(text).unwrap();
        let times: Vec<&str> = text.lines().filter(|line| line.contains("-->")).collect();
        assert_eq!(times, ["00:00:00,000 --> 00:00:00,500", "00:00:00,700 --> 00:00:00,900"], "{output}: {text}");
        assert!(text.contains("Across the start") && text.contains("Inside"), "{output}: {text}");
        let languages = ffprobe(folder, "stream_tags=language", output);
        assert!(languages.lines().any(|language| language == "fra"), "{output}: {languages}");
        let starts = ffprobe(folder, "chapter=start_time,end_time", output);
        assert_eq!(starts, "0.000000,0.800000\n0.800000,1.000000", "{output}");
    }
}
