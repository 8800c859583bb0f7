//! Behaviour of jobs with any network: shots, noise, memory, cancellation, errors.
#![allow(clippy::unwrap_used)]

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use reseed::internals::{Checkpoint, Model, RunPlan, Step, Upscaler, VaePlan};
use reseed::{Batching, Color, Error, Event, Latent, NoiseSource, Observer, Settings, Target};
use reseed_media::{Depth, Frame, Samples, Size, Source};
use reseed_ops::Thw;
use reseed_testing::pipeline::job::{MemorySource, TinyVae, identity, memory_sink, run_job, unreadable};

const SIZE: Size = Size { h: 18, w: 26 };

/// A frame of a shot: its content depends on the shot, its brightness on the frame.
fn frame(shot: usize, i: usize) -> Frame {
    let value = |k: usize| {
        let (x, y) = ((k / 3 % SIZE.w) as f32, (k / 3 / SIZE.w) as f32);
        let base = [0.2, 0.75, 0.45][(shot + k % 3) % 3];
        base + 0.15 * (0.3 * x + (0.2 + shot as f32) * y).sin() + 0.004 * (i % 7) as f32
    };
    let unit: Vec<f32> = (0..3 * SIZE.pixels()).map(value).collect();
    Frame::from_unit(SIZE, &unit, Depth::Eight)
}

fn shot(shot: usize, frames: usize) -> Vec<Frame> {
    (0..frames).map(|i| frame(shot, i)).collect()
}

fn settings(size: usize, overlap: usize) -> Settings {
    let batching = Batching { size, overlap, uniform: false };
    Settings { target: Target::Scale(1.3), batching, ..Settings::default() }
}

#[test]
fn shots_do_not_affect_each_other() {
    let networks = TinyVae::new();
    let run = |frames: &[Frame]| {
        let (report, frames) = networks.run(settings(5, 2), &identity, frames);
        (report.unwrap(), frames)
    };
    let source = [shot(0, 7), shot(1, 3), shot(2, 9)];
    let (report, whole) = run(&source.concat());
    assert_eq!((report.shots, report.frames), (3, 19));
    let alone: Vec<Frame> = source.iter().flat_map(|shot| run(shot).1).collect();
    assert!(whole == alone, "a shot affects another");

    let blind = Settings { detect_shots: false, ..settings(5, 2) };
    let (report, blind) = networks.run(blind, &identity, &source.concat());
    assert_eq!(report.unwrap().shots, 1);
    assert!(blind != whole, "a batch across a cut gives the same frames");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let networks = TinyVae::new();
    let step = |condition: &Latent, noise: &Latent| {
        let mixed = condition.values.iter().zip(&noise.values).map(|(c, n)| c + 0.1 * n).collect();
        Ok(Latent { thw: condition.thw, values: mixed })
    };
    let run = |seed| {
        let settings = Settings { noise: NoiseSource::Seed(seed), latent_noise: 0.2, ..settings(5, 1) };
        networks.run(settings, &step, &shot(0, 11)).1
    };
    let first = run(7);
    assert_eq!(first.len(), 11);
    assert!(first == run(7), "the same seed gives different bytes");
    assert!(first != run(8), "the seed has no effect");
}

#[test]
fn every_batch_of_a_shape_starts_from_the_same_noise() {
    let noises = Mutex::new(Vec::new());
    let step = |condition: &Latent, noise: &Latent| {
        noises.lock().unwrap().push(noise.clone());
        Ok(condition.clone())
    };
    let settings = Settings { noise: NoiseSource::Seed(42), ..settings(5, 0) };
    TinyVae::new().run(settings, &step, &shot(0, 11)).0.unwrap();
    let noises = noises.into_inner().unwrap();
    assert_eq!(noises.iter().map(|noise| noise.thw.t).collect::<Vec<_>>(), [2, 2, 1]);
    assert_eq!(noises[0], noises[1]);
    // The public order is channel by channel: the second number belongs to the next column.
    let Thw { t, h, w } = noises[0].thw;
    let stream = reseed_model::noise::normal(42, 16 * t * h * w);
    let at = |t: usize, y: usize, x: usize, c: usize| noises[0].values[((t * h + y) * w + x) * 16 + c];
    assert_eq!([at(0, 0, 0, 0), at(0, 0, 1, 0), at(0, 1, 0, 0)], [stream[0], stream[1], stream[w]]);
    assert_eq!([at(1, 0, 0, 0), at(0, 0, 0, 1)], [stream[h * w], stream[t * h * w]]);
}

