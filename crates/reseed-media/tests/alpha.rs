//! Videos with alpha are read and written.
#![cfg(feature = "ffmpeg")]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use reseed_media::video::Options;
use reseed_media::{Frame, Info, Samples, create_with, open};

fn read(path: &Path) -> (Info, Vec<Frame>) {
    let mut source = open(path).unwrap();
    let frames = std::iter::from_fn(|| source.next().unwrap()).collect();
    (source.info().clone(), frames)
}

/// Writes a video of three frames whose alpha grows from left to right.
fn make(path: &Path, format: &str, codec: &str) {
    let gradient = "format=rgba,geq=r='r(X,Y)':g='g(X,Y)':b='b(X,Y)':a='8*X'";
    let source = ["-v", "error", "-f", "lavfi", "-i", "testsrc2=size=32x16:rate=25:duration=0.12", "-vf", gradient];
    let made = Command::new("ffmpeg")
        .args(source)
        .args(["-pix_fmt", format, "-c:v"])
        .args(codec.split(' '))
        .arg(path)
        .status();
    assert!(made.expect("this test needs ffmpeg").success());
}

fn eight_bit(alpha: &Samples) -> Vec<u8> {
    match alpha {
        Samples::U8(codes) => codes.clone(),
        Samples::U16(codes) => codes.iter().map(|code| (f32::from(*code) / 257.0).round() as u8).collect(),
        Samples::F32(_) => panic!("files have integer codes"),
    }
}

#[test]
fn alpha_is_read_and_written() {
    let folder = temp_dir::TempDir::new().unwrap();
    let gradient: Vec<u8> = (0..16).flat_map(|_| (0..32).map(|x| 8 * x)).collect();
    for (format, codec, name) in [
        ("yuva420p", "ffv1", "a.mkv"),
        ("yuva444p10le", "ffv1", "b.mkv"),
        ("bgra", "ffv1", "c.mkv"),
        ("rgba", "png", "d.mov"),
        ("yuva444p10le", "prores_ks", "e.mov"),
        ("yuva420p", "libvpx-vp9 -lossless 1", "f.webm"),
    ] {
        let input = folder.path().join(name);
        make(&input, format, codec);
        let (info, frames) = read(&input);
        assert!(info.alpha, "{name}");
        // ffmpeg rounds alpha when it repacks RGB, once for each file that is read.
        let near = |frame: &Frame, far| {
            eight_bit(frame.alpha.as_ref().unwrap()).iter().zip(&gradient).all(|(a, b)| a.abs_diff(*b) <= far)
        };
        assert!(frames.len() == 3 && frames.iter().all(|frame| near(frame, 1)), "{name}");
        for (codec, extension) in [("ffv1", "out.mkv"), ("prores", "out.mov")] {
            let output = folder.path().join(format!("{name}.{extension}"));
            let options = Options { codec: Some(codec.parse().unwrap()), ..Options::default() };
            let mut sink = create_with(&output, &info, &options).unwrap();
            frames.iter().for_each(|frame| sink.write(frame).unwrap());
            sink.finish().unwrap();
            let (written, again) = read(&output);
            assert!(written.alpha && again.len() == 3, "{name} {codec}");
            assert!(again.iter().all(|frame| near(frame, 2)), "{name} {codec}");
            if format.starts_with("yuva") && codec == "ffv1" {
                assert!(frames.iter().zip(&again).all(|(a, b)| a.alpha == b.alpha), "{name}");
            }
        }
    }
}
