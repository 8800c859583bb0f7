//! Networks that take turns over windows of batches make the frames that resident ones make, also where memory runs out.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use reseed::batch::Batching;
use reseed::{
    BatchStore, Model, NetworkResidency, Networks, Replan, Replanner, Settings, Target, Turn, Upscaler, VaePlan,
    WindowPlan,
};
use reseed_media::{Depth, Frame, Size, Source};
use reseed_model::dit::{B3, Config as DitConfig};
use reseed_model::weights::formula::{Formula, uniform};
use reseed_model::{Config, TextEmbedding};
use reseed_ops::Shape;
use reseed_testing::pipeline::job;
use reseed_testing::pipeline::job::Film;
use reseed_testing::scarce::Scarce;

const SIZE: Size = Size { h: 18, w: 26 };
const LAYERS: usize = 4;

/// Two shots of 12 and 9 frames.
fn film() -> Vec<Frame> {
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

fn networks(ops: &Scarce, between: NetworkResidency) -> Networks {
    let (vae, dit) = (Config::tiny(), DitConfig::tiny(B3, LAYERS));
    let text = |width: usize| {
        let values = uniform("text", 3 * width, 1).into_iter().map(|v| v as f32).collect();
        Ok(TextEmbedding { shape: Shape::from([3, width]), values })
    };
    let vae = Formula::new(vae.tensors(), vae.groups, 1);
    Networks::load(([ops; 2], &vae), (ops, &Formula::plain(dit.tensors(), 1)), between, text).unwrap()
}

fn settings(window: usize, layers: usize) -> Settings {
    Settings {
        target: Target::Scale(1.3),
        batching: Batching { size: 9, overlap: 2, uniform: false },
        turns: WindowPlan { window, layers },
        ..Settings::default()
    }
}

fn run(
    ops: &Scarce,
    networks: &Networks,
    settings: Settings,
    fit: Option<&dyn Replanner>,
) -> Result<Vec<Frame>, String> {
    run_keeping(ops, networks, settings, (fit, None))
}

fn run_keeping(
    ops: &Scarce,
    networks: &Networks,
    settings: Settings,
    (fit, keep): (Option<&dyn Replanner>, Option<&dyn BatchStore>),
) -> Result<Vec<Frame>, String> {
    let mut film = Film::new(&film());
    let (screen, finished) = job::screen(&film, settings.output(film.info()).unwrap().size);
    let step = networks.transformer(ops);
    let upscaler = Upscaler::new(ops, Model { vae: networks.vae(), step: &step }, settings).fitting(fit).keeping(keep);
    upscaler.run(&mut film, screen, &mut ()).map_err(|error| error.to_string())?;
    Ok(finished.lock().unwrap().take().unwrap())
}

#[test]
fn windows_of_any_width_make_the_same_frames() {
    let ops = Scarce::new();
    let resident = networks(&ops, NetworkResidency::Device(usize::MAX));
    let want = run(&ops, &resident, settings(1, 0), None).unwrap();
    assert_eq!((want.len(), ops.prefetched.load(Ordering::SeqCst)), (21, 0));
    let waiting = networks(&ops, NetworkResidency::Host);
    let mut before = usize::MAX;
    for (window, layers) in [(1, 0), (1, LAYERS), (2, LAYERS), (3, 2), (64, LAYERS)] {
        ops.prefetched.store(0, Ordering::SeqCst);
        let got = run(&ops, &waiting, settings(window, layers), None).unwrap();
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

/// Always knows a smaller plan.
struct Giving(AtomicUsize);

impl Replanner for Giving {
    fn smaller(&self) -> Option<Replan> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Some(Replan { vae: VaePlan { ..Settings::default().vae }, layers: 1 })
    }
}

/// Never does.
struct Poor;

impl Replanner for Poor {
    fn smaller(&self) -> Option<Replan> {
        None
    }
}

#[test]
fn a_job_whose_memory_is_taken_goes_on_from_any_slice() {
    let ops = Scarce::new();
    let waiting = networks(&ops, NetworkResidency::Host);
    let want = run(&ops, &waiting, settings(2, LAYERS), None).unwrap();
    let convs = ops.convs.load(Ordering::SeqCst);
    for nth in (1..=convs).step_by(convs / 10) {
        ops.failing(nth);
        let fit = Giving(AtomicUsize::new(0));
        let got = run(&ops, &waiting, settings(2, LAYERS), Some(&fit)).unwrap();
        assert!(got == want, "convolution {nth} of {convs}: other frames");
        assert_eq!(fit.0.load(Ordering::SeqCst), 1, "convolution {nth} of {convs}");
    }
    ops.failing(convs / 2);
    let refused = run(&ops, &waiting, settings(2, LAYERS), Some(&Poor)).unwrap_err();
    assert!(refused.contains("could not get"), "{refused}");
    ops.failing(convs / 2);
    assert!(run(&ops, &waiting, settings(2, LAYERS), None).is_err());
}

/// Keeps latents, each of which may come once.
#[derive(Default)]
struct Latents(Mutex<BTreeMap<(Turn, usize), Vec<f32>>>);

impl BatchStore for Latents {
    fn put(&self, _: usize, _: &[f32], _: bool) {}

    fn get(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn put_latent(&self, turn: Turn, batch: usize, latent: &[f32]) {
        let before = self.0.lock().unwrap().insert((turn, batch), latent.to_vec());
        assert!(before.is_none(), "{turn:?} of batch {batch} again");
    }

    fn get_latent(&self, turn: Turn, batch: usize) -> Option<Vec<f32>> {
        self.0.lock().unwrap().get(&(turn, batch)).cloned()
    }
}

#[test]
fn a_job_that_dies_within_a_window_computes_none_of_its_latents_again() {
    let ops = Scarce::new();
    let waiting = networks(&ops, NetworkResidency::Host);
    let want = run(&ops, &waiting, settings(2, LAYERS), None).unwrap();
    let convs = ops.convs.load(Ordering::SeqCst);
    let mut computed = Vec::new();
    for nth in (1..=convs).step_by(convs / 4) {
        let latents = Latents::default();
        ops.failing(nth);
        run_keeping(&ops, &waiting, settings(2, LAYERS), (None, Some(&latents))).unwrap_err();
        ops.failing(0);
        let got = run_keeping(&ops, &waiting, settings(2, LAYERS), (None, Some(&latents))).unwrap();
        assert!(got == want, "convolution {nth} of {convs}: other frames");
        computed.push(ops.convs.load(Ordering::SeqCst));
    }
    // The later it dies, the less is left to encode.
    assert!(computed.is_sorted_by(|a, b| a >= b) && computed.last() < computed.first(), "{computed:?} of {convs}");
}
