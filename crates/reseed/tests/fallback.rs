//! Batches whose values leave the range of the device's type are computed in a wider one, each as a whole, and all
//! others as before.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use reseed::internals::{BatchStore, Checkpoint, Fallback, Lane, Model, RunPlan, Step, Turn, Upscaler, VaeFallback};
use reseed::{Batching, Event, Latent, Observer, Settings, Target, Warning};
use reseed_cpu::CpuOps;
use reseed_media::{Depth, Frame, Size, Source};
use reseed_model::weights::formula::Formula;
use reseed_model::{Config, Vae};
use reseed_ops::{DType, Device};
use reseed_testing::narrow::Narrow;
use reseed_testing::pipeline::job::{self, MemorySource};
use reseed_testing::scarce::Scarce;

const SIZE: Size = Size { h: 18, w: 26 };

/// Brightness and detail change, so that the largest values of batches differ.
fn clip() -> Vec<Frame> {
    let frame = |i: usize| {
        let strength = 0.05 + 0.04 * (i * 7 % 11) as f32;
        let value = |k: usize| {
            let (x, y) = ((k / 3 % SIZE.w + i) as f32, (k / 3 / SIZE.w) as f32);
            0.5 + strength * (0.7 * x + 0.3 * y + (k % 3) as f32).sin()
        };
        Frame::from_unit(SIZE, &(0..3 * SIZE.pixels()).map(value).collect::<Vec<_>>(), Depth::Sixteen)
    };
    (0..31).map(frame).collect()
}

fn weights() -> Formula {
    let config = Config::tiny();
    Formula::new(config.tensors(), config.groups, 1)
}

/// The frames of computed batches.
#[derive(Default)]
struct Store {
    growing: Mutex<Vec<f32>>,
    complete: Mutex<BTreeMap<usize, Vec<f32>>>,
}

impl BatchStore for Store {
    fn put(&self, batch: usize, pixels: &[f32], last: bool) {
        let mut growing = self.growing.lock().unwrap();
        growing.extend(pixels);
        if last {
            let before = self.complete.lock().unwrap().insert(batch, std::mem::take(&mut growing));
            assert!(before.is_none(), "batch {batch} is stored twice");
        }
    }

    fn restart(&self) {
        self.growing.lock().unwrap().clear();
    }

    fn get(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn put_latent(&self, _: Turn, _: usize, _: &[f32]) {}

    fn get_latent(&self, _: Turn, _: usize) -> Option<Vec<f32>> {
        None
    }
}

#[derive(Default)]
struct Warnings(Vec<Warning>);

impl Observer for Warnings {
    fn event(&mut self, event: &Event) {
        if let Event::Warning(warning) = event {
            self.0.push(warning.clone());
        }
    }
}

struct Outcome {
    frames: Vec<Frame>,
    warnings: Vec<Warning>,
    /// The largest value of every download from the narrow devices.
    largest: Vec<f32>,
    stored: BTreeMap<usize, Vec<f32>>,
}

/// Runs the clip on so many lanes with windows of so many batches. Values above `limit` leave the range; then the wide
/// device computes, where there is one.
fn run(limit: f32, wide: Option<&Arc<dyn Device>>, (lanes, window): (usize, usize)) -> Result<Outcome, reseed::Error> {
    let weights = weights();
    let narrow: Vec<Narrow> = (0..lanes).map(|_| Narrow::new(limit)).collect();
    let vaes: Vec<Vae> = narrow.iter().map(|ops| Vae::load(ops, &weights).unwrap()).collect();
    let fallbacks: Vec<_> = narrow.iter().map(|_| wide.map(|ops| VaeFallback::new(ops.clone(), &weights))).collect();
    let step = |condition: &Latent, noise: &Latent| {
        let values = condition.values.iter().zip(&noise.values).map(|(value, noise)| value + 0.05 * noise).collect();
        Ok(Latent { values, ..*condition })
    };
    let lane = |i: usize| Lane {
        ops: &narrow[i],
        encoder_ops: &narrow[i],
        loader: None,
        model: Model { vae: &vaes[i], step: &step as &dyn Step },
        plan: RunPlan { window, ..RunPlan::default() },
        replanner: None,
        fallback: fallbacks[i].as_ref().map(|fallback| fallback as &dyn Fallback),
    };
    let batching = Batching { size: 9, overlap: 2, uniform: false };
    let settings = Settings { target: Target::Scale(1.3), batching, ..Settings::default() };
    let (source, mut warnings, store) = (MemorySource::new(&clip()), Warnings::default(), Store::default());
    let size = settings.output(source.info()).unwrap().size;
    let upscaler = Upscaler::on((0..lanes).map(lane).collect(), settings).storing(Some(&store));
    let (report, frames) = job::run_job(&upscaler, size, source, (Checkpoint::default(), &mut warnings, None));
    report?;
    let largest = narrow.iter().flat_map(|ops| ops.largest.lock().unwrap().clone()).collect();
    let stored = store.complete.lock().unwrap().clone();
    Ok(Outcome { frames, warnings: warnings.0, largest, stored })
}

/// Limits that a part of all downloads exceeds.
fn limits(mut largest: Vec<f32>) -> Vec<f32> {
    largest.sort_by(f32::total_cmp);
    [0, 30, 60, 90].map(|percent| largest[largest.len() * percent / 100]).to_vec()
}

#[test]
fn a_batch_that_begins_again_leaves_no_trace() {
    let want = run(f32::MAX, None, (1, 1)).unwrap();
    assert_eq!((want.frames.len(), want.warnings.len()), (31, 0));
    for (limit, window) in limits(want.largest).into_iter().flat_map(|limit| [(limit, 1), (limit, 3)]) {
        // It computes as the narrow device does, and only with layers that were prefetched.
        let wide: Arc<dyn Device> = Arc::new(Scarce::new());
        let got = run(limit, Some(&wide), (1, window)).unwrap();
        assert!(got.frames == want.frames, "limit {limit}, windows of {window}: other frames");
        assert!(got.stored == want.stored, "limit {limit}, windows of {window}: other frames are stored");
        let [warning] = &got.warnings[..] else { panic!("{:?}", got.warnings) };
        assert!(warning.to_string().ends_with("such batches are computed in f32"), "{warning}");
    }
}

#[test]
fn the_type_of_a_batch_depends_on_its_frames_alone() {
    let narrow = run(f32::MAX, None, (1, 1)).unwrap();
    let wide: Arc<dyn Device> = Arc::new(CpuOps::new(DType::Bf16, Some(2)).unwrap());
    // The encoder and the decoder of a batch each have their own type.
    let limit = limits(narrow.largest)[3];
    let want = run(limit, Some(&wide), (1, 1)).unwrap();
    let as_before = want.stored.iter().filter(|(i, batch)| narrow.stored[i] == **batch).count();
    assert!((1..want.stored.len()).contains(&as_before), "{as_before} of {} batches", want.stored.len());
    for (lanes, window) in [(1, 2), (1, 64), (2, 1), (3, 2)] {
        let got = run(limit, Some(&wide), (lanes, window)).unwrap();
        assert!(got.frames == want.frames, "{lanes} lanes, windows of {window}: other frames");
        assert_eq!(got.warnings.len(), 1, "{:?}", got.warnings);
    }
}

#[test]
fn without_a_wider_type_the_job_fails() {
    let error = run(0.0, None, (1, 1)).err().unwrap();
    assert!(error.is_out_of_range(), "{error}");
}
