//! Clips in the memory of a device give the frames of clips in host memory, in their places.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use reseed::internals::{Checkpoint, ClipInput, DeviceInput, Lane, Model, RunPlan, Upscaler};
use reseed::{Batching, Error, Event, Latent, Observer, Settings, Target};
use reseed_media::{Depth, Frame, Samples, Sink, Size, Source};
use reseed_ops::{DeviceResult, DeviceSamples, FrameOps, FrameResults, FrameSlice};
use reseed_testing::pipeline::job::{MemorySource, TinyVae};

const SIZE: Size = Size { h: 14, w: 22 };

fn clip() -> Vec<Frame> {
    let frame = |i: usize| {
        let value = |k: usize| 0.5 + 0.3 * ((k / 3 % SIZE.w + 2 * i) as f32 * 0.3 + (k % 3) as f32).sin();
        Frame::from_unit(SIZE, &(0..3 * SIZE.pixels()).map(value).collect::<Vec<_>>(), Depth::Sixteen)
    };
    (0..13).map(frame).collect()
}

fn settings(overlap: usize, lead_in: usize) -> Settings {
    let batching = Batching { size: 5, overlap, uniform: false };
    Settings { target: Target::Scale(1.5), batching, lead_in, detect_shots: false, ..Settings::default() }
}

fn brighter(condition: &Latent, noise: &Latent) -> reseed_model::Result<Latent> {
    let values = condition.values.iter().zip(&noise.values).map(|(value, noise)| value + 0.05 * noise).collect();
    Ok(Latent { values, ..*condition })
}

/// Samples in the memory of a device, which is that of the host here. Counts how often they are fetched, or cannot be.
struct Remote {
    samples: Vec<u8>,
    fetches: Arc<AtomicUsize>,
    broken: bool,
}

impl DeviceSamples for Remote {
    fn fetch(&self) -> reseed_ops::Result<Vec<u8>> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        match self.broken {
            true => Err(lost()),
            false => Ok(self.samples.clone()),
        }
    }
}

fn lost() -> reseed_ops::Error {
    reseed_ops::Error::Device { device: "test".into(), what: "a copy".into(), code: "unplugged".into() }
}

#[derive(Default)]
struct Place(Arc<Mutex<Vec<u8>>>);

impl DeviceResult for Place {
    fn store(&self, samples: &[u8]) -> reseed_ops::Result<()> {
        *self.0.lock().unwrap() = samples.to_vec();
        Ok(())
    }

    fn fetch(&self) -> reseed_ops::Result<Vec<u8>> {
        Ok(self.0.lock().unwrap().clone())
    }
}

/// Has no frame to receive.
struct NoSink;

impl Sink for NoSink {
    fn write(&mut self, _: &Frame) -> reseed_media::Result<()> {
        panic!("a frame for the sink")
    }

    fn finish(self: Box<Self>) -> reseed_media::Result<()> {
        Ok(())
    }
}

/// Finishes every frame as zeros, in its place.
struct Black;

impl FrameOps for Black {
    fn finish(&self, slice: &FrameSlice, results: &mut FrameResults) -> reseed_ops::Result<()> {
        assert_eq!(slice.frames.len(), results.frames.len());
        results.frames.iter().try_for_each(|result| result.on_device().expect("a place").store(&[]))
    }
}

/// The frames that an observer saw.
#[derive(Default)]
struct Watcher {
    wants: bool,
    seen: Vec<Frame>,
    counted: usize,
}

impl Observer for Watcher {
    fn event(&mut self, event: &Event) {
        if let Event::Frames(frames) = event {
            self.counted += frames;
        }
    }

    fn frame(&mut self, frame: &Frame) {
        self.seen.push(frame.clone());
    }

    fn watches_frames(&mut self) -> bool {
        self.wants
    }
}

/// Runs the clip in device memory; returns the places and how often frames were fetched.
fn run(
    settings: Settings,
    (lanes, broken): (usize, bool),
    frames: Option<&dyn FrameOps>,
    observer: &mut dyn Observer,
) -> (Result<usize, Error>, Vec<Vec<u8>>, usize) {
    let (networks, fetches) = (TinyVae::new(), Arc::new(AtomicUsize::new(0)));
    let lane = |_| {
        let (ops, model) = (&networks.ops, Model { vae: &networks.vae, step: &brighter });
        Lane { ops, encoder_ops: ops, loader: None, model, plan: RunPlan::default(), replanner: None, fallback: None }
    };
    let input = |frame: &Frame| {
        let samples = Remote { samples: frame.samples.as_bytes().to_vec(), fetches: fetches.clone(), broken };
        DeviceInput { size: SIZE, depth: frame.depth(), samples: Box::new(samples) }
    };
    let contents: Vec<Arc<Mutex<Vec<u8>>>> = clip().iter().map(|_| Arc::default()).collect();
    let places = contents.iter().map(|content| Box::new(Place(content.clone())) as Box<dyn DeviceResult>);
    let places: Vec<_> = places.collect();
    let upscaler = Upscaler::on((0..lanes).map(lane).collect(), settings).finishing_on(frames).finishing_to(&places);
    let info = MemorySource::new(&clip()).info().clone();
    let clip = ClipInput::Device(&info, clip().iter().map(input).collect());
    let report = upscaler.resume(Checkpoint::default(), clip, Box::new(NoSink), (observer, None));
    let contents = contents.iter().map(|content| content.lock().unwrap().clone()).collect();
    (report.map(|report| report.frames), contents, fetches.load(Ordering::SeqCst))
}

fn on_host(settings: &Settings) -> Vec<Samples> {
    let (report, frames) = TinyVae::new().run(settings.clone(), &brighter, &clip());
    report.unwrap();
    frames.into_iter().map(|frame| frame.samples).collect()
}

#[test]
fn every_frame_is_finished_in_its_place() {
    for (overlap, lead_in, lanes) in [(0, 0, 1), (1, 0, 2), (3, 4, 1), (2, 2, 2)] {
        let settings = settings(overlap, lead_in);
        let wanted = on_host(&settings);
        let mut watcher = Watcher { wants: true, ..Watcher::default() };
        let (frames, places, fetches) = run(settings, (lanes, false), None, &mut watcher);
        assert_eq!((frames.unwrap(), watcher.counted), (13, 13));
        let case = format!("overlap {overlap}, lead-in {lead_in}, {lanes} lanes");
        assert!(wanted.iter().map(Samples::as_bytes).eq(places.iter().map(|place| &place[..])), "{case}");
        assert!(wanted.iter().eq(watcher.seen.iter().map(|frame| &frame.samples)), "{case}: what the observer saw");
        assert_eq!(fetches, 13, "{case}: every frame is fetched once");
    }
}

#[test]
fn a_device_finishes_frames_and_nobody_fetches_them() {
    let mut watcher = Watcher::default();
    let (frames, places, _) = run(settings(1, 0), (1, false), Some(&Black), &mut watcher);
    assert_eq!(frames.unwrap(), 13);
    assert!(watcher.seen.is_empty() && places.iter().all(Vec::is_empty));
}

#[test]
fn a_frame_that_cannot_be_fetched_is_an_error() {
    for lanes in [1, 2] {
        let (frames, _, _) = run(settings(0, 0), (lanes, true), None, &mut ());
        let error = frames.unwrap_err().to_string();
        assert!(error.contains("unplugged"), "{error}");
    }
}
