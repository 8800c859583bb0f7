//! Frames that a device finishes.
#![allow(clippy::unwrap_used)]

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use reseed::internals::low_band::LowBand;
use reseed::internals::{Checkpoint, Finisher, Model, RunPlan, Upscaler, View, frame_spec};
use reseed::{AlphaRange, Batching, Color, Overlap, Settings, Target};
use reseed_cpu::CpuOps;
use reseed_media::{Depth, Frame, Samples, Size};
use reseed_ops::{
    DType, DeviceFrame, Error, FrameOps, FrameResults, FrameSamples, FrameSlice, FrameValues, PendingFrames, Result,
    Tensor, Transfer,
};
use reseed_testing::pipeline::job::{MemorySource, TinyVae, identity, run_job};

const SIZE: Size = Size { h: 12, w: 20 };

fn clip() -> Vec<Frame> {
    let value = |i: usize, k: usize| (k * 7 + i * 3) as f32 % 50.0 / 50.0;
    let frame = |i: usize| (0..3 * SIZE.pixels()).map(|k| value(i, k)).collect::<Vec<_>>();
    (0..14).map(|i| Frame::from_unit(SIZE, &frame(i), Depth::Eight)).collect()
}

fn settings(color: Color) -> Settings {
    let batching = Batching { size: 5, overlap: 1, uniform: false };
    let (target, color) = (Target::Scale(2.0), Some(color));
    Settings { target, color, batching, detect_shots: false, ..Settings::default() }
}

/// The samples of a frame in host memory.
fn codes<'a>(samples: &FrameSamples<'a>) -> &'a [u8] {
    match samples {
        FrameSamples::Host(codes) => codes,
        FrameSamples::Device(_) => panic!("the clip is in host memory"),
    }
}

/// Paints frame `i` of the clip in code `i`, and fails from a slice on.
#[derive(Default)]
struct Painter {
    /// Frames of each slice.
    slices: Mutex<Vec<usize>>,
    fails_at: Option<usize>,
}

impl FrameOps for Painter {
    fn finish(&self, slice: &FrameSlice, results: &mut FrameResults) -> Result<()> {
        let FrameSlice { frames, inputs, shares, alphas, .. } = *slice;
        let mut slices = self.slices.lock().unwrap();
        assert_eq!([inputs.len(), shares.len(), results.frames.len()], [frames.len(); 3]);
        assert_eq!(alphas.len(), results.alphas.len());
        assert!(inputs.iter().all(|input| codes(input).len() == 3 * SIZE.pixels()));
        if self.fails_at == Some(slices.len()) {
            return Err(Error::Device { device: "test".into(), what: "a launch".into(), code: "unplugged".into() });
        }
        let first: usize = slices.iter().sum();
        results.frames.iter_mut().enumerate().for_each(|(i, result)| result.on_host().fill((first + i) as u8));
        results.alphas.iter_mut().enumerate().for_each(|(i, result)| result.fill(200 + (first + i) as u8));
        slices.push(frames.len());
        Ok(())
    }
}

fn run(color: Color, frames: &[Frame], device: Option<&dyn FrameOps>) -> Vec<Frame> {
    run_with(settings(color), frames, device)
}

fn run_with(settings: Settings, frames: &[Frame], device: Option<&dyn FrameOps>) -> Vec<Frame> {
    let tiny = TinyVae::new();
    let model = Model { vae: &tiny.vae, step: &identity };
    let upscaler = Upscaler::new(&tiny.ops, model, settings, RunPlan::default()).finishing_on(device);
    let size = Size { h: 2 * SIZE.h, w: 2 * SIZE.w };
    let (report, frames) = run_job(&upscaler, size, MemorySource::new(frames), (Checkpoint::default(), &mut (), None));
    report.unwrap();
    frames
}

#[test]
fn a_device_finishes_the_frames_that_each_batch_adds() {
    let painter = Painter::default();
    let frames = run(Color::Lab, &clip(), Some(&painter));
    assert_eq!(*painter.slices.lock().unwrap(), [5, 4, 4, 1]);
    let painted = |(i, frame): (usize, &Frame)| frame.samples == Samples::U8(vec![i as u8; 12 * SIZE.pixels()]);
    assert!(frames.len() == 14 && frames.iter().enumerate().all(painted));
}

#[test]
fn the_host_finishes_what_a_device_that_fails_leaves() {
    let painter = Painter { fails_at: Some(1), ..Painter::default() };
    let (frames, host) = (run(Color::Lab, &clip(), Some(&painter)), run(Color::Lab, &clip(), None));
    assert_eq!(*painter.slices.lock().unwrap(), [5], "a device that failed is not asked again");
    assert!(frames[5..] == host[5..] && frames[..5] != host[..5]);
}

