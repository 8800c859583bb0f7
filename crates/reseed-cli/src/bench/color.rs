//! `reseed bench color`: the work on finished frames, which is resizing, low band, colour correction and conversion.

use std::sync::Arc;
use std::time::Instant;

use rayon::ThreadPoolBuilder;
use reseed::internals::low_band::LowBand;
use reseed::internals::ops::{FrameOps, FrameValues, Shape, Tensor};
use reseed::internals::{ComputeOptions, DeviceHandle, Finisher, InputFrame, View, frame_spec, open};
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
    let (color, strength) = (Some(Color::from(args.color)), Some(args.strength));
    let settings = Settings { color, strength, batching, ..Settings::default() };
    settings.check()?;
    let inputs: Vec<Frame> = (0..batching.size).map(|i| frame(from, i)).collect();
    let device = Device::open(args, &settings, &view)?;
    let restored: Vec<Vec<f32>> = inputs.iter().map(|input| restored(device.input(&view, input))).collect();
    let decoded = device.upload(&view, &restored)?;
    let inputs: Vec<Arc<InputFrame>> = inputs.into_iter().map(|input| Arc::new(input.into())).collect();
    let mut finisher = Finisher::new(&settings, &view, Depth::Eight).on(device.frames.as_deref(), false);
    let mut times = Vec::new();
    // The first run allocates memory and does not count.
    for _ in 0..=args.repeat {
        let inputs = inputs.clone();
        // Its memory must not be freed while the time is taken.
        let host = if decoded.is_some() { Vec::new() } else { restored.clone() };
        let mut done = Vec::new();
        let start = Instant::now();
        pool.install(|| -> Result<()> {
            let frames = match &decoded {
                Some(decoded) => device.keep(decoded)?,
                None => host.into_iter().map(FrameValues::Host).collect(),
            };
            done = finisher.run(frames, inputs)?;
            Ok(())
        })?;
        times.push(start.elapsed().as_secs_f64());
        // As in a job, whose writer returns the memory of frames.
        done.into_iter().for_each(|frame| view.sample_pool().recycle(frame.samples));
    }
    let name = device.name;
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

/// The device of the work, and what it does there; none for the CPU.
struct Device {
    name: String,
    handle: DeviceHandle,
    frames: Option<Box<dyn FrameOps>>,
}

impl Device {
    fn open(args: &ColorBenchArgs, settings: &Settings, view: &View) -> Result<Device> {
        let handle = open(&ComputeOptions { device: args.device.clone(), ..ComputeOptions::default() })?;
        let Some(gpu) = &handle.gpu else { return Ok(Device { name: "cpu".into(), handle, frames: None }) };
        let spec = frame_spec(settings, LowBand::fixed(1.0 - args.strength), view, (Depth::Eight, false));
        let too_large = || Failure::Usage("the frames take too much GPU memory; use fewer".into());
        let frames = spec.and_then(|spec| gpu.frames(gpu.fitted(spec)?)).ok_or_else(too_large)?;
        Ok(Device { name: handle.ops.name(), frames: Some(frames), handle })
    }

    /// An input frame at the size of the restored one: padded, or cropped as the host finishes it.
    fn input(&self, view: &View, frame: &Frame) -> Vec<f32> {
        if self.frames.is_none() {
            return view.cropped(frame);
        }
        let mut padded = vec![0.0; 3 * view.geometry().padded.pixels()];
        view.padded_into(frame, &mut padded);
        padded
    }

    /// Padded frames as the decoder leaves them; `None` on the CPU.
    fn upload(&self, view: &View, frames: &[Vec<f32>]) -> Result<Option<Tensor>> {
        let Size { h, w } = view.geometry().padded;
        let shape = Shape::from([frames.len(), h, w, 3]);
        if self.frames.is_none() {
            return Ok(None);
        }
        let uploaded = self.handle.ops.upload(shape, &frames.concat());
        uploaded.map(Some).map_err(|error| Failure::Failed(error.to_string()))
    }

    /// Frames as a job has them when they are finished: on the device.
    fn keep(&self, decoded: &Tensor) -> Result<Vec<FrameValues>> {
        let failed = |error: reseed::internals::ops::Error| Failure::Failed(error.to_string());
        let pending = self.frames.as_ref().map_or(Ok(None), |frames| frames.keep(decoded)).map_err(failed)?;
        let no_room = || Failure::Usage("the frames take too much GPU memory; use fewer".into());
        let mut kept = Vec::new();
        pending.ok_or_else(no_room)?.wait(&mut kept).map_err(failed)?;
        Ok(kept)
    }
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
fn restored(frame: Vec<f32>) -> Vec<f32> {
    let grain = |i: usize| (i.wrapping_mul(2_246_822_519) >> 11 & 255) as f32 / 2560.0;
    frame.iter().enumerate().map(|(i, value)| 0.9 * value + grain(i)).collect()
}
