//! Files and folders are written and read back.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use reseed_media::{Depth, Frame, ImageTags, Info, Kind, Rate, Samples, Size, create, metrics, open, sample, y4m};

const SIZE: Size = Size { h: 24, w: 34 };

fn info(kind: Kind, depth: Depth) -> Info {
    Info {
        size: SIZE,
        frames: None,
        rate: Rate { num: 24, den: 1 },
        depth,
        alpha: false,
        kind,
        names: Vec::new(),
        tags: ImageTags::default(),
    }
}

/// A smooth frame, which lossy formats change little.
fn gradient(depth: Depth) -> Frame {
    let value = |i: usize| {
        let (pixel, channel) = (i / 3, i % 3);
        let (x, y) = ((pixel % SIZE.w) as f32 / SIZE.w as f32, (pixel / SIZE.w) as f32 / SIZE.h as f32);
        [x, y, (x + y) / 2.0][channel]
    };
    let unit: Vec<f32> = (0..3 * SIZE.pixels()).map(value).collect();
    Frame::from_unit(SIZE, &unit, depth)
}

fn write_all(path: &Path, info: &Info, frames: &[Frame]) {
    let mut sink = create(path, info).unwrap();
    frames.iter().for_each(|frame| sink.write(frame).unwrap());
    sink.finish().unwrap();
}

