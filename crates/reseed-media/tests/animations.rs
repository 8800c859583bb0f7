//! Animated GIF, PNG and WebP files keep all frames, their delays and their alpha.
#![cfg(feature = "ffmpeg")]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use image::{AnimationDecoder, Delay, RgbaImage};
use reseed_media::{Frame, Info, Kind, Samples, Size, create, metrics, open, resume_with, video::Options};

const SIZE: Size = Size { h: 20, w: 30 };
/// Milliseconds; their sum is 1.00 s, and the last is not the mean.
const DELAYS: [u32; 5] = [100, 250, 40, 520, 90];

/// A frame with a moving square; its upper half is transparent if `alpha` is set.
fn drawing(i: usize, alpha: bool) -> RgbaImage {
    RgbaImage::from_fn(SIZE.w as u32, SIZE.h as u32, |x, y| {
        let square = (5 * i as u32..5 * i as u32 + 6).contains(&x) && (4..16).contains(&y);
        let opacity = if alpha && y < 10 && !square { 0 } else { 255 };
        let colour = if square { [250, 200, 10] } else { [20, 60, 120] };
        image::Rgba([colour[0], colour[1], colour[2], opacity])
    })
}

/// Writes a GIF file with another program: the `gif` encoder of the `image` crate.
fn write_gif(path: &Path, alpha: bool) {
    let mut encoder = image::codecs::gif::GifEncoder::new_with_speed(fs::File::create(path).unwrap(), 1);
    encoder.set_repeat(image::codecs::gif::Repeat::Infinite).unwrap();
    for (i, delay) in DELAYS.iter().enumerate() {
        let delay = Delay::from_numer_denom_ms(*delay, 1);
        encoder.encode_frame(image::Frame::from_parts(drawing(i, alpha), 0, 0, delay)).unwrap();
    }
}

fn read_all(path: &Path) -> (Info, Vec<Frame>) {
    let mut source = open(path).unwrap();
    let frames = std::iter::from_fn(|| source.next().unwrap()).collect();
    (source.info().clone(), frames)
}

fn write_all(path: &Path, info: &Info, frames: &[Frame]) {
    let mut sink = create(path, info).unwrap();
    frames.iter().for_each(|frame| sink.write(frame).unwrap());
    sink.finish().unwrap();
}

/// The delays of a file in milliseconds, and whether a pixel is transparent, by the `image` crate.
fn decoded(path: &Path) -> (Vec<u32>, bool) {
    let input = std::io::BufReader::new(fs::File::open(path).unwrap());
    let frames = match path.extension().unwrap().to_str().unwrap() {
        "gif" => image::codecs::gif::GifDecoder::new(input).unwrap().into_frames(),
        "webp" => image::codecs::webp::WebPDecoder::new(input).unwrap().into_frames(),
        _ => image::codecs::png::PngDecoder::new(input).unwrap().apng().unwrap().into_frames(),
    };
    let frames = frames.collect_frames().unwrap();
    let milliseconds = |frame: &image::Frame| {
        let (num, den) = frame.delay().numer_denom_ms();
        num / den
    };
    let clear = frames.iter().any(|frame| frame.buffer().pixels().any(|pixel| pixel.0[3] == 0));
    (frames.iter().map(milliseconds).collect(), clear)
}

