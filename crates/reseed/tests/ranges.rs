//! Every part of a clip has the bytes of a job on the whole clip.
#![allow(clippy::unwrap_used)]

use std::ops::Range;
use std::sync::Mutex;

use reseed::{
    AlphaRange, BatchGrid, Batching, Color, Error, Event, NoiseSource, Observer, Overlap, RangeError, RangeJob,
    Session, Settings, Target,
};
use reseed_media::{Depth, Frame, Info, Samples, Size};

const SIZE: Size = Size { h: 11, w: 14 };

/// Three shots of 7, 1 and 6 frames.
fn clip(depth: Depth, alpha: bool) -> Vec<Frame> {
    let frame = |i: usize| {
        let shot = usize::from(i >= 7) + usize::from(i >= 8);
        let value = |k: usize| {
            let (x, y) = ((k / 3 % SIZE.w + i) as f32, (k / 3 / SIZE.w) as f32);
            [0.2, 0.75, 0.45][(shot + k % 3) % 3] + 0.15 * (0.2 * x + (0.1 + 0.1 * shot as f32) * y).sin()
        };
        let unit: Vec<f32> = (0..3 * SIZE.pixels()).map(value).collect();
        // The alpha of a slice counts as a mask or not, by all its values: a frame alone would differ.
        let mask = |k: usize| if i % 5 == 3 { 0.5 } else { (k % 2) as f32 };
        let mask: Vec<f32> = (0..SIZE.pixels()).map(mask).collect();
        let alpha = alpha.then(|| Samples::from_unit(&mask, depth));
        Frame { alpha, ..Frame::from_unit(SIZE, &unit, depth) }
    };
    (0..14).map(frame).collect()
}

fn info(frames: &[Frame]) -> Info {
    let (size, depth) = (frames[0].size, frames[0].depth());
    let alpha = frames[0].alpha.is_some();
    Info { size, depth, alpha, frames: None, ..reseed_media::sample().info().clone() }
}

fn settings(size: usize, overlap: usize, uniform: bool) -> Settings {
    let batching = Batching { size, overlap, uniform };
    Settings {
        target: Target::Scale(1.5),
        batching,
        latent_noise: 0.1,
        noise: NoiseSource::Seed(7),
        ..Settings::default()
    }
}

fn session(model: &str) -> Session {
    Session::builder().model(model).device("cpu").threads(1).open().unwrap()
}

/// A job on a clip whose grid is complete.
fn job(session: &Session, frames: &[Frame], settings: &Settings) -> RangeJob {
    let mut job = RangeJob::new(session, &info(frames), settings).unwrap();
    frames.iter().for_each(|frame| job.grid_mut().push(frame));
    job.grid_mut().finish();
    job
}

/// The numbers below `count` in an order without a pattern.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|i| (i * 7919 + 13) % 101);
    order
}

/// Computes a range and checks that it reads what the grid says.
fn compute(session: &Session, job: &mut RangeJob, clip: &[Frame], range: Range<usize>) -> Vec<Frame> {
    let read = Mutex::new(Vec::new());
    let mut provider = |index: usize| {
        read.lock().unwrap().push(index);
        Ok(clip[index].clone())
    };
    let frames = job.frames(session, range.clone(), &mut provider, &mut ()).unwrap();
    let read = read.into_inner().unwrap();
    let expected = job.grid().input_of(range).unwrap();
    assert!(read.iter().all(|index| expected.contains(index)), "{read:?} outside of {expected:?}");
    frames
}

