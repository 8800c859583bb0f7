//! `reseed bench upscale`: a whole job from memory to nowhere, once it has settled.

use std::time::Instant;

use reseed::batch::Batching;
use reseed::{Model, Progress, Replanner, Report, Settings, Upscaler};
use reseed_media::{Frame, Info, Sink, Size, Source};
use reseed_ops::Hw;
use serde_json::json;

use super::color::frame;
use crate::args::bench::JobBenchArgs;
use crate::crew::Devices;
use crate::failure::{Failure, Result};
use crate::model::Weights;
use crate::outline::{BudgetReplanner, JobPlan, JobPlanner, Loaded};
use crate::report::{MemoryWatch, bytes};
use crate::upscale::{phases, plan_args, settings};

pub fn run(args: &JobBenchArgs) -> Result<()> {
    let batch = usize::from(args.batch_size);
    if args.batches < 2 {
        return Err(Failure::Usage("--batches: the first one is not counted, so that two are needed".into()));
    }
    let batching = Batching { size: batch, overlap: 0, uniform: false };
    let settings = Settings { batching, detect_shots: false, ..settings(&args.job)? };
    let frames = batch * args.batches as usize;
    let mut film = Film::new(args.from, batch, frames);
    let weights = Weights::open(args.job.model(), None)?;
    let mut settings = weights.suited(settings, &args.job)?;
    let devices = Devices::new(&args.job.compute, args.job.max_vram, Some(&weights))?;
    let (device, transformer) = (&devices.device, devices.transformer());
    let (plan, geometry) = (plan_args(&args.job), settings.geometry(film.info())?);
    let outline = JobPlanner { weights: &weights, device, transformer, plan, geometry, batch };
    let Loaded { networks, choice, .. } = outline.load(outline.choose()?, None, &mut settings)?;
    let shrinking = BudgetReplanner::new(&outline, networks.vae(), &choice, &settings);
    let fit = device.card.is_some().then_some(&shrinking as &dyn Replanner);
    let size = settings.output(film.info())?.size;
    let watch = MemoryWatch::start();
    let mut clock = Clock { counted: batch, frames: 0, first: None, last: Instant::now() };
    let step = networks.transformer(&*transformer.ops);
    let model = Model { vae: networks.vae(), step: &step };
    let upscaler = Upscaler::new(&*device.ops, model, settings).fitting(fit);
    let upscaler = upscaler.encoding_on(&*devices.encoder().ops);
    let report = upscaler.run(&mut film, Box::new(Nowhere), &mut clock)?;
    let first = clock.first.unwrap_or(clock.last);
    let fps = (frames - batch) as f64 / (clock.last - first).as_secs_f64().max(1e-9);
    let peak = device.card.as_ref().map(|card| card.peak_bytes());
    tell(args, &Outcome { report, fps, size, peak, choice }, &watch);
    Ok(())
}

struct Outcome {
    report: Report,
    /// Behind the first batch.
    fps: f64,
    size: Size,
    /// Bytes of the card's memory.
    peak: Option<usize>,
    choice: JobPlan,
}

fn tell(args: &JobBenchArgs, outcome: &Outcome, watch: &MemoryWatch) {
    let Outcome { report, fps, size, peak, choice } = outcome;
    let (phases, hidden, step) = (phases(report), report.streaming.hidden(), &choice.turns.step);
    if args.job.compute.json {
        let times = phases.into_iter().map(|(name, seconds)| (name.replace('-', "_"), json!(seconds)));
        say!(
            "{}",
            json!({"event": "bench", "command": "upscale", "size": size.to_string(), "frames": report.frames,
                   "batch": args.batch_size, "fps": fps, "fps_with_start": report.fps(),
                   "phases": times.collect::<serde_json::Map<_, _>>(), "card_peak_bytes": peak,
                   "layers": step.layers, "resident_layers": step.resident,
                   "swapped": choice.is_apart(), "window": choice.window,
                   "streaming_seconds": report.streaming.copying, "streaming_hidden": hidden})
        );
        return;
    }
    let (batch, frames) = (args.batch_size, report.frames);
    say!(
        "{frames} frames to {size} in batches of {batch}: {fps:.2} fps behind the first batch, {:.2} with it",
        report.fps()
    );
    phases.iter().for_each(|(name, seconds)| say!("{name:<13} {:>9.1} ms a frame", 1e3 * seconds / frames as f64));
    say!("{}", watch.line());
    if let Some(peak) = peak {
        let (stay, layers) = (step.resident, step.layers);
        let copying = report.streaming.copying;
        let turns = match choice.is_apart() {
            true => format!("come for windows of {}", choice.window),
            false => "stay".into(),
        };
        say!("card: {} of its memory; {stay} of {layers} layers {turns}", bytes(*peak));
        say!("copies during steps: {copying:.2} s, {:.0}% hidden", 100.0 * hidden);
    }
}

/// A batch of frames, over and over.
struct Film {
    info: Info,
    frames: Vec<Frame>,
    next: usize,
    count: usize,
}

impl Film {
    fn new(Hw { h, w }: Hw, batch: usize, count: usize) -> Film {
        let size = Size { h, w };
        let info = Info { size, frames: Some(count), ..reseed_media::sample().info().clone() };
        Film { info, frames: (0..batch).map(|i| frame(size, i)).collect(), next: 0, count }
    }
}

impl Source for Film {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> reseed_media::Result<Option<Frame>> {
        self.next += 1;
        Ok((self.next <= self.count).then(|| self.frames[(self.next - 1) % self.frames.len()].clone()))
    }
}

struct Nowhere;

impl Sink for Nowhere {
    fn write(&mut self, _: &Frame) -> reseed_media::Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> reseed_media::Result<()> {
        Ok(())
    }
}

/// When the first batch was done, and the last frame.
struct Clock {
    counted: usize,
    frames: usize,
    first: Option<Instant>,
    last: Instant,
}

impl Progress for Clock {
    fn advance(&mut self, frames: usize) {
        self.last = Instant::now();
        self.frames += frames;
        if self.frames == self.counted {
            self.first = Some(self.last);
        }
    }
}