/// A step that starts from the condition.
struct FromCondition;

impl Step for FromCondition {
    fn run(&self, condition: &Latent, start: &Latent) -> reseed_model::Result<Latent> {
        assert_eq!(start, condition);
        Ok(condition.clone())
    }

    fn starts_from_noise(&self) -> bool {
        false
    }
}

#[test]
fn a_step_that_starts_from_the_condition_needs_no_noise() {
    let folder = temp_dir::TempDir::new().unwrap();
    let empty = folder.child("noise.safetensors");
    std::fs::write(&empty, b"\x02\0\0\0\0\0\0\0{}").unwrap();
    let from_file = || Settings { noise: NoiseSource::File(empty.clone()), ..settings(5, 0) };
    let run = |step: &dyn Step, settings| TinyVae::new().run(settings, step, &shot(0, 5)).0;
    assert!(matches!(run(&identity, from_file()), Err(Error::NoNoise { .. })));
    run(&FromCondition, from_file()).unwrap();
    run(&FromCondition, Settings { latent_noise: 0.2, ..from_file() }).unwrap_err();
    run(&FromCondition, Settings { latent_noise: 0.2, ..settings(5, 0) }).unwrap();
}

/// Stages and channels that can hold a batch.
const STAGES: usize = 8;

/// A job of any length holds one frame in the shot detector, the frames of the batcher, one batch in each channel and
/// in each stage after it, two batches in the joiner, and the finished frames.
#[test]
fn memory_does_not_grow_with_the_clip() {
    let networks = TinyVae::new();
    let most = |length: usize| {
        let source = MemorySource::from_fn(SIZE, Depth::Eight, move |i| Ok((i < length).then(|| frame(0, i))));
        let counts = source.counts.clone();
        let (report, frames) = networks.run_with(settings(5, 1), &identity, source, &mut ());
        assert_eq!((report.unwrap().frames, frames.len()), (length, length));
        counts.peak.load(Ordering::SeqCst)
    };
    let (batch, finished) = (5, 8);
    assert!(most(200) <= STAGES * batch + finished + 2, "{} frames held", most(200));
}

/// Cancels the job after so many frames.
struct CancelAfter(usize);

impl Observer for CancelAfter {
    fn event(&mut self, event: &Event) {
        if let Event::Frames(frames) = event {
            self.0 = self.0.saturating_sub(*frames);
        }
    }

    fn cancelled(&mut self) -> bool {
        self.0 == 0
    }
}

#[test]
fn a_cancelled_job_stops_soon_and_does_not_finish_its_sink() {
    let source = MemorySource::from_fn(SIZE, Depth::Eight, |i| Ok(Some(frame(0, i))));
    let counts = source.counts.clone();
    let (report, _) = TinyVae::new().run_with(settings(5, 1), &identity, source, &mut CancelAfter(20));
    assert!(matches!(report, Err(Error::Cancelled)), "{report:?}");
    // Frames in the stages at that time are still written, and no others.
    let written = counts.written.load(Ordering::SeqCst);
    assert!((20..20 + 5 * STAGES).contains(&written), "{written} frames written");
    // A job can also be cancelled before its first frame.
    let source = MemorySource::from_fn(SIZE, Depth::Eight, |i| Ok(Some(frame(0, i))));
    let (report, _) = TinyVae::new().run_with(settings(5, 1), &identity, source, &mut CancelAfter(0));
    assert!(matches!(report, Err(Error::Cancelled)), "{report:?}");
}

#[test]
fn errors_keep_their_kind() {
    let networks = TinyVae::new();
    let (report, _) = networks.run(settings(5, 0), &identity, &[]);
    assert!(matches!(report, Err(Error::NoFrames { .. })), "{report:?}");

    let broken = |i: usize| if i < 12 { Ok(Some(frame(0, i))) } else { Err(unreadable()) };
    let source = MemorySource::from_fn(SIZE, Depth::Eight, broken);
    let (report, _) = networks.run_with(settings(5, 0), &identity, source, &mut ());
    assert!(matches!(report, Err(Error::Input(reseed_media::Error::Truncated { .. }))), "{report:?}");

    let source = MemorySource::from_fn(SIZE, Depth::Eight, |i| Ok(Some(frame(0, i))));
    source.counts.unwritable.store(true, Ordering::SeqCst);
    let (report, _) = networks.run_with(settings(5, 0), &identity, source, &mut ());
    assert!(matches!(report, Err(Error::Output(_))), "{report:?}");

    let failing = |_: &Latent, _: &Latent| Err(reseed_model::Error::State("lost".into()));
    let (report, _) = networks.run(settings(5, 0), &failing, &shot(0, 30));
    assert!(matches!(report, Err(Error::Model(_))), "{report:?}");

    let nothing = Settings { target: Target::Scale(0.001), ..settings(5, 0) };
    assert!(matches!(nothing.output(reseed_media::sample().info()), Err(Error::NoPixels { .. })));
}

