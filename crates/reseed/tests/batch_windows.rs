//! Windows of batches: networks that are prefetched one after the other give the same frames as resident networks, also
//! when the device runs out of memory.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use reseed::internals::{
    BatchStore, Model, NetworkResidency, Networks, Replan, Replanner, RunPlan, Turn, Upscaler, VaePlan,
};
use reseed::{Batching, Settings, Target};
use reseed_media::{Depth, Frame, Size, Source};
use reseed_model::dit::{B3, Config as DitConfig};
use reseed_model::weights::formula::{Formula, uniform};
use reseed_model::{Config, TextEmbedding};
use reseed_ops::Shape;
use reseed_testing::pipeline::job;
use reseed_testing::pipeline::job::MemorySource;
use reseed_testing::scarce::Scarce;

const SIZE: Size = Size { h: 18, w: 26 };
const LAYERS: usize = 4;

/// Two shots of 12 and 9 frames.
fn clip() -> Vec<Frame> {
    let frame = |i: usize| {
        let shot = usize::from(i >= 12);
        let value = |k: usize| {
            let (x, y) = ((k / 3 % SIZE.w + i) as f32, (k / 3 / SIZE.w) as f32);
            [0.2, 0.75, 0.45][(shot + k % 3) % 3] + 0.15 * (0.2 * x + (0.1 + 0.1 * shot as f32) * y).sin()
        };
        Frame::from_unit(SIZE, &(0..3 * SIZE.pixels()).map(value).collect::<Vec<_>>(), Depth::Eight)
    };
    (0..21).map(frame).collect()
}

fn networks(ops: &Scarce, residency: NetworkResidency) -> Networks {
    let (vae, dit) = (Config::tiny(), DitConfig::tiny(B3, LAYERS));
    let text = |width: usize| {
        let values = uniform("text", 3 * width, 1).into_iter().map(|v| v as f32).collect();
        Ok(TextEmbedding { shape: Shape::from([3, width]), values })
    };
    let vae = Formula::new(vae.tensors(), vae.groups, 1);
    Networks::load(([ops; 2], &vae), (ops, &Formula::plain(dit.tensors(), 1)), residency, text).unwrap()
}

fn plan(window: usize, layers: usize) -> RunPlan {
    RunPlan { window, layers, ..RunPlan::default() }
}

fn run(
    ops: &Scarce,
    networks: &Networks,
    plan: RunPlan,
    replanner: Option<&dyn Replanner>,
) -> Result<Vec<Frame>, String> {
    run_with_store(ops, networks, plan, (replanner, None))
}

fn run_with_store(
    ops: &Scarce,
    networks: &Networks,
    plan: RunPlan,
    (replanner, keep): (Option<&dyn Replanner>, Option<&dyn BatchStore>),
) -> Result<Vec<Frame>, String> {
    let mut source = MemorySource::new(&clip());
    let batching = Batching { size: 9, overlap: 2, uniform: false };
    let settings = Settings { target: Target::Scale(1.3), batching, ..Settings::default() };
    let (memory_sink, finished) = job::memory_sink(&source, settings.output(source.info()).unwrap().size);
    let step = networks.transformer(ops);
    let upscaler = Upscaler::new(ops, Model { vae: networks.vae(), step: &step }, settings, plan);
    upscaler
        .replanning(replanner)
        .storing(keep)
        .run(&mut source, memory_sink, &mut ())
        .map_err(|error| error.to_string())?;
    Ok(finished.lock().unwrap().take().unwrap())
}

