//! Behaviour of jobs that does not depend on the networks: shots, determinism, memory, cancellation, errors.
#![allow(clippy::unwrap_used)]

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use reseed::batch::Batching;
use reseed::noise::Noise;
use reseed::{Color, Error, Latent, Progress, Settings, Target, Upscaler};
use reseed_media::{Depth, Frame, Samples, Size, Source};
use reseed_ops::Thw;
use reseed_testing::pipeline::job::{MemorySource, TinyVae, identity, memory_sink, unreadable};

const SIZE: Size = Size { h: 18, w: 26 };

/// Frame `i` of a shot: the texture depends on the shot, the brightness slightly on the frame.
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
fn shots_do_not_influence_each_other() {
    let networks = TinyVae::new();
    let run = |frames: &[Frame]| {
        let (report, frames) = networks.run(settings(5, 2), &identity, frames);
        (report.unwrap(), frames)
    };
    let clip = [shot(0, 7), shot(1, 3), shot(2, 9)];
    let (report, whole) = run(&clip.concat());
    assert_eq!((report.shots, report.frames), (3, 19));
    let alone: Vec<Frame> = clip.iter().flat_map(|shot| run(shot).1).collect();
    assert!(whole == alone, "a shot changes another shot");

    let settings = Settings { detect_shots: false, ..settings(5, 2) };
    let (report, undetected) = networks.run(settings, &identity, &clip.concat());
    assert_eq!(report.unwrap().shots, 1);
    assert!(undetected != whole, "shot detection makes no difference");
}

#[test]
fn jobs_are_deterministic_and_depend_on_the_seed() {
    let networks = TinyVae::new();
    let step = |condition: &Latent, noise: &Latent| {
        let mixed = condition.values.iter().zip(&noise.values).map(|(c, n)| c + 0.1 * n).collect();
        Ok(Latent { thw: condition.thw, values: mixed })
    };
    let run = |seed| {
        let settings = Settings { noise: Noise::Seed(seed), latent_noise: 0.2, ..settings(5, 1) };
        networks.run(settings, &step, &shot(0, 11)).1
    };
    let first = run(7);
    assert_eq!(first.len(), 11);
    assert!(first == run(7), "the same seed gives different frames");
    assert!(first != run(8), "another seed gives the same frames");
}

#[test]
fn batches_of_one_shape_get_the_same_noise() {
    let noises = Mutex::new(Vec::new());
    let step = |condition: &Latent, noise: &Latent| {
        noises.lock().unwrap().push(noise.clone());
        Ok(condition.clone())
    };
    let settings = Settings { noise: Noise::Seed(42), ..settings(5, 0) };
    TinyVae::new().run(settings, &step, &shot(0, 11)).0.unwrap();
    let noises = noises.into_inner().unwrap();
    assert_eq!(noises.iter().map(|noise| noise.thw.t).collect::<Vec<_>>(), [2, 2, 1]);
    assert_eq!(noises[0], noises[1]);
    // As in the public pipeline, the random stream fills `[C, T, H, W]`.
    let Thw { t, h, w } = noises[0].thw;
    let stream = reseed_model::noise::normal(42, 16 * t * h * w);
    let at = |t: usize, y: usize, x: usize, c: usize| noises[0].values[((t * h + y) * w + x) * 16 + c];
    assert_eq!([at(0, 0, 0, 0), at(0, 0, 1, 0), at(0, 1, 0, 0)], [stream[0], stream[1], stream[w]]);
    assert_eq!([at(1, 0, 0, 0), at(0, 0, 0, 1)], [stream[h * w], stream[t * h * w]]);
}

/// Stages and channels that hold a batch.
const STAGES: usize = 8;

/// The bound: one frame in the shot detector, a batch in the batcher and in each later stage and channel, two batches
/// in the joiner, and the finished frames.
#[test]
fn the_number_of_frames_in_memory_does_not_grow_with_the_clip() {
    let networks = TinyVae::new();
    let peak = |length: usize| {
        let source = MemorySource::from_fn(SIZE, Depth::Eight, move |i| Ok((i < length).then(|| frame(0, i))));
        let counts = source.counts.clone();
        let (report, frames) = networks.run_with(settings(5, 1), &identity, source, &mut ());
        assert_eq!((report.unwrap().frames, frames.len()), (length, length));
        counts.peak.load(Ordering::SeqCst)
    };
    let (batch, finished) = (5, 8);
    assert!(peak(200) <= STAGES * batch + finished + 2, "{} frames held", peak(200));
}

/// Cancels the job after a number of frames.
struct CancelAfter(usize);

impl Progress for CancelAfter {
    fn advance(&mut self, frames: usize) {
        self.0 = self.0.saturating_sub(frames);
    }

    fn cancelled(&mut self) -> bool {
        self.0 == 0
    }
}

#[test]
fn a_cancelled_job_stops_early_and_does_not_finish_its_sink() {
    let source = MemorySource::from_fn(SIZE, Depth::Eight, |i| Ok(Some(frame(0, i))));
    let counts = source.counts.clone();
    let (report, _) = TinyVae::new().run_with(settings(5, 1), &identity, source, &mut CancelAfter(20));
    assert!(matches!(report, Err(Error::Cancelled)), "{report:?}");
    // Frames that are already in the pipeline are still written.
    let written = counts.written.load(Ordering::SeqCst);
    assert!((20..20 + 5 * STAGES).contains(&written), "{written} frames written");
    // Cancelled before the first frame.
    let source = MemorySource::from_fn(SIZE, Depth::Eight, |i| Ok(Some(frame(0, i))));
    let (report, _) = TinyVae::new().run_with(settings(5, 1), &identity, source, &mut CancelAfter(0));
    assert!(matches!(report, Err(Error::Cancelled)), "{report:?}");
}

