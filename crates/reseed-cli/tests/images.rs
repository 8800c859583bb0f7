//! Photographs, animations, pages and damaged images through the command line. Files are made with ffmpeg.
#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{Lab, frames, video};
use reseed_media::{Depth, Frame, ImageTags, Info, Kind, Rate, Size};
use serde_json::Value;

const RUN: &str = "--model formula:tiny --scale 2 --color none";

fn lab() -> Lab {
    Lab::new()
}

/// A PNG file of one pixel whose palette has two bytes.
fn broken_palette() -> Vec<u8> {
    let crc = |bytes: &[u8]| {
        let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        !bytes.iter().fold(!0u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
    };
    let chunks: [(&[u8], &[u8]); 4] = [
        (b"IHDR", b"\0\0\0\x01\0\0\0\x01\x08\x03\0\0\0"),
        (b"PLTE", b"\x07\x07"),
        (b"IDAT", b"\x78\x01\x01\x02\0\xfd\xff\0\x01\0\x02\0\x02"),
        (b"IEND", b""),
    ];
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, content) in chunks {
        let checked = [name, content].concat();
        file.extend((content.len() as u32).to_be_bytes());
        file.extend(&checked);
        file.extend(crc(&checked).to_be_bytes());
    }
    file
}

#[test]
fn a_decoder_that_panics_is_one_line() {
    let lab = lab();
    fs::write(lab.path("in.png"), broken_palette()).unwrap();
    let outcome = lab.run(&format!("image in.png out.png {RUN}"));
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("in.png") && outcome.stderr.contains("PNG"), "{}", outcome.stderr);
    assert_eq!(lab.names(), ["in.png"]);
}

#[test]
fn photographs_of_different_sizes_are_jobs_of_their_own() {
    let lab = lab();
    fs::create_dir(lab.path("in")).unwrap();
    for (name, size) in [("1.png", "16x18"), ("2.jpg", "24x16"), ("3.bmp", "18x16")] {
        video::make(&lab.path("in"), &format!("-f lavfi -i testsrc2=s={size} -frames:v 1 -update 1"), name);
    }
    let outcome = lab.succeed(&format!("upscale in out {RUN}"));
    let size = |name: &str| frames(&lab.path(name)).0.size.to_string();
    assert_eq!(["out/1.png", "out/2.jpg", "out/3.png"].map(size), ["32x36", "48x32", "36x32"], "{}", outcome.stderr);
}

#[test]
fn a_folder_of_images_becomes_a_video_at_its_rate() {
    let lab = lab();
    lab.write_frames("in", Size { h: 16, w: 16 }, 3);
    lab.succeed(&format!("upscale in out.mkv --fps 12 --codec ffv1 {RUN}"));
    let facts = video::probe(&lab.path(""), "out.mkv");
    assert_eq!(video::streams(&facts, "video")[0]["r_frame_rate"], Value::from("12/1"));
    assert_eq!(video::times(&lab.path(""), "out.mkv"), [0, 83_000, 167_000]);
    let outcome = lab.run(&format!("upscale out.mkv again.mkv --fps 12 {RUN}"));
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
}

#[test]
fn an_animation_keeps_its_delays() {
    let lab = lab();
    video::make(&lab.path(""), "-f lavfi -i testsrc2=s=16x16:r=10 -frames:v 4", "in.gif");
    lab.succeed(&format!("upscale in.gif out.webp {RUN}"));
    let ((before, _), (after, again)) = (frames(&lab.path("in.gif")), frames(&lab.path("out.webp")));
    assert!(matches!(after.kind, Kind::Animation(_)));
    assert_eq!((after.kind, after.size, again.len()), (before.kind, Size { h: 32, w: 32 }, 4));
    assert_eq!(lab.names(), ["in.gif", "out.webp"]);
}

#[test]
fn a_truncated_photograph_is_restored_with_a_warning() {
    let lab = lab();
    video::make(&lab.path(""), "-f lavfi -i nullsrc=s=64x64,geq=random(1)*255:128:128 -frames:v 1 -update 1", "in.jpg");
    let file = fs::read(lab.path("in.jpg")).unwrap();
    fs::write(lab.path("in.jpg"), &file[..file.len() / 2]).unwrap();
    let outcome = lab.succeed(&format!("image in.jpg out.png {RUN}"));
    assert!(outcome.stderr.contains("in.jpg: damaged image"), "{}", outcome.stderr);
    assert_eq!(frames(&lab.path("out.png")).0.size, Size { h: 128, w: 128 });

    // The same result, and an exit code for scripts.
    let strict = lab.run(&format!("image in.jpg strict.png --strict --json {RUN}"));
    assert_eq!(strict.code, Some(3), "{}", strict.stderr);
    assert_eq!(frames(&lab.path("strict.png")).1, frames(&lab.path("out.png")).1);
    let events = strict.events();
    let of_kind = |kind: &str| events.iter().find(|event| event["event"] == kind).unwrap();
    assert_eq!(of_kind("warning")["kind"], "damaged_input");
    assert_eq!((&of_kind("error")["kind"], &of_kind("error")["exit_code"]), (&"input".into(), &3.into()));
    assert_eq!(of_kind("done")["frames"], 1);

    // In a folder the others are restored too, and the exit code is the same.
    fs::create_dir(lab.path("album")).unwrap();
    fs::rename(lab.path("in.jpg"), lab.path("album/a.jpg")).unwrap();
    lab.write_frames("album/b.png", Size { h: 16, w: 16 }, 1);
    let folder = lab.run(&format!("upscale album restored --strict {RUN}"));
    assert_eq!(folder.code, Some(3), "{}", folder.stderr);
    assert!(folder.stderr.ends_with("reseed: 1 of 2 files are damaged; see above\n"), "{}", folder.stderr);
    assert!(lab.path("restored/a.jpg").exists() && lab.path("restored/b.png").exists());
}

#[test]
fn pages_and_grey_are_kept() {
    let lab = lab();
    let size = Size { h: 16, w: 16 };
    let tags = ImageTags { grey: true, ..ImageTags::default() };
    let (rate, depth, kind, names) = (Rate::default(), Depth::Eight, Kind::Pages, Vec::new());
    let info = Info { size, frames: Some(2), rate, depth, alpha: false, kind, names, tags };
    let mut sink = reseed_media::create(&lab.path("in.tiff"), &info).unwrap();
    for shade in [0.2, 0.7] {
        sink.write(&Frame::from_unit(size, &vec![shade; 3 * size.pixels()], depth)).unwrap();
    }
    sink.finish().unwrap();
    lab.succeed(&format!("upscale in.tiff out.tiff {RUN}"));
    let (info, pages) = frames(&lab.path("out.tiff"));
    assert_eq!((info.kind, info.size, pages.len()), (Kind::Pages, Size { h: 32, w: 32 }, 2));
    assert!(info.tags.grey);
}