#[test]
fn windows_of_any_width_give_the_same_frames() {
    let ops = Scarce::new();
    let resident = networks(&ops, NetworkResidency::Device(usize::MAX));
    let want = run(&ops, &resident, plan(1, 0), None).unwrap();
    assert_eq!((want.len(), ops.prefetched.load(Ordering::SeqCst)), (21, 0));
    let offloaded = networks(&ops, NetworkResidency::Host);
    let mut before = usize::MAX;
    for (window, layers) in [(1, 0), (1, LAYERS), (2, LAYERS), (3, 2), (64, LAYERS)] {
        ops.prefetched.store(0, Ordering::SeqCst);
        let got = run(&ops, &offloaded, plan(window, layers), None).unwrap();
        assert!(got == want, "windows of {window} with {layers} layers: other frames");
        // What comes for a window comes once for all of it.
        let prefetched = ops.prefetched.load(Ordering::SeqCst);
        assert!(
            prefetched > 0 && (layers < LAYERS || prefetched < before),
            "{prefetched} layers prefetched, {before} before"
        );
        before = if layers < LAYERS { before } else { prefetched };
    }
}

/// Returns the same smaller plan every time and counts the calls.
struct CountingReplanner(AtomicUsize);

impl Replanner for CountingReplanner {
    fn smaller(&self) -> Option<Replan> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Some(Replan { vae: VaePlan::default(), layers: 1, device: "test".into(), bytes: 1 })
    }
}

/// Has no smaller plan.
struct NoReplan;

impl Replanner for NoReplan {
    fn smaller(&self) -> Option<Replan> {
        None
    }
}

#[test]
fn a_job_that_runs_out_of_memory_in_any_slice_replans_and_continues() {
    let ops = Scarce::new();
    let offloaded = networks(&ops, NetworkResidency::Host);
    let want = run(&ops, &offloaded, plan(2, LAYERS), None).unwrap();
    let convs = ops.convs.load(Ordering::SeqCst);
    for nth in (1..=convs).step_by(convs / 10) {
        ops.failing(nth);
        let replanner = CountingReplanner(AtomicUsize::new(0));
        let got = run(&ops, &offloaded, plan(2, LAYERS), Some(&replanner)).unwrap();
        assert!(got == want, "convolution {nth} of {convs}: other frames");
        assert_eq!(replanner.0.load(Ordering::SeqCst), 1, "convolution {nth} of {convs}");
    }
    ops.failing(convs / 2);
    let refused = run(&ops, &offloaded, plan(2, LAYERS), Some(&NoReplan)).unwrap_err();
    assert!(refused.contains("out of memory"), "{refused}");
    ops.failing(convs / 2);
    assert!(run(&ops, &offloaded, plan(2, LAYERS), None).is_err());
}

/// Stores latents; fails when a latent is stored twice.
#[derive(Default)]
struct LatentStore(Mutex<BTreeMap<(Turn, usize), Vec<f32>>>);

impl BatchStore for LatentStore {
    fn put(&self, _: usize, _: &[f32], _: bool) {}

    fn restart(&self) {}

    fn get(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn put_latent(&self, turn: Turn, batch: usize, latent: &[f32]) {
        let before = self.0.lock().unwrap().insert((turn, batch), latent.to_vec());
        assert!(before.is_none(), "{turn:?} of batch {batch} is stored twice");
    }

    fn get_latent(&self, turn: Turn, batch: usize) -> Option<Vec<f32>> {
        self.0.lock().unwrap().get(&(turn, batch)).cloned()
    }
}

#[test]
fn a_job_that_fails_within_a_window_computes_no_latent_twice() {
    let ops = Scarce::new();
    let offloaded = networks(&ops, NetworkResidency::Host);
    let want = run(&ops, &offloaded, plan(2, LAYERS), None).unwrap();
    let convs = ops.convs.load(Ordering::SeqCst);
    let mut computed = Vec::new();
    for nth in (1..=convs).step_by(convs / 4) {
        let latents = LatentStore::default();
        ops.failing(nth);
        run_with_store(&ops, &offloaded, plan(2, LAYERS), (None, Some(&latents))).unwrap_err();
        ops.failing(0);
        let got = run_with_store(&ops, &offloaded, plan(2, LAYERS), (None, Some(&latents))).unwrap();
        assert!(got == want, "convolution {nth} of {convs}: other frames");
        computed.push(ops.convs.load(Ordering::SeqCst));
    }
    // The later the failure, the fewer batches remain to encode.
    assert!(computed.is_sorted_by(|a, b| a >= b) && computed.last() < computed.first(), "{computed:?} of {convs}");
}
