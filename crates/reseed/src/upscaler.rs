//! The job: stages on threads of their own, joined by channels that hold little, so that reading, computing,
//! post-processing and writing overlap in memory that does not grow with the clip.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use reseed_media::{Sink, Source};
use reseed_model::Vae;
use reseed_ops::{CopyTime, Device};

use crate::batch_store::{BatchStore, FrameSender, made};
use crate::checkpoint::Checkpoint;
use crate::compute::{Compute, PhaseTimes, pass};
use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::memory;
use crate::phase::{Phase, PhaseCell};
use crate::post::{Post, PostOutput};
use crate::prepare::Prepare;
use crate::read::{ReadReport, Reader};
use crate::report::{Report, timed};
use crate::settings::{Settings, VaePlan};
use crate::view::View;

/// How often someone who waits for a frame asks whether the job was cancelled.
const PATIENCE: Duration = Duration::from_millis(50);
/// Finished frames that wait for the writer: enough for it to work while a slice is corrected.
const FRAMES_AHEAD: usize = 8;
/// Slices that wait for the networks, and slices that they may be ahead of post-processing.
const SLICES_AHEAD: usize = 2;

/// One step of the diffusion transformer, wherever it computes.
pub trait Step: Send + Sync {
    /// The restored latent for a batch: `condition` is what its frames were encoded to, `noise` what the step starts
    /// from; all three have one shape.
    fn run(&self, condition: &Latent, noise: &Latent) -> reseed_model::Result<Latent>;

    /// Where layers wait in the host's memory: the same step with `layers` of them on the device for as long as it lives,
    /// for several batches in a row.
    fn fetch_layers(&self, _layers: usize) -> reseed_model::Result<Option<Box<dyn Step + '_>>> {
        Ok(None)
    }

    /// How long copies between host and device took since the last call.
    fn copy_time(&self) -> reseed_model::Result<CopyTime> {
        Ok(CopyTime::default())
    }
}

impl<F: Fn(&Latent, &Latent) -> reseed_model::Result<Latent> + Send + Sync> Step for F {
    fn run(&self, condition: &Latent, noise: &Latent) -> reseed_model::Result<Latent> {
        self(condition, noise)
    }
}

/// The networks of a job.
#[derive(Clone, Copy)]
pub struct Model<'a> {
    /// Pictures to latents and back.
    pub vae: &'a Vae,
    /// Latents to restored ones.
    pub step: &'a dyn Step,
}

/// How a job goes on in less memory.
pub struct Replan {
    /// The VAE's plan, with slices and tiles as they were.
    pub vae: VaePlan,
    /// Layers of the transformer that come for its turn.
    pub layers: usize,
}

/// Knows how a job goes on when its device has less memory than there was.
pub trait Replanner: Sync {
    /// A way that takes less than the last one, of which nothing is on the device any more; nothing where there is none.
    fn smaller(&self) -> Option<Replan>;
}

/// Hears of a job while it runs, on the thread that started it.
pub trait Progress {
    /// So many more frames are written.
    fn advance(&mut self, frames: usize);

    /// What the networks are doing. Told several times a second.
    fn working(&mut self, _phase: Phase) {}

    /// Whether the job shall compute no further than the slice in hand. What is finished is still written. Asked several
    /// times a second.
    fn cancelled(&mut self) -> bool {
        false
    }

    /// Whether [`Progress::batch_done`] shall be called. Points take memory: where batches share frames, that of a batch.
    fn wants_points(&self) -> bool {
        false
    }

    /// All frames that came of a batch are written to `sink`; [`Upscaler::resume`] can go on from `point`.
    fn batch_done(&mut self, _point: &Checkpoint, _sink: &mut dyn Sink) -> reseed_media::Result<()> {
        Ok(())
    }
}

/// For those who do not want to hear.
impl Progress for () {
    fn advance(&mut self, _frames: usize) {}
}

/// Restores and upscales clips.
pub struct Upscaler<'a> {
    networks: Option<(&'a dyn Device, Model<'a>)>,
    encoder_ops: Option<&'a dyn Device>,
    settings: Settings,
    fit: Option<&'a dyn Replanner>,
    keep: Option<&'a dyn BatchStore>,
}

