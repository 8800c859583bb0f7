//! Frames that a device finishes.
#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use reseed::internals::{Checkpoint, Model, RunPlan, Upscaler};
use reseed::{Batching, Color, Settings, Target};
use reseed_media::{Depth, Frame, Samples, Size};
use reseed_ops::{Error, FrameOps, Pixels, Result};
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

/// Paints frame `i` of the clip in code `i`, and fails from a slice on.
#[derive(Default)]
struct Painter {
    /// Frames of each slice.
    slices: Mutex<Vec<usize>>,
    fails_at: Option<usize>,
}

impl FrameOps for Painter {
    fn finish(&self, frames: &[Vec<f32>], inputs: &[&[u8]], strengths: &[f32], results: &mut [Pixels]) -> Result<()> {
        let mut slices = self.slices.lock().unwrap();
        assert_eq!([inputs.len(), strengths.len(), results.len()], [frames.len(); 3]);
        assert!(inputs.iter().all(|codes| codes.len() == 3 * SIZE.pixels()));
        if self.fails_at == Some(slices.len()) {
            return Err(Error::Device { device: "test".into(), what: "a launch".into(), code: "unplugged".into() });
        }
        let first: usize = slices.iter().sum();
        for (i, (frame, result)) in frames.iter().zip(results).enumerate() {
            *result = Pixels::U8(vec![(first + i) as u8; frame.len()]);
        }
        slices.push(frames.len());
        Ok(())
    }
}

fn run(color: Color, frames: &[Frame], device: Option<&dyn FrameOps>) -> Vec<Frame> {
    let (tiny, settings) = (TinyVae::new(), settings(color));
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
fn the_host_finishes_frames_with_alpha() {
    let alpha = |frame: Frame| Frame { alpha: Some(Samples::U8(vec![255; SIZE.pixels()])), ..frame };
    let clip: Vec<Frame> = clip().into_iter().map(alpha).collect();
    let painter = Painter::default();
    assert!(run(Color::Wavelet, &clip, Some(&painter)) == run(Color::Wavelet, &clip, None));
    assert!(painter.slices.lock().unwrap().is_empty());
}
