//! The job: stages on threads of their own, joined by channels that hold little, so that reading, computing,
//! post-processing and writing overlap in memory that does not grow with the clip.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use reseed_media::{Frame, Sink, Source};
use reseed_model::Vae;
use reseed_ops::{CopyTime, Ops};

use crate::compute::{Compute, PhaseTimes};
use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::memory;
use crate::post::Post;
use crate::prepare::prepare;
use crate::read::{Read, Reader};
use crate::report::{Report, timed};
use crate::settings::Settings;
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

/// Hears of a job while it runs, on the thread that started it.
pub trait Progress {
    /// So many more frames are written.
    fn advance(&mut self, frames: usize);

    /// Whether the job shall end after the slice in hand. Asked several times a second.
    fn cancelled(&mut self) -> bool {
        false
    }
}

/// For those who do not want to hear.
impl Progress for () {
    fn advance(&mut self, _frames: usize) {}
}

/// Restores and upscales clips.
pub struct Upscaler<'a> {
    ops: &'a dyn Ops,
    model: Model<'a>,
    settings: Settings,
}

impl<'a> Upscaler<'a> {
    /// A job's device, networks and settings.
    pub fn new(ops: &'a dyn Ops, model: Model<'a>, settings: Settings) -> Upscaler<'a> {
        assert!(settings.batching.size > 0 && settings.vae.slice > 0, "batches and slices have frames");
        Upscaler { ops, model, settings }
    }

    /// Runs the job: every frame of `source` goes restored to `sink`, which is finished behind the last. Whatever goes
    /// wrong, all threads have ended when this returns and the sink is dropped unfinished.
    pub fn run(&self, source: &mut dyn Source, mut sink: Box<dyn Sink>, progress: &mut dyn Progress) -> Result<Report> {
        let start = Instant::now();
        let mut report = self.stages(source, &mut *sink, progress)?;
        timed(&mut report.times.write, || sink.finish()).map_err(Error::Output)?;
        report.times.total = start.elapsed();
        report.peak_memory = memory::peak();
        Ok(report)
    }

    fn stages(&self, source: &mut dyn Source, sink: &mut dyn Sink, progress: &mut dyn Progress) -> Result<Report> {
        let info = source.info().clone();
        let view = View::new(self.settings.geometry(&info)?);
        let stop = AtomicBool::new(false);
        let reader = Reader { settings: &self.settings, stop: &stop };
        let compute = Compute { ops: self.ops, model: self.model, settings: &self.settings, view: &view, stop: &stop };
        let post = Post::new(&self.settings, &view, info.depth);
        let (batches, batches_in) = sync_channel(1);
        let (slices, slices_in) = sync_channel(SLICES_AHEAD);
        let (decoded, decoded_in) = sync_channel(SLICES_AHEAD);
        let (frames, frames_in) = sync_channel(FRAMES_AHEAD);
        thread::scope(|scope| {
            let failed = |_: &Error| stop.store(true, Ordering::Relaxed);
            let read = scope.spawn(move || reader.run(source, &batches).inspect_err(failed));
            let resize = scope.spawn(|| prepare(&view, self.settings.vae.slice, batches_in, slices));
            let compute = scope.spawn(move || compute.run(&slices_in, &decoded).inspect_err(failed));
            let post = scope.spawn(move || post.run(&decoded_in, &frames));
            let written = write(frames_in, sink, progress).inspect_err(failed);
            let (read, resize, compute, post) = (join(read), join(resize), join(compute), join(post));
            // A stage that fails ends the others quietly, so that at most one of the three has a reason to tell.
            let (Read { shots, batches, time }, computed, mut report) = (read?, compute?, written?);
            if report.frames == 0 {
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
fn write(frames: Receiver<Frame>, sink: &mut dyn Sink, progress: &mut dyn Progress) -> Result<Report> {
    let mut report = Report::default();
    loop {
        let frame = frames.recv_timeout(PATIENCE);
        if progress.cancelled() {
            return Err(Error::Cancelled);
        }
        match frame {
            Ok(frame) => {
                timed(&mut report.times.write, || sink.write(&frame)).map_err(Error::Output)?;
                report.frames += 1;
                progress.advance(1);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(report),
        }
    }
}
