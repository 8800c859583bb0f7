//! A job that goes on from a point writes what an uninterrupted one would have written, and computes nothing again.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use reseed::internals::{BatchStore, Checkpoint, Recorder, Turn};
use reseed::{Batching, Event, Latent, Observer, Overlap, Settings, Target};
use reseed_media::{Depth, Frame, Samples, Sink, Size};
use reseed_testing::pipeline::job;
use reseed_testing::pipeline::job::{MemorySource, TinyVae};

const SIZE: Size = Size { h: 18, w: 26 };

/// Remembers the checkpoint after every batch.
#[derive(Default)]
struct Checkcheckpoints(Vec<Checkpoint>);

impl Recorder for Checkcheckpoints {
    fn record(&mut self, point: &Checkpoint, _sink: &mut dyn Sink) -> reseed_media::Result<()> {
        self.0.push(point.clone());
        Ok(())
    }
}

/// FrameCounts frames and checkcheckpoints, and cancels a job after some of the latter.
struct FrameCounts {
    written: usize,
    saved: usize,
    most: usize,
}

impl FrameCounts {
    fn until(most: usize) -> FrameCounts {
        FrameCounts { written: 0, saved: 0, most }
    }
}

impl Observer for FrameCounts {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Frames(frames) => self.written += frames,
            Event::Saved { frames } => {
                assert_eq!(*frames, self.written, "a checkpoint counts the frames that are written");
                self.saved += 1;
            }
            _ => {}
        }
    }

    fn cancelled(&mut self) -> bool {
        self.saved >= self.most
    }
}

/// Three shots of 12, 1 and 9 frames, the second with alpha.
fn clip() -> Vec<Frame> {
    let frame = |i: usize| {
        let shot = [0, 1, 2][usize::from(i >= 12) + usize::from(i >= 13)];
        let value = |k: usize| {
            let (x, y) = ((k / 3 % SIZE.w + i) as f32, (k / 3 / SIZE.w) as f32);
            let base = [0.2, 0.75, 0.45][(shot + k % 3) % 3];
            base + 0.15 * (0.2 * x + (0.1 + 0.1 * shot as f32) * y).sin()
        };
        let unit: Vec<f32> = (0..3 * SIZE.pixels()).map(value).collect();
        let alpha = (shot == 1).then(|| Samples::from_unit(&vec![0.5; SIZE.pixels()], Depth::Eight));
        Frame { alpha, ..Frame::from_unit(SIZE, &unit, Depth::Eight) }
    };
    (0..22).map(frame).collect()
}

fn settings(overlap: usize, mode: Overlap, lead_in: usize) -> Settings {
    Settings {
        target: Target::Scale(1.5),
        batching: Batching { size: 5, overlap, uniform: false },
        overlap: mode,
        lead_in,
        ..Settings::default()
    }
}

#[test]
fn a_job_goes_on_from_every_batch() {
    let networks = TinyVae::new();
    let steps = AtomicUsize::new(0);
    let step = |condition: &Latent, noise: &Latent| {
        steps.fetch_add(1, Ordering::SeqCst);
        let mixed = condition.values.iter().zip(&noise.values).map(|(c, n)| c + 0.1 * n).collect();
        Ok(Latent { thw: condition.thw, values: mixed })
    };
    for (overlap, mode, lead_in) in
        [(0, Overlap::Smooth, 0), (0, Overlap::Smooth, 3), (2, Overlap::Smooth, 2), (3, Overlap::Reference, 0)]
    {
        let settings = || settings(overlap, mode, lead_in);
        let mut checkpoints = Checkcheckpoints::default();
        let (mut counts, start) = (FrameCounts::until(usize::MAX), (None, Checkpoint::default()));
        let watchers = (&mut counts as &mut dyn Observer, Some(&mut checkpoints as &mut dyn Recorder));
        let (report, whole) =
            networks.resume_with_store(start, settings(), &step, MemorySource::new(&clip()), watchers);
        let batches = report.unwrap().batches;
        assert_eq!((whole.len(), checkpoints.0.len()), (22, batches), "{overlap}");
        assert_eq!(checkpoints.0.iter().any(|point| !point.held.is_empty()), overlap > 0);
        for point in checkpoints.0 {
            let (done, written) = (point.batches, point.frames);
            steps.store(0, Ordering::SeqCst);
            let (report, rest) = networks.resume(point, settings(), &step, MemorySource::new(&clip()), &mut ());
            let report = report.unwrap();
            assert!(rest[..] == whole[written..], "overlap {overlap}, from batch {done}: other frames");
            assert_eq!((report.batches, report.frames), (batches - done, 22 - written));
            assert_eq!(steps.load(Ordering::SeqCst), batches - done, "batches computed again");
        }
    }
}