#[test]
fn a_device_finishes_frames_with_alpha_unless_its_range_is_inferred() {
    let alpha = |frame: Frame| Frame { alpha: Some(Samples::U8(vec![255; SIZE.pixels()])), ..frame };
    let clip: Vec<Frame> = clip().into_iter().map(alpha).collect();
    let painter = Painter::default();
    let frames = run(Color::Wavelet, &clip, Some(&painter));
    let alpha = |i: usize| Some(Samples::U8(vec![200 + i as u8; 4 * SIZE.pixels()]));
    assert!(frames.iter().enumerate().all(|(i, frame)| frame.alpha == alpha(i)));

    let geometry = settings(Color::Wavelet).geometry(reseed_media::Source::info(&MemorySource::new(&clip))).unwrap();
    let (view, none) = (View::new(geometry), LowBand::fixed(0.0));
    let spec = |alpha_range| {
        let settings = Settings { alpha_range, ..settings(Color::Wavelet) };
        frame_spec(&settings, none, &view, (Depth::Eight, true))
    };
    assert!(spec(AlphaRange::Fixed).is_some_and(|spec| spec.alpha.is_some()));
    assert!(spec(AlphaRange::Inferred).is_none());
}

/// A device that has memory for some frames, and finishes frames as the host does.
struct Keeper {
    settings: Settings,
    view: View,
    ops: CpuOps,
    /// Frames for which there is memory.
    room: usize,
    alive: Arc<AtomicUsize>,
    most: AtomicUsize,
    fails: bool,
}

struct KeptFrame {
    values: Vec<f32>,
    alive: Arc<AtomicUsize>,
}

impl Drop for KeptFrame {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DeviceFrame for KeptFrame {
    fn blend(&mut self, later: &dyn DeviceFrame, weight: f32) -> Result<()> {
        let later: &dyn Any = later;
        let later = &later.downcast_ref::<KeptFrame>().unwrap().values;
        self.values.iter_mut().zip(later).for_each(|(e, l)| *e = *e * weight + l * (1.0 - weight));
        Ok(())
    }

    fn fetch(&self) -> Result<Vec<f32>> {
        Ok(self.values.clone())
    }
}

impl Keeper {
    fn new(settings: &Settings, room: usize) -> Keeper {
        let geometry = settings.geometry(reseed_media::Source::info(&MemorySource::new(&clip()))).unwrap();
        let (settings, ops) = (settings.clone(), CpuOps::new(DType::F32, Some(1)).unwrap());
        let (alive, most) = (Arc::default(), AtomicUsize::default());
        Keeper { settings, view: View::new(geometry), ops, room, alive, most, fails: false }
    }
}

impl FrameOps for Keeper {
    fn keep(&self, decoded: &Tensor) -> Result<Option<PendingFrames>> {
        let alive = self.alive.load(Ordering::Relaxed) + decoded.thw().t;
        if alive > self.room {
            return Ok(None);
        }
        self.alive.store(alive, Ordering::Relaxed);
        self.most.fetch_max(alive, Ordering::Relaxed);
        let (values, geometry) = (self.ops.download(decoded)?, self.view.geometry());
        let kept = values.chunks_exact(3 * geometry.padded.pixels()).map(|frame| {
            let rows = frame.chunks_exact(3 * geometry.padded.w).take(geometry.output.h);
            let values = rows.flat_map(|row| &row[..3 * geometry.output.w]).copied().collect();
            FrameValues::Device(Box::new(KeptFrame { values, alive: self.alive.clone() }))
        });
        Ok(Some(Box::new(kept.collect::<Vec<_>>())))
    }

    fn finish(&self, slice: &FrameSlice, results: &mut FrameResults) -> Result<()> {
        if self.fails {
            return Err(Error::Device { device: "test".into(), what: "a launch".into(), code: "unplugged".into() });
        }
        let frames = slice.frames.iter().map(|frame| frame.copy().map(FrameValues::Host)).collect::<Result<_>>()?;
        let input = |input: &FrameSamples| {
            let samples = Samples::U8(codes(input).to_vec());
            Arc::new(Frame { size: SIZE, samples, alpha: None }.into())
        };
        let mut host = Finisher::new(&self.settings, &self.view, Depth::Eight);
        let finished = host.run(frames, slice.inputs.iter().map(input).collect()).unwrap();
        for (to, frame) in results.frames.iter_mut().zip(finished) {
            to.on_host().copy_from_slice(frame.samples.as_bytes());
        }
        Ok(())
    }
}

#[test]
fn frames_that_stay_on_a_device_give_the_same_result() {
    let overlaps = [(0, Overlap::Auto), (1, Overlap::Auto), (2, Overlap::Smooth), (4, Overlap::Reference)];
    for (overlap, mode) in overlaps {
        let batching = Batching { overlap, ..settings(Color::Lab).batching };
        let settings = Settings { batching, overlap: mode, ..settings(Color::Lab) };
        let host = run_with(settings.clone(), &clip(), None);
        // With memory for all of them, for some, and for none; and with a device that fails when it has them.
        for (room, fails) in [(100, false), (7, false), (0, false), (100, true)] {
            let keeper = Keeper { fails, ..Keeper::new(&settings, room) };
            assert!(run_with(settings.clone(), &clip(), Some(&keeper)) == host, "{overlap} {mode} {room} {fails}");
            assert_eq!(keeper.alive.load(Ordering::Relaxed), 0, "all frames are released");
            assert!((keeper.most.load(Ordering::Relaxed) > 0) == (room > 0));
        }
    }
}