fn read_all(path: &Path) -> (Info, Vec<Frame>) {
    let mut source = open(path).unwrap();
    let frames = std::iter::from_fn(|| source.next().unwrap()).collect();
    (source.info().clone(), frames)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn lossless_images_are_read_back_unchanged() {
    let folder = temp_dir::TempDir::new().unwrap();
    for (name, depth) in [
        ("8.png", Depth::Eight),
        ("16.png", Depth::Sixteen),
        ("8.tiff", Depth::Eight),
        ("16.TIF", Depth::Sixteen),
        ("8.webp", Depth::Eight),
    ] {
        let path = folder.path().join(name);
        let frame = gradient(depth);
        write_all(&path, &info(Kind::Image, depth), std::slice::from_ref(&frame));
        let (read, frames) = read_all(&path);
        assert_eq!((read.frames, read.depth, read.kind, read.size), (Some(1), depth, Kind::Image, SIZE), "{name}");
        assert_eq!(frames, [frame], "{name}");
    }
}

#[test]
fn alpha_is_read_back_if_the_format_stores_it() {
    let folder = temp_dir::TempDir::new().unwrap();
    let ramp: Vec<f32> = (0..SIZE.pixels()).map(|i| i as f32 / SIZE.pixels() as f32).collect();
    for (name, depth, kept) in [
        ("8.png", Depth::Eight, true),
        ("16.png", Depth::Sixteen, true),
        ("8.webp", Depth::Eight, true),
        ("16.tiff", Depth::Sixteen, true),
        ("8.jpg", Depth::Eight, false),
    ] {
        let path = folder.path().join(name);
        let frame = Frame { alpha: Some(Samples::from_unit(&ramp, depth)), ..gradient(depth) };
        write_all(&path, &Info { alpha: true, ..info(Kind::Image, depth) }, std::slice::from_ref(&frame));
        let (read, frames) = read_all(&path);
        assert_eq!(read.alpha, kept, "{name}");
        assert_eq!(frames[0].alpha, frame.alpha.filter(|_| kept), "{name}");
        assert!(!kept || frames[0].samples == frame.samples, "{name}");
    }
}

#[test]
fn a_folder_has_alpha_if_one_of_its_images_has() {
    let folder = temp_dir::TempDir::new().unwrap();
    let opaque = gradient(Depth::Eight);
    let clear = Frame { alpha: Some(Samples::U8(vec![7; SIZE.pixels()])), ..opaque.clone() };
    write_all(folder.path().join("a").as_path(), &info(Kind::Folder, Depth::Eight), &[opaque.clone(), clear.clone()]);
    let (read, frames) = read_all(&folder.path().join("a"));
    assert!(read.alpha);
    assert_eq!(frames, [opaque, clear]);
}

#[test]
fn formats_of_eight_bits_store_deep_frames_with_small_loss() {
    let folder = temp_dir::TempDir::new().unwrap();
    for (name, at_least) in [("a.jpg", 35.0), ("a.webp", 50.0)] {
        let path = folder.path().join(name);
        let frame = gradient(Depth::Sixteen);
        write_all(&path, &info(Kind::Image, Depth::Sixteen), std::slice::from_ref(&frame));
        let (read, frames) = read_all(&path);
        assert_eq!(read.depth, Depth::Eight);
        let psnr = metrics::psnr(&frame, &frames[0]);
        assert!(psnr > at_least, "{name}: {psnr} dB");
    }
}

#[test]
fn the_content_determines_the_format_not_the_extension() {
    let folder = temp_dir::TempDir::new().unwrap();
    let (png, jpg) = (folder.path().join("a.png"), folder.path().join("a.jpg"));
    write_all(&png, &info(Kind::Image, Depth::Eight), &[gradient(Depth::Eight)]);
    fs::rename(&png, &jpg).unwrap();
    assert_eq!(read_all(&jpg).1, [gradient(Depth::Eight)]);
}

#[test]
fn colours_under_alpha_are_kept_and_grey_is_expanded() {
    let folder = temp_dir::TempDir::new().unwrap();
    let rgba = folder.path().join("rgba.png");
    image::RgbaImage::from_pixel(2, 1, image::Rgba([10, 20, 30, 0])).save(&rgba).unwrap();
    assert_eq!(read_all(&rgba).1[0].samples, Samples::U8(vec![10, 20, 30, 10, 20, 30]));

    let grey = folder.path().join("grey.png");
    image::ImageBuffer::from_pixel(1, 1, image::Luma([40_000u16])).save(&grey).unwrap();
    assert_eq!(read_all(&grey).1[0].samples, Samples::U16(vec![40_000; 3]));
}

/// The size in the headers must be rotated like the pixels.
#[test]
fn the_orientation_tag_is_applied() {
    let folder = temp_dir::TempDir::new().unwrap();
    let path = folder.path().join("a.jpg");
    write_all(&path, &info(Kind::Image, Depth::Eight), &[gradient(Depth::Eight)]);
    let upright = read_all(&path).1.remove(0);
    let exif = b"\xff\xe1\x00\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let plain = fs::read(&path).unwrap();
    fs::write(&path, [&plain[..2], exif, &plain[2..]].concat()).unwrap();

    let rotated = Size { h: SIZE.w, w: SIZE.h };
    let frame = read_all(&path).1.remove(0);
    assert_eq!(frame.size, rotated);
    assert_eq!(open(folder.path()).unwrap().info().size, rotated);
    let (upright, frame) = (upright.to_unit(), frame.to_unit());
    assert_eq!(frame[..3], upright[3 * SIZE.w * (SIZE.h - 1)..][..3], "the lower left corner becomes the upper left");
}

#[test]
fn colour_profiles_are_copied_to_the_output() {
    let folder = temp_dir::TempDir::new().unwrap();
    let mut profile = vec![7u8; 64];
    profile[16..20].copy_from_slice(b"RGB ");
    for name in ["a.png", "a.jpg", "a.webp", "a.tiff"] {
        let path = folder.path().join(name);
        let tags = ImageTags { icc: Some(profile.clone()), ..ImageTags::default() };
        let info = Info { tags, ..info(Kind::Image, Depth::Eight) };
        write_all(&path, &info, &[gradient(Depth::Eight)]);
        assert_eq!(read_all(&path).0.tags.icc.as_ref(), Some(&profile), "{name}");
    }
}

#[test]
fn a_folder_keeps_its_names_and_natural_order() {
    let folder = temp_dir::TempDir::new().unwrap();
    let input = folder.path().join("in");
    fs::create_dir(&input).unwrap();
    fs::write(input.join("notes.txt"), "ignored").unwrap();
    let shades = [("f2.png", 0.2), ("f10.TIFF", 0.4), ("f100.webp", 0.6)];
    for (name, shade) in shades {
        let frame = Frame::from_unit(SIZE, &vec![shade; 3 * SIZE.pixels()], Depth::Eight);
        write_all(&input.join(name), &info(Kind::Image, Depth::Eight), &[frame]);
    }
    let (read, frames) = read_all(&input);
    assert_eq!((read.frames, &read.kind), (Some(3), &Kind::Folder));
    for (frame, (name, shade)) in frames.iter().zip(shades) {
        assert!((frame.to_unit()[0] - shade).abs() < 0.01, "{name}");
    }

    let output = folder.path().join("out");
    write_all(&output, &read, &frames);
    assert_eq!(names(&output), ["f10.TIFF", "f100.webp", "f2.png"]);
    assert_eq!(read_all(&output).1, frames);
    assert_eq!(names(folder.path()), ["in", "out"]);
}

#[test]
fn a_folder_without_names_is_numbered_and_can_replace_an_empty_folder() {
    let folder = temp_dir::TempDir::new().unwrap();
    let output = folder.path().join("out");
    fs::create_dir(&output).unwrap();
    let frames = [gradient(Depth::Eight), gradient(Depth::Eight)];
    write_all(&output, &info(Kind::Folder, Depth::Eight), &frames);
    assert_eq!(names(&output), ["000001.png", "000002.png"]);
}

#[test]
fn a_folder_has_the_depth_of_its_deepest_image() {
    let folder = temp_dir::TempDir::new().unwrap();
    for (name, depth) in [("1.png", Depth::Eight), ("2.png", Depth::Sixteen)] {
        write_all(&folder.path().join(name), &info(Kind::Image, depth), &[gradient(depth)]);
    }
    assert_eq!(open(folder.path()).unwrap().info().depth, Depth::Sixteen);
}

#[test]
fn an_output_file_is_replaced_only_when_finished() {
    let folder = temp_dir::TempDir::new().unwrap();
    for (name, kind) in
        [("a.png", Kind::Image), ("a.y4m", Kind::Y4m(y4m::Format::for_depth(Depth::Eight))), ("plain.y4m", Kind::Image)]
    {
        let path = folder.path().join(name);
        fs::write(&path, "old content").unwrap();
        let mut sink = create(&path, &info(kind, Depth::Eight)).unwrap();
        sink.write(&gradient(Depth::Eight)).unwrap();
        assert_eq!(names(folder.path()), [format!(".{name}.partial"), name.to_owned()]);
        assert_eq!(fs::read(&path).unwrap(), b"old content");
        sink.finish().unwrap();
        assert_eq!(names(folder.path()), [name]);
        assert_eq!(read_all(&path).1.len(), 1);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_sink_dropped_unfinished_removes_its_files() {
    let folder = temp_dir::TempDir::new().unwrap();
    for (name, kind) in [("a.png", Kind::Image), ("a.y4m", Kind::Image), ("a", Kind::Folder)] {
        let mut sink = create(&folder.path().join(name), &info(kind, Depth::Eight)).unwrap();
        sink.write(&gradient(Depth::Eight)).unwrap();
        drop(sink);
        assert!(names(folder.path()).is_empty(), "{name}");
    }
}

#[test]
fn the_sample_has_nine_different_frames() {
    let mut clip = sample();
    assert_eq!((clip.info().size, clip.info().frames), (Size { h: 64, w: 96 }, Some(9)));
    assert_eq!(clip.info().rate, Rate { num: 24, den: 1 });
    let frames: Vec<Frame> = std::iter::from_fn(|| clip.next().unwrap()).collect();
    assert_eq!(frames.len(), 9);
    let (psnr, ssim) = (metrics::psnr(&frames[0], &frames[8]), metrics::ssim(&frames[0], &frames[8]));
    assert!((10.0..40.0).contains(&psnr) && (0.1..0.999).contains(&ssim), "{psnr} dB, {ssim}");
}

#[test]
fn a_clip_written_and_read_again_differs_only_by_rounding() {
    let folder = temp_dir::TempDir::new().unwrap();
    let path = folder.path().join("again.y4m");
    let mut clip = sample();
    let frames: Vec<Frame> = std::iter::from_fn(|| clip.next().unwrap()).collect();
    write_all(&path, clip.info(), &frames);
    let (again, read) = read_all(&path);
    assert_eq!(&again, clip.info());
    for (a, b) in frames.iter().zip(&read) {
        assert!(metrics::psnr(a, b) > 35.0, "{} dB", metrics::psnr(a, b));
    }
}
