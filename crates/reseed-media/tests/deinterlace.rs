//! Interlaced video becomes progressive frames with exact times, and one line says so.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use crate::clips::{copy, ffmpeg, ffprobe};
use reseed_media::video::{Clip, Deinterlace};
use reseed_media::{Frame, Info, Kind, Rate, metrics, open_clip};

const H264: &str = "-c:v libx264 -preset veryfast -crf 10";
/// 25 interlaced frames per second from 50 progressive ones.
const INTERLACED: &str = "-f lavfi -i testsrc2=size=128x96:rate=50:duration=3 -vf interlace=scan=tff:lowpass=off";
const NTSC_FILM: Rate = Rate { num: 24_000, den: 1001 };

fn read(path: &Path, deinterlace: Deinterlace) -> (Info, Vec<Frame>) {
    let mut source = open_clip(path, Clip { deinterlace, ..Clip::default() }).unwrap_or_else(|error| panic!("{error}"));
    let frames = std::iter::from_fn(|| source.next().unwrap()).collect();
    (source.info().clone(), frames)
}

fn note(info: &Info) -> Option<&str> {
    let Kind::Video(video) = &info.kind else { panic!("a video") };
    video.field_note()
}

/// The part of samples that differ from both rows beside them.
fn combing(frames: &[Frame]) -> f64 {
    let combed = |frame: &Frame| {
        let (values, row) = (frame.to_unit(), 3 * frame.size.w);
        let apart = |i: usize| (values[i] - values[i - row]) * (values[i] - values[i + row]) > 0.01;
        (row..values.len() - row).filter(|i| apart(*i)).count() as f64 / values.len() as f64
    };
    frames.iter().map(combed).sum::<f64>() / frames.len() as f64
}

/// The frames before they were interlaced.
fn progressive(folder: &Path) -> Vec<Frame> {
    ffmpeg(folder, &format!("-v error -f lavfi -i testsrc2=size=128x96:rate=50:duration=3 {H264} progressive.mp4"));
    read(&folder.join("progressive.mp4"), Deinterlace::Off).1
}

/// Most of the combing of stored frames is gone. Progressive frames have details that look like it.
fn assert_less_combed(frames: &[Frame], stored: &[Frame], progressive: &[Frame]) {
    let [left, stored, detail] = [frames, stored, progressive].map(combing);
    assert!(left - detail < 0.3 * (stored - detail), "{left} left of {stored}, and {detail} of details");
}

#[test]
fn flagged_video_is_deinterlaced() {
    let folder = temp_dir::TempDir::new().unwrap();
    let folder = folder.path();
    ffmpeg(folder, &format!("-v error {INTERLACED} {H264} -flags +ildct+ilme -x264opts tff=1 in.mp4"));
    let path = folder.join("in.mp4");
    let (off, stored) = read(&path, Deinterlace::Off);
    assert_eq!((off.frames, note(&off), stored.len()), (Some(75), None, 75));
    let (auto, single) = read(&path, Deinterlace::Auto);
    assert_eq!(note(&auto), Some("flagged as interlaced: deinterlaced, one frame per two fields, 25 fps"));
    assert_eq!((auto.frames, auto.rate, single.len()), (Some(75), Rate { num: 25, den: 1 }, 75));
    let progressive = progressive(folder);
    assert_less_combed(&single, &stored, &progressive);

    let (bob, double) = read(&path, Deinterlace::Bob);
    assert_eq!((bob.frames, bob.rate, double.len()), (Some(150), Rate { num: 50, den: 1 }, 150));
    assert_less_combed(&double, &stored, &progressive);
    // Each frame shows its own moment.
    for i in [40, 41, 90, 91] {
        let [same, other] = [i, i + 2].map(|at| metrics::psnr(&progressive[at], &double[i]));
        assert!(same > other, "frame {i}: {same} dB, and {other} dB of the next frame");
    }
    let clip = Clip { deinterlace: Deinterlace::Bob, ..Clip::default() };
    copy(folder, "in.mp4", clip, &["out.mp4"]);
    let times = ffprobe(folder, "frame=pts_time", "out.mp4");
    let times: Vec<f64> = times.lines().map(|line| line.trim_matches(',').parse().unwrap()).collect();
    assert_eq!(times.len(), 150);
    assert!(times.iter().enumerate().all(|(i, time)| (time - i as f64 / 50.0).abs() < 1e-6), "{times:?}");
    assert!(ffprobe(folder, "stream=field_order", "out.mp4").contains("progressive"));
}