fn check(name: &str, session: &Session, clip: &[Frame], settings: &Settings) {
    let whole = session.upscale_frames(clip.to_vec(), settings, &mut ()).unwrap();
    let mut part = job(session, clip, settings);
    for i in shuffled(clip.len()) {
        let alone = compute(session, &mut part, clip, i..i + 1);
        assert!(alone == whole[i..=i], "{name}: frame {i} alone differs");
    }
    for range in [0..clip.len(), 3..8, clip.len() - 3..clip.len()] {
        assert!(compute(session, &mut part, clip, range.clone()) == whole[range.clone()], "{name}: {range:?} differs");
    }
    // Whole batches in order, which take what their predecessor computed.
    let (mut part, mut at) = (job(session, clip, settings), 0);
    while at < clip.len() {
        let range = part.grid().covering(at..at + 1).unwrap();
        assert_eq!(range.start, at, "{name}: batches add frames in order");
        at = range.end;
        assert!(compute(session, &mut part, clip, range.clone()) == whole[range.clone()], "{name}: {range:?} in order");
    }
}

#[test]
fn every_frame_alone_has_the_bytes_of_the_whole_job() {
    let session = session("formula:tiny");
    let eight = clip(Depth::Eight, false);
    for overlap in [0, 1, 2, 4] {
        check(&format!("overlap {overlap}"), &session, &eight, &settings(5, overlap, false));
    }
    for mode in [Overlap::Smooth, Overlap::Reference] {
        let settings = Settings { overlap: mode, ..settings(5, 1, false) };
        check(&format!("{mode:?}"), &session, &eight, &settings);
    }
    check("uniform", &session, &eight, &settings(5, 1, true));
    check("single frames", &session, &eight, &settings(1, 0, false));
    check("one batch", &session, &eight, &settings(33, 2, false));
    for lead_in in [4, 20] {
        check(&format!("lead-in {lead_in}"), &session, &eight, &Settings { lead_in, ..settings(5, 2, false) });
    }
    check("no shots", &session, &eight, &Settings { detect_shots: false, ..settings(5, 2, false) });
}

#[test]
fn alpha_colours_and_depths_are_those_of_the_whole_job() {
    let session = session("formula:tiny");
    check("16 bits", &session, &clip(Depth::Sixteen, false), &settings(5, 2, false));
    for alpha_range in [AlphaRange::Fixed, AlphaRange::Inferred] {
        let settings = Settings { alpha_range, ..settings(5, 1, false) };
        check(&format!("{alpha_range:?} alpha"), &session, &clip(Depth::Eight, true), &settings);
    }
    for color in [Color::WaveletAdaptive, Color::Adain] {
        let settings = Settings { color: Some(color), strength: Some(0.5), ..settings(5, 2, false) };
        check(&format!("{color:?}"), &session, &clip(Depth::Eight, false)[..9], &settings);
    }
}

#[test]
fn a_job_without_networks_has_parts_too() {
    let session = session("identity");
    check("resized", &session, &clip(Depth::Eight, true), &settings(5, 2, false));
    let same = Settings { target: Target::Scale(1.0), color: Some(Color::None), ..settings(5, 0, false) };
    check("passed through", &session, &clip(Depth::Sixteen, false), &same);
}

/// Counts computed batches.
#[derive(Default)]
struct Batches(usize);

impl Observer for Batches {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Batch { .. } => self.0 += 1,
            Event::Saved { .. } => panic!("nothing is on disk"),
            _ => {}
        }
    }
}

#[test]
fn ranges_in_order_compute_no_batch_twice() {
    let (session, clip) = (session("formula:tiny"), clip(Depth::Eight, false));
    let settings = Settings { detect_shots: false, ..settings(5, 2, false) };
    let mut part = job(&session, &clip, &settings);
    let mut computed = Batches::default();
    let mut provider = |index: usize| Ok(clip[index].clone());
    for range in [0..5, 5..8, 8..11, 11..14] {
        part.frames(&session, range, &mut provider, &mut computed).unwrap();
    }
    assert_eq!(computed.0, 4);
    // The first batch alone needs the one after it.
    let mut computed = Batches::default();
    part.frames(&session, 0..1, &mut provider, &mut computed).unwrap();
    assert_eq!(computed.0, 2);
}