#[test]
fn a_cancelled_job_writes_no_frame_that_is_not_final() {
    let networks = TinyVae::new();
    let (_, whole) = networks.run(settings(2, Overlap::Smooth, 0), &job::identity, &clip());
    let (mut counts, mut checkpoints) = (FrameCounts::until(2), Checkcheckpoints::default());
    let (start, film_again) = ((None, Checkpoint::default()), MemorySource::new(&clip()));
    let watchers = (&mut counts as &mut dyn Observer, Some(&mut checkpoints as &mut dyn Recorder));
    let settings_again = settings(2, Overlap::Smooth, 0);
    let (report, _) = networks.resume_with_store(start, settings_again, &job::identity, film_again, watchers);
    assert!(report.is_err());
    let (written, point) = (counts.written, checkpoints.0.pop().unwrap());
    assert_eq!(point.frames, written, "frames behind the last point");
    let (_, rest) =
        networks.resume(point, settings(2, Overlap::Smooth, 0), &job::identity, MemorySource::new(&clip()), &mut ());
    assert!(rest[..] == whole[written..]);
}

/// Keeps everything, and for each batch whether it is whole.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<usize, (Vec<f32>, bool)>>);

impl Memory {
    fn whole(&self) -> usize {
        self.0.lock().unwrap().values().filter(|(_, whole)| *whole).count()
    }
}

impl BatchStore for Memory {
    fn put(&self, batch: usize, frames: &[f32], last: bool) {
        let mut kept = self.0.lock().unwrap();
        let (all, whole) = kept.entry(batch).or_default();
        assert!(!*whole, "batch {batch} is made once");
        all.extend_from_slice(frames);
        *whole = last;
    }

    fn get(&self, batch: usize) -> Option<Vec<f32>> {
        let kept = self.0.lock().unwrap();
        kept.get(&batch).filter(|(_, whole)| *whole).map(|(frames, _)| frames.clone())
    }

    fn put_latent(&self, turn: Turn, _: usize, _: &[f32]) {
        panic!("{turn:?}: no latent waits where every batch is decoded at once");
    }

    fn get_latent(&self, _: Turn, _: usize) -> Option<Vec<f32>> {
        None
    }
}

/// Whenever a job is killed, all batches but the one in work are kept, and only that one is computed again.
#[test]
fn what_was_made_is_kept_before_the_next_batch_begins() {
    let networks = TinyVae::new();
    for (overlap, lead_in) in [(0, 0), (2, 3)] {
        let settings = || settings(overlap, Overlap::Smooth, lead_in);
        let (memory, steps) = (Memory::default(), AtomicUsize::new(0));
        let step = |condition: &Latent, noise: &Latent| {
            let begun = steps.fetch_add(1, Ordering::SeqCst);
            assert_eq!(memory.whole(), begun, "batches kept when batch {begun} is in work");
            let mixed = condition.values.iter().zip(&noise.values).map(|(c, n)| c + 0.1 * n).collect();
            Ok(Latent { thw: condition.thw, values: mixed })
        };
        let mut checkpoints = Checkcheckpoints::default();
        let (report, whole) = networks.resume_with_store(
            (Some(&memory), Checkpoint::default()),
            settings(),
            &step,
            MemorySource::new(&clip()),
            (&mut (), Some(&mut checkpoints)),
        );
        let batches = report.unwrap().batches;
        for point in checkpoints.0 {
            for made in point.batches..=batches {
                let kept = |(batch, frames): (&usize, &(Vec<f32>, bool))| (*batch, frames.clone());
                let left = memory.0.lock().unwrap().range(point.batches..made).map(kept).collect();
                let left = Memory(Mutex::new(left));
                let (written, again) = (point.frames, AtomicUsize::new(0));
                let step = |condition: &Latent, noise: &Latent| {
                    again.fetch_add(1, Ordering::SeqCst);
                    let mixed = condition.values.iter().zip(&noise.values).map(|(c, n)| c + 0.1 * n).collect();
                    Ok(Latent { thw: condition.thw, values: mixed })
                };
                let (report, rest) = networks.resume_with_store(
                    (Some(&left), point.clone()),
                    settings(),
                    &step,
                    MemorySource::new(&clip()),
                    (&mut (), None),
                );
                assert!(rest[..] == whole[written..], "{} done, {made} made: other frames", point.batches);
                assert_eq!((again.into_inner(), report.unwrap().batches), (batches - made, batches - made));
            }
        }
    }
}