impl<'a> Upscaler<'a> {
    /// A job's device, networks and settings.
    pub fn new(ops: &'a dyn Device, model: Model<'a>, settings: Settings) -> Upscaler<'a> {
        assert!(settings.batching.size > 0 && settings.vae.slice > 0, "batches and slices have frames");
        assert!(settings.turns.window > 0, "a window has batches");
        Upscaler { networks: Some((ops, model)), encoder_ops: None, settings, fit: None, keep: None }
    }

    /// The same with the encoder on the device that it was loaded for.
    pub fn encoding_on(self, ops: &'a dyn Device) -> Upscaler<'a> {
        Upscaler { encoder_ops: Some(ops), ..self }
    }

    /// The same on a device whose memory may be taken by others: `fit` is asked when something finds no place, and the
    /// batch in hand runs again.
    pub fn fitting(self, fit: Option<&'a dyn Replanner>) -> Upscaler<'a> {
        Upscaler { fit, ..self }
    }

    /// The same with a place for what the networks made, until it is written.
    pub fn keeping(self, keep: Option<&'a dyn BatchStore>) -> Upscaler<'a> {
        Upscaler { keep, ..self }
    }

    /// A job without networks: pictures are resized and come out as they went in. For everything around them.
    pub fn identity(settings: Settings) -> Upscaler<'a> {
        Upscaler { networks: None, encoder_ops: None, settings, fit: None, keep: None }
    }

    /// Runs the job: every frame of `source` goes restored to `sink`, which is finished behind the last. Whatever goes
    /// wrong, all threads have ended when this returns and the sink is dropped unfinished.
    pub fn run(&self, source: &mut dyn Source, sink: Box<dyn Sink>, progress: &mut dyn Progress) -> Result<Report> {
        self.resume(Checkpoint::default(), source, sink, progress)
    }

    /// Goes on from a point of a job with the same settings, networks and source, which starts anew. `sink` has the frames that were written up to that point, and gets the same as in a run without
    /// interruption. The report counts what was done this time.
    pub fn resume(
        &self,
        from: Checkpoint,
        source: &mut dyn Source,
        mut sink: Box<dyn Sink>,
        progress: &mut dyn Progress,
    ) -> Result<Report> {
        let start = Instant::now();
        let mut report = self.stages(from, source, &mut *sink, progress)?;
        timed(&mut report.times.write, || sink.finish()).map_err(Error::Output)?;
        report.times.total = start.elapsed();
        report.peak_memory = memory::peak();
        Ok(report)
    }

    fn stages(
        &self,
        from: Checkpoint,
        source: &mut dyn Source,
        sink: &mut dyn Sink,
        progress: &mut dyn Progress,
    ) -> Result<Report> {
        let (settings, info) = (&self.settings, source.info().clone());
        let view = View::new(settings.geometry(&info)?);
        let (stop, phase) = (AtomicBool::new(false), PhaseCell::default());
        let (done, first, before, shot) = (from.batches, from.first_held(), from.frames, from.shot);
        let keep = self.keep.filter(|_| self.networks.is_some());
        let made = made(keep, done);
        let computed = done + made.len();
        let reader = Reader { settings, done: computed, first, shot, view: &view, stop: &stop };
        let latents = self.networks.map(|_| settings.vae.slice);
        let needs_pixels = self.networks.is_some() || !settings.hands_on(&info);
        let prepare = Prepare { view: &view, latents, needs_pixels, done: computed };
        let (view, phase, stop) = (&view, &phase, &stop);
        let (vae, layers) = (settings.vae.clone(), settings.turns.layers);
        let turns = Replan { vae, layers };
        let compute = self.networks.map(|(ops, model)| {
            let (encoder_ops, done, fit) = (self.encoder_ops.unwrap_or(ops), computed, self.fit);
            // Where every batch goes through all networks at once, no latent waits.
            let keep = keep.filter(|_| settings.turns.window > 1);
            Compute { ops, encoder_ops, model, settings, view, done, phase, stop, turns, fit, keep }
        });
        let post = Post::new(settings, view, info.depth, stop).resume_from(from, progress.wants_points());
        let (batches, batches_in) = sync_channel(1);
        let (slices, slices_in) = sync_channel(SLICES_AHEAD);
        let (decoded, decoded_in) = sync_channel(SLICES_AHEAD);
        let decoded = FrameSender::new(decoded, keep, done, made);
        let (frames, frames_in) = sync_channel(FRAMES_AHEAD);
        thread::scope(|scope| {
            let failed = |_: &Error| stop.store(true, Ordering::Relaxed);
            let read = scope.spawn(move || reader.run(source, &batches).inspect_err(failed));
            let resize = scope.spawn(move || prepare.run(batches_in, slices));
            let compute = scope.spawn(move || match compute {
                Some(compute) => compute.run(&slices_in, &decoded).inspect_err(failed),
                None => Ok(pass(&slices_in, &decoded)),
            });
            let post = scope.spawn(move || post.run(&decoded_in, &frames));
            let write = Write { sink, progress, phase, view, stop };
            let written = write.run(&frames_in).inspect_err(failed);
            drop(frames_in);
            let (read, resize, compute, post) = (join(read), join(resize), join(compute), join(post));
            // A stage that fails ends the others quietly, so that at most one of the three has a reason to tell.
            let (ReadReport { shots, batches, time }, computed, mut report) = (read?, compute?, written?);
            if before + report.frames == 0 {
                return Err(Error::NoFrames);
            }
            (report.shots, report.batches) = (shots, batches);
            (report.times.read, report.times.resize, report.times.post_process) = (time, resize, post);
            let PhaseTimes { encode, upscale, decode, streaming } = computed;
            report.streaming = streaming;
            (report.times.encode, report.times.upscale, report.times.decode) = (encode, upscale, decode);
            Ok(report)
        })
    }
}

fn join<T>(thread: ScopedJoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The last stage, on the thread of whoever started the job.
struct Write<'a> {
    sink: &'a mut dyn Sink,
    progress: &'a mut dyn Progress,
    phase: &'a PhaseCell,
    view: &'a View,
    stop: &'a AtomicBool,
}

impl Write<'_> {
    /// Writes what comes. A job that is cancelled computes nothing more, but what is computed is still written.
    fn run(self, from: &Receiver<PostOutput>) -> Result<Report> {
        let (mut report, mut cancelled) = (Report::default(), false);
        loop {
            let done = from.recv_timeout(PATIENCE);
            self.progress.working(self.phase.get());
            cancelled |= self.progress.cancelled();
            self.stop.fetch_or(cancelled, Ordering::Relaxed);
            let write = &mut report.times.write;
            match done {
                Ok(PostOutput::Checkpoint(point)) => timed(write, || self.progress.batch_done(&point, self.sink)),
                Ok(PostOutput::Frame(frame)) => {
                    report.frames += 1;
                    let written = timed(write, || self.sink.write(&frame)).inspect(|()| self.progress.advance(1));
                    self.view.sample_pool().recycle(frame.samples);
                    written
                }
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) if cancelled => return Err(Error::Cancelled),
                Err(RecvTimeoutError::Disconnected) => return Ok(report),
            }
            .map_err(Error::Output)?;
        }
    }
}