#[test]
fn the_lead_in_is_removed_from_the_output() {
    let networks = TinyVae::new();
    for (length, lead_in) in [(9, 3), (2, 5), (1, 1)] {
        let settings = Settings { lead_in, color: Some(Color::None), ..settings(5, 0) };
        let (report, frames) = networks.run(settings, &identity, &shot(0, length));
        assert_eq!((report.unwrap().frames, frames.len()), (length, length), "{length} {lead_in}");
    }
}

#[test]
fn alpha_stays_with_the_frames_that_have_it() {
    let ramp = |depth| {
        let unit: Vec<f32> = (0..SIZE.pixels()).map(|i| (i % SIZE.w) as f32 / SIZE.w as f32).collect();
        Some(Samples::from_unit(&unit, depth))
    };
    let mut source = shot(0, 6);
    source[1].alpha = ramp(Depth::Eight);
    source[4].alpha = ramp(Depth::Eight);
    let (report, frames) = TinyVae::new().run(settings(5, 1), &identity, &source);
    let pixels = report.map(|_| frames[0].size.pixels()).unwrap();
    let lengths: Vec<Option<usize>> = frames.iter().map(|f| f.alpha.as_ref().map(Samples::len)).collect();
    assert_eq!(lengths, [None, Some(pixels), None, None, Some(pixels), None]);
}

#[test]
fn the_slice_length_does_not_change_the_frames() {
    let networks = TinyVae::new();
    let run = |slice| {
        let plan = RunPlan { vae: VaePlan { slice, ..VaePlan::default() }, ..RunPlan::default() };
        let (source, model) = (MemorySource::new(&shot(0, 15)), Model { vae: &networks.vae, step: &identity });
        let size = settings(13, 2).output(source.info()).unwrap().size;
        let upscaler = Upscaler::new(&networks.ops, model, settings(13, 2), plan);
        run_job(&upscaler, size, source, (Checkpoint::default(), &mut (), None)).1
    };
    let (short, long) = (run(1), run(4));
    let far = short.iter().zip(&long).any(|(a, b)| reseed_media::metrics::psnr(a, b) < 60.0);
    assert!(!far, "slices change the result");
}

/// A job without networks, resizing and colour correction passes frames through. Overlapping batches are computed,
/// with the same result.
#[test]
fn frames_without_changes_pass_through() {
    let run = |overlap: usize, depth: Depth, frames: &[Frame]| {
        let all = frames.to_vec();
        let mut source = MemorySource::from_fn(frames[0].size, depth, move |i| Ok(all.get(i).cloned()));
        let settings = Settings { target: Target::Scale(1.0), color: Some(Color::None), ..settings(5, overlap) };
        let (sink, finished) = memory_sink(&source, settings.output(source.info()).unwrap().size);
        Upscaler::identity(settings).run(&mut source, sink, &mut ()).unwrap();
        finished.lock().unwrap().take().unwrap()
    };
    let codes = |size: Size, step: usize| (0..3 * size.pixels()).map(move |i| (i * step) as u16).collect();
    let deep = |size, step| Frame { size, samples: Samples::U16(codes(size, step)), alpha: None };
    let every_code = Size { h: 128, w: 172 };
    let source: Vec<Frame> = (0..7).map(|i| deep(every_code, 2 * i + 1)).collect();
    for overlap in [0, 1] {
        assert!(run(overlap, Depth::Sixteen, &source) == source, "deep frames, {overlap} shared");
        assert!(run(overlap, Depth::Eight, &shot(0, 7)) == shot(0, 7), "frames, {overlap} shared");
    }
    let odd: Vec<Frame> = (1..7).map(|i| deep(Size { h: 9, w: 13 }, 997 * i)).collect();
    for (depth, source) in [(Depth::Sixteen, shot(0, 7)), (Depth::Sixteen, odd.clone()), (Depth::Eight, odd)] {
        assert!(run(0, depth, &source) == run(1, depth, &source), "{depth:?}, {}", source[0].size);
    }
}