#[test]
fn all_frames_and_delays_go_from_every_format_to_every_other() {
    let folder = temp_dir::TempDir::new().unwrap();
    let gif = folder.path().join("in.gif");
    for alpha in [false, true] {
        write_gif(&gif, alpha);
        let (input, frames) = read_all(&gif);
        assert!(matches!(input.kind, Kind::Animation(_)));
        assert_eq!((input.frames, input.size, input.alpha), (Some(5), SIZE, alpha));
        for name in ["a.gif", "a.apng", "a.png", "a.webp"] {
            let path = folder.path().join(name);
            write_all(&path, &input, &frames);
            assert_eq!(decoded(&path), (DELAYS.to_vec(), alpha), "{name}");
            let (again, read) = read_all(&path);
            assert_eq!((again.frames, again.alpha, &again.kind), (Some(5), alpha, &input.kind), "{name}");
            for (before, after) in frames.iter().zip(&read) {
                assert_eq!(before.alpha, after.alpha, "{name}");
                let psnr = metrics::psnr(before, after);
                assert!(if name == "a.gif" { psnr > 30.0 || alpha } else { psnr.is_infinite() }, "{name}: {psnr} dB");
            }
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary files are left");
    }
}

/// The video has the frames at their times, and the last one lasts as long as in the animation.
#[test]
fn an_animation_becomes_a_video_with_its_times() {
    let folder = temp_dir::TempDir::new().unwrap();
    let (gif, video) = (folder.path().join("in.gif"), folder.path().join("out.mkv"));
    write_gif(&gif, false);
    let (input, frames) = read_all(&gif);
    write_all(&video, &input, &frames);
    let mut probe = Command::new("ffprobe");
    probe.args(["-v", "error", "-show_entries", "packet=pts_time", "-of", "csv=p=0"]).arg(&video);
    let times = String::from_utf8(probe.output().unwrap().stdout).unwrap();
    let mut times: Vec<f64> = times.lines().map(|line| line.trim_end_matches(',').parse().unwrap()).collect();
    times.sort_by(f64::total_cmp);
    assert_eq!(times, [0.0, 0.1, 0.35, 0.39, 0.91]);
}

#[test]
fn an_interrupted_animation_resumes() {
    let folder = temp_dir::TempDir::new().unwrap();
    let (gif, path, whole) =
        (folder.path().join("in.gif"), folder.path().join("out.webp"), folder.path().join("whole.webp"));
    write_gif(&gif, true);
    let (input, frames) = read_all(&gif);
    write_all(&whole, &input, &frames);
    // A run that was killed before its first frame left this.
    fs::create_dir(folder.path().join("out.webp.partial")).unwrap();
    let mut sink = create(&path, &input).unwrap();
    frames[..3].iter().for_each(|frame| sink.write(frame).unwrap());
    assert_eq!(sink.sync().unwrap(), 3);
    sink.keep_unfinished();
    drop(sink);
    let mut sink = resume_with(&path, &input, &Options::default(), 3).unwrap();
    frames[3..].iter().for_each(|frame| sink.write(frame).unwrap());
    sink.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), fs::read(&whole).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "no temporary files are left");
}

/// A part by time keeps the delays of its frames.
#[test]
fn a_part_of_an_animation_keeps_its_delays() {
    let folder = temp_dir::TempDir::new().unwrap();
    let (gif, part) = (folder.path().join("in.gif"), folder.path().join("part.apng"));
    write_gif(&gif, false);
    let time = |milliseconds| Some(std::time::Duration::from_millis(milliseconds));
    let clip = reseed_media::video::Clip { start: time(100), end: time(390), ..Default::default() };
    let mut source = reseed_media::open_clip(&gif, clip).unwrap();
    let frames: Vec<Frame> = std::iter::from_fn(|| source.next().unwrap()).collect();
    write_all(&part, source.info(), &frames);
    assert_eq!(decoded(&part).0, DELAYS[1..3]);
}

/// Other sources have a constant rate: 24 frames per second are 42, 41 and 42 milliseconds.
#[test]
fn frames_at_a_constant_rate_have_delays_that_add_up() {
    let folder = temp_dir::TempDir::new().unwrap();
    let path = folder.path().join("a.webp");
    let mut clip = reseed_media::sample();
    let frames: Vec<Frame> = std::iter::from_fn(|| clip.next().unwrap()).collect();
    write_all(&path, clip.info(), &frames);
    let delays = decoded(&path).0;
    assert_eq!((delays.len(), delays.iter().sum::<u32>()), (9, 375));
}

#[test]
fn a_truncated_animation_is_read_as_far_as_it_goes() {
    let folder = temp_dir::TempDir::new().unwrap();
    let gif = folder.path().join("in.gif");
    write_gif(&gif, false);
    let file = fs::read(&gif).unwrap();
    fs::write(&gif, &file[..file.len() * 3 / 4]).unwrap();
    let mut source = open(&gif).unwrap();
    let frames = std::iter::from_fn(|| source.next().unwrap()).count();
    assert!((1..5).contains(&frames), "{frames}");
    let problems = source.problems();
    assert!(problems.len() == 1 && problems[0].to_string().contains("damaged after frame"), "{problems:?}");
}

#[test]
fn a_gif_with_one_frame_is_an_image() {
    let folder = temp_dir::TempDir::new().unwrap();
    let path = folder.path().join("a.gif");
    drawing(1, false).save(&path).unwrap();
    let (info, frames) = read_all(&path);
    assert_eq!((info.kind, frames.len()), (Kind::Image, 1));
    assert!(matches!(&frames[0].samples, Samples::U8(samples) if samples.len() == 3 * SIZE.pixels()));
}