#[test]
fn errors_of_every_stage_are_reported() {
    let networks = TinyVae::new();
    let (report, _) = networks.run(settings(5, 0), &identity, &[]);
    assert!(matches!(report, Err(Error::NoFrames)), "{report:?}");

    let truncated = |i: usize| if i < 12 { Ok(Some(frame(0, i))) } else { Err(unreadable()) };
    let source = MemorySource::from_fn(SIZE, Depth::Eight, truncated);
    let (report, _) = networks.run_with(settings(5, 0), &identity, source, &mut ());
    assert!(matches!(report, Err(Error::Input(reseed_media::Error::Truncated { .. }))), "{report:?}");

    let source = MemorySource::from_fn(SIZE, Depth::Eight, |i| Ok(Some(frame(0, i))));
    source.counts.unwritable.store(true, Ordering::SeqCst);
    let (report, _) = networks.run_with(settings(5, 0), &identity, source, &mut ());
    assert!(matches!(report, Err(Error::Output(_))), "{report:?}");

    let failing = |_: &Latent, _: &Latent| Err(reseed_model::Error::State("lost".into()));
    let (report, _) = networks.run(settings(5, 0), &failing, &shot(0, 30));
    assert!(matches!(report, Err(Error::Model(_))), "{report:?}");

    let empty = Settings { target: Target::Scale(0.01), ..settings(5, 0) };
    assert!(matches!(empty.output(reseed_media::sample().info()), Err(Error::NoPixels { .. })));
}

#[test]
fn the_lead_in_is_removed_from_the_output() {
    let networks = TinyVae::new();
    for (length, lead_in) in [(9, 3), (2, 5), (1, 1)] {
        let settings = Settings { lead_in, color: Color::None, ..settings(5, 0) };
        let (report, frames) = networks.run(settings, &identity, &shot(0, length));
        assert_eq!((report.unwrap().frames, frames.len()), (length, length), "{length} {lead_in}");
    }
}

#[test]
fn only_frames_with_alpha_have_alpha_in_the_output() {
    let ramp = |depth| {
        let unit: Vec<f32> = (0..SIZE.pixels()).map(|i| (i % SIZE.w) as f32 / SIZE.w as f32).collect();
        Some(Samples::from_unit(&unit, depth))
    };
    let mut clip = shot(0, 6);
    clip[1].alpha = ramp(Depth::Eight);
    clip[4].alpha = ramp(Depth::Eight);
    let (report, frames) = TinyVae::new().run(settings(5, 1), &identity, &clip);
    let pixels = report.map(|_| frames[0].size.pixels()).unwrap();
    let lengths: Vec<Option<usize>> = frames.iter().map(|f| f.alpha.as_ref().map(Samples::len)).collect();
    assert_eq!(lengths, [None, Some(pixels), None, None, Some(pixels), None]);
}

#[test]
fn the_slice_length_does_not_change_the_frames() {
    let networks = TinyVae::new();
    let run = |slice| {
        let plan = reseed::VaePlan { slice, ..Settings::default().vae };
        networks.run(Settings { vae: plan, ..settings(13, 2) }, &identity, &shot(0, 15)).1
    };
    let (short, long) = (run(1), run(4));
    let differs = short.iter().zip(&long).any(|(a, b)| reseed_media::metrics::psnr(a, b) < 60.0);
    assert!(!differs, "the slice length changes the frames");
}

/// Without an overlap, frames pass through; with an overlap, the job converts and cross-fades them. Both give the same.
#[test]
fn a_job_without_networks_resize_and_colour_transfer_changes_no_frame() {
    let run = |overlap: usize, depth: Depth, frames: &[Frame]| {
        let all = frames.to_vec();
        let mut source = MemorySource::from_fn(frames[0].size, depth, move |i| Ok(all.get(i).cloned()));
        let settings = Settings { target: Target::Scale(1.0), color: Color::None, ..settings(5, overlap) };
        let (sink, finished) = memory_sink(&source, settings.output(source.info()).unwrap().size);
        Upscaler::identity(settings).run(&mut source, sink, &mut ()).unwrap();
        finished.lock().unwrap().take().unwrap()
    };
    let codes = |size: Size, step: usize| (0..3 * size.pixels()).map(move |i| (i * step) as u16).collect();
    let deep = |size, step| Frame { size, samples: Samples::U16(codes(size, step)), alpha: None };
    let every_code = Size { h: 128, w: 172 };
    let clip: Vec<Frame> = (0..7).map(|i| deep(every_code, 2 * i + 1)).collect();
    for overlap in [0, 1] {
        assert!(run(overlap, Depth::Sixteen, &clip) == clip, "16 bits, {overlap} shared");
        assert!(run(overlap, Depth::Eight, &shot(0, 7)) == shot(0, 7), "8 bits, {overlap} shared");
    }
    let odd: Vec<Frame> = (1..7).map(|i| deep(Size { h: 9, w: 13 }, 997 * i)).collect();
    for (depth, clip) in [(Depth::Sixteen, shot(0, 7)), (Depth::Sixteen, odd.clone()), (Depth::Eight, odd)] {
        assert!(run(0, depth, &clip) == run(1, depth, &clip), "{depth:?}, {}", clip[0].size);
    }
}