#[test]
fn combing_without_a_flag_is_found_and_progressive_video_is_left_alone() {
    let folder = temp_dir::TempDir::new().unwrap();
    let folder = folder.path();
    ffmpeg(folder, &format!("-v error {INTERLACED},setfield=prog {H264} combed.mkv"));
    let (info, frames) = read(&folder.join("combed.mkv"), Deinterlace::Auto);
    assert_eq!(note(&info), Some("interlaced without a flag: deinterlaced, one frame per two fields, 25 fps"));
    let (_, stored) = read(&folder.join("combed.mkv"), Deinterlace::Off);
    assert_less_combed(&frames, &stored, &progressive(folder));
    for source in ["testsrc2=size=128x96:rate=25:duration=1.4", "mandelbrot=size=128x96:rate=25:end_pts=40"] {
        ffmpeg(folder, &format!("-v error -f lavfi -i {source} -t 1.4 {H264} -pix_fmt yuv420p plain.mkv"));
        let (info, frames) = read(&folder.join("plain.mkv"), Deinterlace::Auto);
        assert_eq!((note(&info), frames.len()), (None, 35), "{source}");
    }
}

#[test]
fn dv_is_deinterlaced_by_the_flags_of_its_frames() {
    let folder = temp_dir::TempDir::new().unwrap();
    let folder = folder.path();
    let fields = "testsrc2=size=720x576:rate=50:duration=0.4 -vf interlace=scan=bff:lowpass=off";
    ffmpeg(folder, &format!("-v error -f lavfi -i {fields} -c:v dvvideo -pix_fmt yuv420p in.avi"));
    let (info, frames) = read(&folder.join("in.avi"), Deinterlace::Auto);
    assert_eq!(note(&info), Some("flagged as interlaced: deinterlaced, one frame per two fields, 25 fps"));
    assert_eq!((info.frames, frames.len()), (Some(10), 10));
}

#[test]
fn film_with_pulldown_gets_its_frames_back() {
    let folder = temp_dir::TempDir::new().unwrap();
    let folder = folder.path();
    let film = "-f lavfi -i testsrc2=size=128x96:rate=24000/1001:duration=4";
    ffmpeg(folder, &format!("-v error {film} -vf telecine -c:v mpeg2video -q:v 2 -flags +ildct+ilme -top 1 in.mpg"));
    ffmpeg(folder, &format!("-v error {film} {H264} film.mp4"));
    let (_, expected) = read(&folder.join("film.mp4"), Deinterlace::Off);
    for deinterlace in [Deinterlace::Auto, Deinterlace::InverseTelecine] {
        let (info, frames) = read(&folder.join("in.mpg"), deinterlace);
        assert_eq!(info.rate, NTSC_FILM, "{deinterlace}");
        assert!(note(&info).unwrap().ends_with("the frames of the film are restored, 23.976 fps"), "{deinterlace}");
        assert!((95..=97).contains(&frames.len()), "{deinterlace}: {} frames", frames.len());
        assert!(combing(&frames) < 1.2 * combing(&expected), "{} of {}", combing(&frames), combing(&expected));
    }
    copy(folder, "in.mpg", Clip::default(), &["out.mp4"]);
    let times = ffprobe(folder, "frame=pts_time", "out.mp4");
    let times: Vec<f64> = times.lines().map(|line| line.trim_matches(',').parse().unwrap()).collect();
    let exact = |i: usize| times[0] + i as f64 * 1001.0 / 24_000.0;
    assert!(times.iter().enumerate().all(|(i, time)| (time - exact(i)).abs() < 2e-6), "{times:?}");
}
