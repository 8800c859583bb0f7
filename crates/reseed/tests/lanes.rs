//! Several devices give the frames of one, whatever their number and speed, and also when some of them fail.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use reseed::internals::{Checkpoint, Lane, Model, Recorder, RunPlan, Step, Upscaler};
use reseed::{Batching, Error, Event, Latent, Observer, Session, Settings, Target, Warning};
use reseed_media::{Depth, Frame, Sink, Size};
use reseed_testing::pipeline::job::{self, MemorySource, TinyVae};

const SIZE: Size = Size { h: 18, w: 26 };

/// Two shots of 23 and 18 frames.
fn clip() -> Vec<Frame> {
    let frame = |i: usize| {
        let shot = usize::from(i >= 23);
        let value = |k: usize| {
            let (x, y) = ((k / 3 % SIZE.w + i) as f32, (k / 3 / SIZE.w) as f32);
            [0.2, 0.75, 0.45][(shot + k % 3) % 3] + 0.15 * (0.2 * x + 0.1 * y).sin()
        };
        Frame::from_unit(SIZE, &(0..3 * SIZE.pixels()).map(value).collect::<Vec<_>>(), Depth::Eight)
    };
    (0..41).map(frame).collect()
}

fn settings(overlap: usize) -> Settings {
    let batching = Batching { size: 5, overlap, uniform: false };
    Settings { target: Target::Scale(1.3), batching, ..Settings::default() }
}

/// Sharpens a latent by its noise, so that every batch has its own result.
fn restore(condition: &Latent, noise: &Latent) -> Latent {
    let values = condition.values.iter().zip(&noise.values).map(|(value, noise)| value + 0.05 * noise).collect();
    Latent { values, ..*condition }
}

/// A lane's transformer: pauses for so many milliseconds, and fails from its `fails_at`th batch on. With a barrier its
/// first batch waits for those of the other lanes.
struct PacedStep<'a> {
    pause: u64,
    fails_at: usize,
    batches: AtomicUsize,
    together: Option<&'a Barrier>,
}

impl PacedStep<'_> {
    fn new<'a>(pause: u64, fails_at: usize) -> PacedStep<'a> {
        PacedStep { pause, fails_at, batches: AtomicUsize::new(0), together: None }
    }
}

impl Step for PacedStep<'_> {
    fn run(&self, condition: &Latent, noise: &Latent) -> reseed_model::Result<Latent> {
        let batch = self.batches.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(together) = self.together.filter(|_| batch == 1) {
            together.wait();
        }
        if batch >= self.fails_at {
            let (device, what) = ("test".to_owned(), "a launch".to_owned());
            return Err(reseed_ops::Error::Device { device, what, code: "unplugged".into() }.into());
        }
        thread::sleep(Duration::from_millis(self.pause));
        Ok(restore(condition, noise))
    }
}

/// The warnings of a job.
#[derive(Default)]
struct Warnings(Vec<Warning>);

impl Observer for Warnings {
    fn event(&mut self, event: &Event) {
        if let Event::Warning(warning) = event {
            self.0.push(warning.clone());
        }
    }
}

/// Runs the clip on a lane for each step.
fn run(steps: &[PacedStep], window: usize, overlap: usize) -> (Result<(), Error>, Vec<Frame>, Vec<Warning>) {
    let networks = TinyVae::new();
    let lane = |step| {
        let (ops, model) = (&networks.ops, Model { vae: &networks.vae, step });
        let plan = RunPlan { window, ..RunPlan::default() };
        Lane { ops, encoder_ops: ops, loader: None, model, plan, replanner: None, fallback: None }
    };
    let (settings, source, mut warnings) = (settings(overlap), MemorySource::new(&clip()), Warnings::default());
    let size = settings.output(&reseed_media::Source::info(&source).clone()).unwrap().size;
    let upscaler = Upscaler::on(steps.iter().map(|step| lane(step as &dyn Step)).collect(), settings);
    let (report, frames) = job::run_job(&upscaler, size, source, (Checkpoint::default(), &mut warnings, None));
    (report.map(|_| ()), frames, warnings.0)
}

const NEVER: usize = usize::MAX;

#[test]
fn any_number_of_lanes_gives_the_same_frames() {
    for (overlap, cases) in [(0, &[(2, 1), (7, 1)][..]), (4, &[(3, 1), (2, 3), (3, 64)])] {
        let (report, want, _) = run(&[PacedStep::new(0, NEVER)], 1, overlap);
        report.unwrap();
        assert_eq!(want.len(), 41);
        for &(lanes, window) in cases {
            // Lanes of different speed finish in another order than they begin.
            let barrier = Barrier::new(lanes);
            // Within a long window one lane may take all batches.
            let together = Some(&barrier).filter(|_| window == 1);
            let step = |i| PacedStep { together, ..PacedStep::new(7 * (lanes - i) as u64, NEVER) };
            let steps: Vec<_> = (0..lanes).map(step).collect();
            let (report, got, warnings) = run(&steps, window, overlap);
            report.unwrap();
            assert!(got == want, "{lanes} lanes, windows of {window}, overlap {overlap}: other frames");
            assert!(warnings.is_empty(), "{warnings:?}");
        }
    }
}

