//! Audio stays where it is relative to the frames, from every container that is read into every one that is written.
#![allow(clippy::unwrap_used)]

use crate::clips::{Decoded, copy, ffmpeg, master};
use reseed_media::video::Clip;

const MPEG2: &str = "-c:v mpeg2video -bf 2 -g 12 -q:v 3 -c:a mp2";
const H264: &str = "-c:v libx264 -preset veryfast -bf 3 -g 12";
/// The frames 513.7 ms after the audio, the audio 593.7 ms after the frames, and both late.
const LATE_VIDEO: &str = "-itsoffset 0.5137 -i master.nut -i master.nut -map 0:v -map 1:a";
const LATE_AUDIO: &str = "-i master.nut -itsoffset 0.5937 -i master.nut -map 0:v -map 1:a";
const PLAIN: &str = "-i master.nut";

/// Makes each source, copies it to all four containers, and compares the delay of the beep with that of the source.
fn check(sources: &[(&str, String)]) {
    let folder = temp_dir::TempDir::new().unwrap();
    let folder = folder.path();
    master(folder, "master.nut", 1.4, &[0.8]);
    let outputs = ["out.mp4", "out.mkv", "out.mov", "out.webm"];
    let mut wrong = Vec::new();
    for (name, args) in sources {
        ffmpeg(folder, &format!("-v error {args} {name}"));
        let expected = Decoded::of(folder, name);
        copy(folder, name, Clip::default(), &outputs);
        for output in outputs {
            let found = Decoded::of(folder, output);
            assert_eq!(found.frames.len(), expected.frames.len(), "{name} to {output}");
            let off = 1000.0 * (found.offset() - expected.offset());
            // Both tracks are rounded to milliseconds, and the beep is found to a sample.
            if off.abs() > 1.0 + 1000.0 / 48_000.0 {
                wrong.push(format!("{name} to {output}: {off:+.2} ms"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn transport_streams_stay_in_sync() {
    check(&[
        ("plain.ts", format!("{PLAIN} {MPEG2} -f mpegts")),
        ("late-video.ts", format!("{LATE_VIDEO} {H264} -c:a aac -f mpegts")),
        ("late-audio.m2ts", format!("{LATE_AUDIO} {H264} -c:a ac3 -f mpegts -mpegts_m2ts_mode 1")),
    ]);
}

#[test]
fn program_streams_stay_in_sync() {
    check(&[
        ("late-video.vob", format!("{LATE_VIDEO} {MPEG2} -f vob")),
        ("late-audio.mpg", format!("{LATE_AUDIO} {MPEG2} -f mpeg")),
    ]);
}

#[test]
fn matroska_and_webm_stay_in_sync() {
    check(&[
        ("opus.mkv", format!("{PLAIN} {H264} -c:a libopus")),
        ("late-video.mkv", format!("{LATE_VIDEO} {H264} -c:a aac")),
        ("late-audio.mkv", format!("{LATE_AUDIO} -c:v ffv1 -c:a pcm_s16le")),
        ("vorbis.webm", format!("{PLAIN} -c:v libvpx -deadline realtime -c:a libvorbis")),
    ]);
}

/// Edit lists: encoder delay, an empty edit, and a cut inside of a group of frames, which begins before time zero.
#[test]
fn mp4_and_mov_stay_in_sync() {
    check(&[
        ("aac.mp4", format!("{PLAIN} {H264} -c:a aac")),
        ("late-video.mp4", format!("{LATE_VIDEO} {H264} -c:a aac")),
        ("late-audio.mov", format!("{LATE_AUDIO} {H264} -c:a pcm_s16le")),
        ("cut.mp4", "-ss 0.3137 -i aac.mp4 -c copy".into()),
    ]);
}

#[test]
fn avi_and_flv_stay_in_sync() {
    check(&[
        ("plain.avi", format!("{PLAIN} -c:v mpeg4 -bf 2 -q:v 3 -c:a mp3")),
        ("late-video.flv", format!("{LATE_VIDEO} {H264} -c:a aac -ar 44100")),
    ]);
}
