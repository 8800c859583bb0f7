//! `reseed bench color`: resizing and colour correction on the CPU.

use std::time::Instant;

use rayon::ThreadPoolBuilder;
use reseed::internals::View;
use reseed::media::{Frame, Samples, Size};
use reseed::{Color, Geometry, Hw, Target};
use serde_json::json;

use crate::args::bench::ColorBenchArgs;
use crate::args::threads;
use crate::failure::{Failure, Result};

pub fn run(args: &ColorBenchArgs) -> Result<()> {
    let pool = ThreadPoolBuilder::new().num_threads(threads(args.threads).unwrap_or(0)).build();
    let pool = pool.map_err(|error| Failure::Failed(format!("threads: {error}")))?;
    let [from, to] = [args.from, args.size].map(|Hw { h, w }| Size { h, w });
    let view = View::new(Geometry::new(from, Target::Exact(to), None)?);
    let frames: Vec<Frame> = (0..args.frames as usize).map(|i| frame(from, i)).collect();
    let (mut resizing, mut correcting) = (Vec::new(), Vec::new());
    for _ in 0..args.repeat {
        let start = Instant::now();
        let style: Vec<Vec<f32>> = pool.install(|| frames.iter().map(|frame| view.cropped(frame)).collect());
        resizing.push(start.elapsed().as_secs_f64());
        let mut content: Vec<Vec<f32>> = style.iter().map(|frame| restored(frame)).collect();
        let start = Instant::now();
        pool.install(|| Color::from(args.color).apply(&mut content, style, to));
        correcting.push(start.elapsed().as_secs_f64());
    }
    let [resize, correct] = [resizing, correcting].map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2] * 1e3 / f64::from(args.frames)
    });
    let threads = pool.current_num_threads();
    match args.json {
        true => say!(
            "{}",
            json!({"event": "bench", "command": "color", "size": to.to_string(), "frames": args.frames,
                   "threads": threads, "resize_ms": resize, "color_ms": correct})
        ),
        false => say!(
            "{} frames {from} to {to}, {threads} threads: resize {resize:.1} ms and colours {correct:.1} ms per frame",
            args.frames
        ),
    }
    Ok(())
}

/// Waves and grain: no two frames and no two rows alike.
pub fn frame(size: Size, number: usize) -> Frame {
    let sample = |i: usize| {
        let (x, y, c) = (i / 3 % size.w, i / 3 / size.w, i % 3);
        let wave = ((x + 7 * number) as f32 / (37.0 + 9.0 * c as f32)).sin() * (y as f32 / 23.0).cos();
        let grain = (i + number).wrapping_mul(2_654_435_761) >> 13 & 15;
        (120.0 + 100.0 * wave) as u8 + grain as u8
    };
    Frame { size, samples: Samples::U8((0..3 * size.pixels()).map(sample).collect()), alpha: None }
}

/// A frame as a network might have made it: other contrast, other grain.
fn restored(frame: &[f32]) -> Vec<f32> {
    let grain = |i: usize| (i.wrapping_mul(2_246_822_519) >> 11 & 255) as f32 / 2560.0;
    frame.iter().enumerate().map(|(i, value)| 0.9 * value + grain(i)).collect()
}
