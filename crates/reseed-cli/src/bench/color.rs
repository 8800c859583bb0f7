//! `reseed bench color`: the work on finished frames, which is resizing, low band, colour correction and conversion.

use std::sync::Arc;
use std::time::Instant;

use rayon::ThreadPoolBuilder;
use reseed::internals::low_band::Strength;
use reseed::internals::ops::{FrameOps, Pixels};
use reseed::internals::{ComputeOptions, Finisher, View, frame_spec, open};
use reseed::media::{Depth, Frame, Samples, Size};
use reseed::{Batching, Color, Geometry, Hw, Settings, Target};
use serde_json::json;

use crate::failure::{Failure, Result};
use reseed_args::bench::ColorBenchArgs;
use reseed_args::threads;

pub fn run(args: &ColorBenchArgs) -> Result<()> {
    let pool = ThreadPoolBuilder::new().num_threads(threads(args.threads).unwrap_or(0)).build();
    let pool = pool.map_err(|error| Failure::Failed(format!("threads: {error}")))?;
    let [from, to] = [args.from, args.size].map(|Hw { h, w }| Size { h, w });
    let view = View::new(Geometry::new(from, Target::Exact(to), None)?);
    let batching = Batching { size: args.frames as usize, ..Batching::default() };
    let (color, low_band) = (Some(Color::from(args.color)), Some(args.low_band));
    let settings = Settings { color, low_band, batching, ..Settings::default() };
    settings.check()?;
    let inputs: Vec<Arc<Frame>> = (0..batching.size).map(|i| Arc::new(frame(from, i))).collect();
    let content: Vec<Vec<f32>> = inputs.iter().map(|input| restored(&view.cropped(input))).collect();
    let (name, device) = device(args, &settings, &view)?;
    let (mut times, mut results) = (Vec::new(), vec![Pixels::default(); batching.size]);
    // The first run allocates memory and does not count.
    for _ in 0..=args.repeat {
        let (frames, inputs) = (content.clone(), inputs.clone());
        let start = Instant::now();
        pool.install(|| match &device {
            Some(device) => on_device(&**device, (&frames, args.low_band), &inputs, &mut results),
            None => {
                Finisher::new(&settings, &view, Depth::Eight).run(frames, inputs);
                Ok(())
            }
        })?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.remove(0);
    times.sort_by(f64::total_cmp);
    let frame_ms = times[times.len() / 2] * 1e3 / f64::from(args.frames);
    let (threads, frames) = (pool.current_num_threads(), args.frames);
    match args.json {
        true => say!(
            "{}",
            json!({"event": "bench", "command": "color", "device": name, "size": to.to_string(), "frames": frames,
                   "threads": threads, "frame_ms": frame_ms})
        ),
        false => {
            let color = Color::from(args.color);
            say!("{frames} frames {from} to {to}, {color}, {name}, {threads} threads: {frame_ms:.2} ms per frame")
        }
    }
    Ok(())
}

/// The device by its name; none for the CPU.
fn device(args: &ColorBenchArgs, settings: &Settings, view: &View) -> Result<(String, Option<Box<dyn FrameOps>>)> {
    let opened = open(&ComputeOptions { device: args.device.clone(), ..ComputeOptions::default() })?;
    let Some(gpu) = opened.gpu else { return Ok(("cpu".into(), None)) };
    let nothing = || Failure::Usage("no colour correction and no low band: nothing to time".into());
    let spec = frame_spec(settings, Strength::Fixed(args.low_band), view, (Depth::Eight, false)).ok_or_else(nothing)?;
    let too_large = || Failure::Usage("the frames take too much GPU memory; use fewer".into());
    Ok((opened.ops.name(), Some(gpu.frames(spec).ok_or_else(too_large)?)))
}

fn on_device(
    device: &dyn FrameOps,
    (frames, low_band): (&[Vec<f32>], f32),
    inputs: &[Arc<Frame>],
    results: &mut [Pixels],
) -> Result<()> {
    let codes: Vec<&[u8]> = inputs.iter().map(|input| input.samples.as_bytes()).collect();
    let strengths = vec![low_band; frames.len()];
    device.finish(frames, &codes, &strengths, results).map_err(|error| Failure::Failed(error.to_string()))
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
