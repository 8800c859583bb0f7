//! A resumed job writes the same frames as an uninterrupted one and computes no batch twice.
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

/// Records the checkpoint of every batch.
#[derive(Default)]
struct Checkpoints(Vec<Checkpoint>);

impl Recorder for Checkpoints {
    fn record(&mut self, checkpoint: &Checkpoint, _sink: &mut dyn Sink) -> reseed_media::Result<()> {
        self.0.push(checkpoint.clone());
        Ok(())
    }
}

/// Counts written frames and checkpoints, and cancels the job after some checkpoints.
struct CancelAfter {
    written: usize,
    saved: usize,
    limit: usize,
}

impl CancelAfter {
    fn checkpoints(limit: usize) -> CancelAfter {
        CancelAfter { written: 0, saved: 0, limit }
    }
}

impl Observer for CancelAfter {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Frames(frames) => self.written += frames,
            Event::Saved { frames } => {
                assert_eq!(*frames, self.written, "a checkpoint counts the written frames");
                self.saved += 1;
            }
            _ => {}
        }
    }

    fn cancelled(&mut self) -> bool {
        self.saved >= self.limit
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
fn a_job_resumes_from_the_checkpoint_of_every_batch() {
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
        let mut checkpoints = Checkpoints::default();
        let (mut counts, start) = (CancelAfter::checkpoints(usize::MAX), (None, Checkpoint::default()));
        let watchers = (&mut counts as &mut dyn Observer, Some(&mut checkpoints as &mut dyn Recorder));
        let (report, whole) =
            networks.resume_with_store(start, settings(), &step, MemorySource::new(&clip()), watchers);
        let batches = report.unwrap().batches;
        assert_eq!((whole.len(), checkpoints.0.len()), (22, batches), "{overlap}");
        assert_eq!(checkpoints.0.iter().any(|checkpoint| !checkpoint.held.is_empty()), overlap > 0);
        for checkpoint in checkpoints.0 {
            let (done, written) = (checkpoint.batches, checkpoint.frames);
            steps.store(0, Ordering::SeqCst);
            let (report, rest) = networks.resume(checkpoint, settings(), &step, MemorySource::new(&clip()), &mut ());
            let report = report.unwrap();
            assert!(rest[..] == whole[written..], "overlap {overlap}, from batch {done}: frames differ");
            assert_eq!((report.batches, report.frames), (batches - done, 22 - written));
            assert_eq!(steps.load(Ordering::SeqCst), batches - done, "batches computed again");
        }
    }
}

#[test]
fn a_cancelled_job_writes_final_frames_only() {
    let networks = TinyVae::new();
    let (_, whole) = networks.run(settings(2, Overlap::Smooth, 0), &job::identity, &clip());
    let (mut counts, mut checkpoints) = (CancelAfter::checkpoints(2), Checkpoints::default());
    let (start, source) = ((None, Checkpoint::default()), MemorySource::new(&clip()));
    let watchers = (&mut counts as &mut dyn Observer, Some(&mut checkpoints as &mut dyn Recorder));
    let again = settings(2, Overlap::Smooth, 0);
    let (report, _) = networks.resume_with_store(start, again, &job::identity, source, watchers);
    assert!(report.is_err());
    let (written, checkpoint) = (counts.written, checkpoints.0.pop().unwrap());
    assert_eq!(checkpoint.frames, written, "frames were written after the last checkpoint");
    let (_, rest) = networks.resume(
        checkpoint,
        settings(2, Overlap::Smooth, 0),
        &job::identity,
        MemorySource::new(&clip()),
        &mut (),
    );
    assert!(rest[..] == whole[written..]);
}

/// Stores the frames of every batch and whether the batch is complete.
#[derive(Default)]
struct MemoryStore(Mutex<BTreeMap<usize, (Vec<f32>, bool)>>);

impl MemoryStore {
    fn complete(&self) -> usize {
        self.0.lock().unwrap().values().filter(|(_, complete)| *complete).count()
    }
}

impl BatchStore for MemoryStore {
    fn put(&self, batch: usize, frames: &[f32], last: bool) {
        let mut stored = self.0.lock().unwrap();
        let (all, complete) = stored.entry(batch).or_default();
        assert!(!*complete, "batch {batch} is stored twice");
        all.extend_from_slice(frames);
        *complete = last;
    }

    fn restart(&self) {
        panic!("no batch begins again");
    }

    fn get(&self, batch: usize) -> Option<Vec<f32>> {
        let stored = self.0.lock().unwrap();
        stored.get(&batch).filter(|(_, complete)| *complete).map(|(frames, _)| frames.clone())
    }

    fn put_latent(&self, turn: Turn, _: usize, _: &[f32]) {
        panic!("{turn:?}: a job with windows of one batch stores no latents");
    }

    fn get_latent(&self, _: Turn, _: usize) -> Option<Vec<f32>> {
        None
    }
}

/// A job that is killed at any time loses only the batch that it computes.
#[test]
fn a_batch_is_stored_before_the_next_one_starts() {
    let networks = TinyVae::new();
    for (overlap, lead_in) in [(0, 0), (2, 3)] {
        let settings = || settings(overlap, Overlap::Smooth, lead_in);
        let (store, steps) = (MemoryStore::default(), AtomicUsize::new(0));
        let step = |condition: &Latent, noise: &Latent| {
            let started = steps.fetch_add(1, Ordering::SeqCst);
            assert_eq!(store.complete(), started, "batches stored when batch {started} starts");
            let mixed = condition.values.iter().zip(&noise.values).map(|(c, n)| c + 0.1 * n).collect();
            Ok(Latent { thw: condition.thw, values: mixed })
        };
        let mut checkpoints = Checkpoints::default();
        let (report, whole) = networks.resume_with_store(
            (Some(&store), Checkpoint::default()),
            settings(),
            &step,
            MemorySource::new(&clip()),
            (&mut (), Some(&mut checkpoints)),
        );
        let batches = report.unwrap().batches;
        for checkpoint in checkpoints.0 {
            for computed in checkpoint.batches..=batches {
                let stored = |(batch, frames): (&usize, &(Vec<f32>, bool))| (*batch, frames.clone());
                let left = store.0.lock().unwrap().range(checkpoint.batches..computed).map(stored).collect();
                let left = MemoryStore(Mutex::new(left));
                let (written, repeated) = (checkpoint.frames, AtomicUsize::new(0));
                let step = |condition: &Latent, noise: &Latent| {
                    repeated.fetch_add(1, Ordering::SeqCst);
                    let mixed = condition.values.iter().zip(&noise.values).map(|(c, n)| c + 0.1 * n).collect();
                    Ok(Latent { thw: condition.thw, values: mixed })
                };
                let (report, rest) = networks.resume_with_store(
                    (Some(&left), checkpoint.clone()),
                    settings(),
                    &step,
                    MemorySource::new(&clip()),
                    (&mut (), None),
                );
                assert!(
                    rest[..] == whole[written..],
                    "{} done, {computed} computed: frames differ",
                    checkpoint.batches
                );
                assert_eq!((repeated.into_inner(), report.unwrap().batches), (batches - computed, batches - computed));
            }
        }
    }
}