#[test]
fn the_batches_of_a_lost_lane_are_computed_by_the_others() {
    let (_, want, _) = run(&[PacedStep::new(0, NEVER)], 1, 1);
    for (window, fails_at) in [(1, 1), (1, 3), (3, 2), (64, 2)] {
        let barrier = Barrier::new(3);
        let together = Some(&barrier).filter(|_| window == 1);
        let steps = [(5, NEVER), (1, fails_at), (5, NEVER)];
        let steps = steps.map(|(pause, fails_at)| PacedStep { together, ..PacedStep::new(pause, fails_at) });
        let (report, got, warnings) = run(&steps, window, 1);
        report.unwrap();
        assert!(got == want, "windows of {window}, lost at batch {fails_at}: other frames");
        let reason = "test: a launch failed: unplugged";
        // A lane that gets no batch before the others are done is not lost.
        let lost = steps[1].batches.load(Ordering::SeqCst) >= fails_at;
        assert_eq!(warnings.len(), usize::from(lost), "{warnings:?}");
        assert!(warnings.iter().all(|warning| warning.to_string().ends_with(reason)), "{warnings:?}");
    }
}

#[test]
fn a_job_fails_with_its_last_lane() {
    let steps = [PacedStep::new(1, 2), PacedStep::new(1, 3)];
    let (report, frames, warnings) = run(&steps, 1, 1);
    assert!(report.unwrap_err().to_string().contains("unplugged"));
    assert_eq!((frames.len(), warnings.len()), (0, 1));
}

/// Cancels after the first checkpoint and keeps it.
#[derive(Default)]
struct FirstCheckpoint(Mutex<Option<Checkpoint>>);

impl Recorder for &FirstCheckpoint {
    fn record(&mut self, checkpoint: &Checkpoint, _: &mut dyn Sink) -> reseed_media::Result<()> {
        self.0.lock().unwrap().get_or_insert_with(|| checkpoint.clone());
        Ok(())
    }
}

impl Observer for &FirstCheckpoint {
    fn event(&mut self, _: &Event) {}

    fn cancelled(&mut self) -> bool {
        self.0.lock().unwrap().is_some()
    }
}

#[test]
fn a_cancelled_job_of_three_lanes_resumes_on_two() {
    let networks = TinyVae::new();
    let step = |condition: &Latent, noise: &Latent| Ok(restore(condition, noise));
    let upscaler = |lanes: usize| {
        let (ops, model) = (&networks.ops, Model { vae: &networks.vae, step: &step });
        let (plan, replanner, fallback) = (RunPlan::default(), None, None);
        let lane = Lane { ops, encoder_ops: ops, loader: None, model, plan, replanner, fallback };
        Upscaler::on(vec![lane; lanes], settings(1))
    };
    let source = || MemorySource::new(&clip());
    let size = settings(1).output(&reseed_media::Source::info(&source()).clone()).unwrap().size;
    let (_, want) = job::run_job(&upscaler(1), size, source(), (Checkpoint::default(), &mut (), None));
    let first = FirstCheckpoint::default();
    let (mut observer, mut recorder) = (&first, &first);
    let from = (Checkpoint::default(), &mut observer as &mut dyn Observer, Some(&mut recorder as &mut dyn Recorder));
    let (report, _) = job::run_job(&upscaler(3), size, source(), from);
    assert!(matches!(report.unwrap_err(), Error::Cancelled));
    let point = first.0.into_inner().unwrap().unwrap();
    let written = point.frames;
    let (report, rest) = job::run_job(&upscaler(2), size, source(), (point, &mut (), None));
    report.unwrap();
    assert!(rest == want[written..], "other frames after {written}");
}

#[test]
fn sessions_compute_on_several_devices() {
    let upscale = |device: &str| {
        let session = Session::builder().model("formula:tiny").device(device).threads(1).open().unwrap();
        let frames = session.upscale_frames(clip()[..12].to_vec(), &settings(1), &mut ()).unwrap();
        let again = session.upscale_frames(clip()[..12].to_vec(), &settings(1), &mut ()).unwrap();
        assert!(frames == again, "{device}: other frames with the same networks");
        (session.device().unwrap(), frames)
    };
    let (one, want) = upscale("cpu");
    let (two, got) = upscale("cpu,cpu");
    assert!(got == want, "other frames on two devices");
    assert_eq!(two, format!("2 x {one}"));
}