/// The grid knows the batches of a frame after so many frames as it says, and never answers wrongly before.
#[test]
fn a_growing_grid_answers_as_the_complete_one() {
    let (session, clip) = (session("formula:tiny"), clip(Depth::Eight, false));
    for (size, overlap, lead_in, detect_shots) in [(5, 1, 0, true), (5, 2, 3, true), (3, 2, 0, true), (5, 2, 2, false)]
    {
        let settings = Settings { lead_in, detect_shots, ..settings(size, overlap, false) };
        let complete = job(&session, &clip, &settings);
        let mut growing = RangeJob::new(&session, &info(&clip), &settings).unwrap();
        for pushed in 0..=clip.len() {
            for i in 0..clip.len() {
                let (known, all) = (growing.grid().covering(i..i + 1), complete.grid().covering(i..i + 1));
                assert!(known.is_none() || known == all, "frame {i} after {pushed}: {known:?} instead of {all:?}");
                let enough = growing.grid().enough_for(i..i + 1) <= pushed;
                assert!(known.is_some() || !enough, "frame {i} is unknown after {pushed} frames");
            }
            if let Some(frame) = clip.get(pushed) {
                assert_eq!(growing.grid().pushed(), pushed);
                growing.grid_mut().push(frame);
            }
        }
        growing.grid_mut().finish();
        assert_eq!(growing.grid().cuts(), complete.grid().cuts());
        assert_eq!(growing.grid().cuts().len(), if detect_shots { 2 } else { 0 });
        let cached: BatchGrid = RangeJob::new(&session, &info(&clip), &settings).unwrap().grid().clone();
        let cached = cached.with_cuts(&complete.grid().cuts(), clip.len());
        assert!((0..clip.len()).all(|i| cached.covering(i..i + 1) == complete.grid().covering(i..i + 1)));
    }
}

#[test]
fn a_grid_without_shots_needs_the_number_of_frames_only() {
    let (session, clip) = (session("formula:tiny"), clip(Depth::Eight, false));
    let settings = Settings { detect_shots: false, ..settings(5, 1, false) };
    let info = Info { frames: Some(clip.len()), ..info(&clip) };
    let part = RangeJob::new(&session, &info, &settings).unwrap();
    assert_eq!(part.grid().frames(), Some(14));
    assert_eq!(part.grid().covering(6..7), Some(5..9));
    assert_eq!(part.grid().input_of(6..7), Some(4..9));
}

#[test]
fn unknown_frames_are_an_error() {
    let (session, clip) = (session("formula:tiny"), clip(Depth::Eight, false));
    let mut provider = |index: usize| Ok(clip[index].clone());
    let mut part = RangeJob::new(&session, &info(&clip), &settings(5, 1, false)).unwrap();
    let error = part.frames(&session, 2..3, &mut provider, &mut ()).unwrap_err();
    assert_eq!(error.to_string(), "frames 2 to 2: their batches are not known yet; add more frames to the grid");
    let mut part = job(&session, &clip, &settings(5, 1, false));
    let error = part.frames(&session, 13..15, &mut provider, &mut ()).unwrap_err();
    assert_eq!(error.to_string(), "frames 13 to 14: the clip has 14");
    let image = Info { kind: reseed_media::Kind::Image, ..info(&clip) };
    let error = RangeJob::new(&session, &image, &settings(5, 1, false)).err().unwrap();
    assert!(matches!(error, Error::Range(RangeError::OfImages)), "{error}");
    // A source that fails ends the range, and the next one works.
    let mut broken = |_: usize| Err(reseed_testing::pipeline::job::unreadable());
    let error = part.frames(&session, 3..4, &mut broken, &mut ()).unwrap_err();
    assert!(matches!(error, Error::Input(_)), "{error}");
    assert_eq!(part.frames(&session, 3..4, &mut provider, &mut ()).unwrap().len(), 1);
}
