//! The pipeline: stages on threads of their own, joined by short channels. Reading, computing, post-processing and
//! writing overlap in memory that does not grow with the clip.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use reseed_media::{Depth, Frame, Samples, Sink, Source};
use reseed_ops::{Device, DeviceResult, FrameLoader, FrameOps};

use crate::batch_store::{BatchStore, FrameSender, computed};
use crate::checkpoint::{Checkpoint, Recorder};
use crate::compute::Compute;
use crate::error::{Error, Result};
use crate::fallback::Fallback;
use crate::lanes::Lanes;
use crate::low_band::LowBand;
use crate::memory;
use crate::observer::{Event, EventQueue, Observer};
use crate::part::ClipInput;
use crate::phase::PhaseCell;
use crate::phase_times::PhaseTimes;
use crate::pool::HostMemory;
use crate::post::{Post, PostOutput};
use crate::prepare::{Prepare, Slice};
use crate::read::{ClipFrames, ReadReport, Reader};
use crate::report::{Report, timed};
use crate::run_plan::{Replanner, RunPlan};
use crate::settings::Settings;
use crate::step::Model;
use crate::view::View;

/// Longest wait for a frame between two questions whether the job was cancelled.
const PATIENCE: Duration = Duration::from_millis(50);
/// Finished frames that wait for the writer, so that it works while a slice is post-processed.
const FRAMES_AHEAD: usize = 8;
/// Slices that wait before and after the networks.
const SLICES_AHEAD: usize = 2;

/// Bytes of the stack of a thread.
const STACK: usize = 2 << 20;

/// A device that computes batches, with its networks.
#[derive(Clone)]
pub struct Lane<'a> {
    /// The decoder's device.
    pub ops: &'a dyn Device,
    /// The encoder's device.
    pub encoder_ops: &'a dyn Device,
    /// Resizes frames on the encoder's device, instead of the host.
    pub loader: Option<&'a dyn FrameLoader>,
    /// The networks.
    pub model: Model<'a>,
    /// How they run.
    pub plan: RunPlan,
    /// Smaller plans for when the device runs out of memory. The batch in hand then runs again.
    pub replanner: Option<&'a dyn Replanner>,
    /// For batches whose values leave the range of the VAE's type.
    pub fallback: Option<&'a dyn Fallback>,
}

/// Runs the stages of a job.
pub struct Upscaler<'a> {
    /// None in a job without networks.
    lanes: Vec<Lane<'a>>,
    settings: Settings,
    store: Option<&'a dyn BatchStore>,
    frames: Option<&'a dyn FrameOps>,
    low_band: Option<LowBand<'a>>,
    /// Where finished frames go instead of the sink, in their order.
    places: &'a [Box<dyn DeviceResult>],
}

impl<'a> Upscaler<'a> {
    /// A job with this device, these networks, these settings and this plan.
    pub fn new(ops: &'a dyn Device, model: Model<'a>, settings: Settings, plan: RunPlan) -> Upscaler<'a> {
        Upscaler::on(
            vec![Lane { ops, encoder_ops: ops, loader: None, model, plan, replanner: None, fallback: None }],
            settings,
        )
    }

    /// A job on several devices that compute in the same way: with one model, one type and one plan. Without a device,
    /// frames are resized and keep their content.
    pub fn on(lanes: Vec<Lane<'a>>, settings: Settings) -> Upscaler<'a> {
        assert!(settings.batching.size > 0, "batches have frames");
        for Lane { plan, .. } in &lanes {
            assert!(plan.vae.slice > 0 && plan.window > 0, "slices have frames and a window has batches");
            assert_eq!(plan.vae.slice, lanes[0].plan.vae.slice, "lanes cut batches alike");
        }
        Upscaler { lanes, settings, store: None, frames: None, low_band: None, places: &[] }
    }

    /// A job without networks: frames are resized and keep their content.
    pub fn identity(settings: Settings) -> Upscaler<'a> {
        Upscaler::on(Vec::new(), settings)
    }

    /// With smaller plans for when a device runs out of memory.
    pub fn replanning(mut self, replanner: Option<&'a dyn Replanner>) -> Upscaler<'a> {
        self.lanes.iter_mut().for_each(|lane| lane.replanner = replanner);
        self
    }

    /// With a VAE of wider range for batches that need it.
    pub fn falling_back(mut self, fallback: Option<&'a dyn Fallback>) -> Upscaler<'a> {
        self.lanes.iter_mut().for_each(|lane| lane.fallback = fallback);
        self
    }

    /// With a store for computed batches that are not yet written.
    pub fn storing(self, store: Option<&'a dyn BatchStore>) -> Upscaler<'a> {
        Upscaler { store, ..self }
    }

    /// With a device that finishes frames, instead of the host.
    pub fn finishing_on(self, frames: Option<&'a dyn FrameOps>) -> Upscaler<'a> {
        Upscaler { frames, ..self }
    }

    /// With another low band than that of the settings.
    pub fn with_low_band(self, low_band: LowBand<'a>) -> Upscaler<'a> {
        Upscaler { low_band: Some(low_band), ..self }
    }

    /// With places in the memory of a device for all finished frames, none of which then goes to the sink.
    pub fn finishing_to(self, places: &'a [Box<dyn DeviceResult>]) -> Upscaler<'a> {
        Upscaler { places, ..self }
    }

    /// Runs the job: every frame of `source` goes restored to `sink`, which is finished after the last frame. After an
    /// error all threads have ended and the sink is dropped unfinished.
    pub fn run(&self, source: &mut dyn Source, sink: Box<dyn Sink>, observer: &mut dyn Observer) -> Result<Report> {
        self.resume(Checkpoint::default(), ClipInput::Whole(source), sink, (observer, None))
    }

    /// Continues a job with the same settings, networks and source from a checkpoint. `source` starts from its first
    /// frame. `sink` has the frames up to the checkpoint, and receives the frames that an uninterrupted run would
    /// write. The report counts this run only. The recorder receives a checkpoint after every batch.
    ///
    /// A part of a clip starts from a checkpoint at its first batch. Its sink receives the frames that its batches add.
    pub fn resume(
        &self,
        from: Checkpoint,
        source: ClipInput,
        mut sink: Box<dyn Sink>,
        (observer, mut recorder): (&mut dyn Observer, Option<&mut dyn Recorder>),
    ) -> Result<Report> {
        let start = Instant::now();
        let stages_recorder = recorder.as_mut().map(|recorder| &mut **recorder as &mut dyn Recorder);
        let mut report = self.stages(from, source, &mut *sink, (observer, stages_recorder))?;
        let finish = || {
            recorder.map_or(Ok(()), |recorder| recorder.complete(&mut *sink))?;
            sink.finish()
        };
        timed(&mut report.times.write, finish).map_err(Error::Output)?;
        report.times.total = start.elapsed();
        report.peak_memory = memory::peak();
        Ok(report)
    }

    fn stages(
        &self,
        from: Checkpoint,
        source: ClipInput,
        sink: &mut dyn Sink,
        (observer, recorder): (&mut dyn Observer, Option<&mut dyn Recorder>),
    ) -> Result<Report> {
        let (settings, info) = (&self.settings, source.info().clone());
        let noise = &settings.noise.open()?;
        let view = View::new(settings.geometry(&info)?);
        let (stop, phase, events) = (AtomicBool::new(false), PhaseCell::default(), EventQueue::default());
        let fell_back = &AtomicBool::new(false);
        let (done, first, before, shot) = (from.batches, from.first_held(), from.frames, from.shot);
        let store = self.store.filter(|_| !self.lanes.is_empty());
        let stored = computed(store, done);
        let computed = done + stored.len();
        let alone = self.lanes.len() == 1;
        let (view, stop, frames) = (&view, &stop, Cell::new(0));
        let reader = Reader { settings, done: computed, first, shot, view, stop, alone, frames };
        let latents = self.lanes.first().map(|lane| lane.plan.vae.slice);
        let resized_by_devices = self.lanes.iter().all(|lane| lane.loader.is_some());
        let needs_pixels = if latents.is_some() { !resized_by_devices } else { !settings.hands_on(&info) };
        let prepare = Prepare { view, latents, needs_pixels, done: computed };
        let (phase, events) = (&phase, &events);
        // Where every batch goes through all networks at once, no latent waits. A lane among several does not know its
        // next batch. The device that finishes frames is that of the first lane.
        let compute = self.lanes.iter().cloned().map(|lane| Compute {
            ops: lane.ops,
            encoder_ops: lane.encoder_ops,
            loader: lane.loader,
            frames: self.frames.filter(|_| alone),
            model: lane.model,
            settings,
            noise,
            view,
            done: computed,
            phase,
            stop,
            events,
            store: store.filter(|_| alone && lane.plan.window > 1),
            plan: lane.plan,
            replanner: lane.replanner,
            fallback: lane.fallback,
            fell_back,
        });
        let compute: Vec<Compute> = compute.collect();
        let depth = info.depth;
        let post = Post::new(settings, view, depth, stop).on(self.frames, info.alpha).until(source.end());
        let post = post.with_low_band(self.low_band).to(self.places).resume_from(from, recorder.is_some());
        let (batches, batches_in) = sync_channel(1);
        let (slices, slices_in) = sync_channel(SLICES_AHEAD);
        let (decoded, decoded_in) = sync_channel(SLICES_AHEAD);
        let decoded = FrameSender::new(decoded, store, done, stored);
        let (frames, frames_in) = sync_channel(FRAMES_AHEAD);
        thread::scope(|scope| {
            let failed = |_: &Error| stop.store(true, Ordering::Relaxed);
            // A stage that cannot be started drops its channels, which ends the others.
            let read = start(scope, move || {
                guarded(stop, || match source {
                    ClipInput::Whole(source) => reader.run(ClipFrames::Source(source), &batches).inspect_err(failed),
                    ClipInput::Device(_, frames) => {
                        reader.run(ClipFrames::Device(frames.into_iter()), &batches).inspect_err(failed)
                    }
                    ClipInput::Part(part) => part.read([first, computed], stop, &batches).inspect_err(failed),
                })
            })?;
            let resize = start(scope, move || guarded(stop, || prepare.run(&batches_in, &slices)))?;
            let compute = start(scope, move || {
                guarded(stop, || run_networks(compute, slices_in, decoded, (first, stop)).inspect_err(failed))
            })?;
            let post = start(scope, move || guarded(stop, || post.run(&decoded_in, &frames).inspect_err(failed)))?;
            let recorder = recorder.map(|recorder| recorder as &mut dyn Recorder);
            let write = Write { sink, observer, recorder, phase, view, depth, stop, events };
            let written = guarded(stop, || write.run(&frames_in)).inspect_err(failed);
            drop(frames_in);
            let (read, resize, compute, post) = (join(read), join(resize), join(compute), join(post));
            // A stage that fails ends the others without an error: at most one of them has one.
            let (resize, post) = (resize?, post??);
            let (ReadReport { shots, batches, time }, computed, mut report) = (read??, compute??, written?);
            if before + report.frames == 0 {
                return Err(Error::NoFrames { path: None });
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

/// The third stage: passes slices through the networks of all lanes, or unchanged where there are none.
fn run_networks(
    mut lanes: Vec<Compute>,
    from: Receiver<Slice>,
    to: FrameSender,
    (first, stop): (usize, &AtomicBool),
) -> Result<PhaseTimes> {
    match &mut lanes[..] {
        [] => return Ok(pass(&from, &to)),
        [alone] => return alone.run(&from, &to),
        _ => {}
    }
    let window = lanes.iter().map(|lane| lane.plan.window).max().unwrap_or(1);
    let shared = &Lanes::new((from, to), first, (lanes.len(), window), stop);
    let failed = |_: &Error| stop.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        let run = |(number, lane)| start(scope, move || guarded(stop, || shared.run(number, lane).inspect_err(failed)));
        let lanes: Vec<_> = lanes.into_iter().enumerate().map(run).collect();
        let mut times = PhaseTimes::default();
        for lane in lanes {
            times += join(lane?)??;
        }
        Ok(times)
    })
}

/// Forwards slices unchanged until there are none or the receiver is gone.
fn pass(from: &Receiver<Slice>, to: &FrameSender) -> PhaseTimes {
    for slice in from {
        if to.send(slice).is_err() {
            break;
        }
    }
    PhaseTimes::default()
}

/// Runs a stage and sets `stop` where it panics, before its channels close: their end would look like the end of the
/// clip, and frames that later batches change would be written.
fn guarded<T>(stop: &AtomicBool, stage: impl FnOnce() -> T) -> T {
    let _guard = SetOnPanic(stop);
    stage()
}

/// Sets its flag when it is dropped by a panic.
struct SetOnPanic<'a>(&'a AtomicBool);

impl Drop for SetOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(thread::panicking(), Ordering::Relaxed);
    }
}

/// Starts a stage on a thread of its own.
fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    thread::Builder::new()
        .spawn_scoped(scope, stage)
        .map_err(|_| Error::OutOfHostMemory { what: "the threads of a job", bytes: STACK })
}

/// The result of a stage, or an error where it ran out of memory. Any other panic goes on.
fn join<T>(thread: ScopedJoinHandle<T>) -> Result<T> {
    thread.join().map_err(|panic| match panic.downcast::<HostMemory>() {
        Ok(reason) => Error::OutOfHostMemory { what: "the frames of a slice", bytes: reason.bytes },
        Err(panic) => resume_unwind(panic),
    })
}

/// The last stage, on the thread that started the job.
struct Write<'a> {
    sink: &'a mut dyn Sink,
    observer: &'a mut dyn Observer,
    recorder: Option<&'a mut dyn Recorder>,
    phase: &'a PhaseCell,
    view: &'a View,
    depth: Depth,
    stop: &'a AtomicBool,
    events: &'a EventQueue,
}

impl Write<'_> {
    /// Writes finished frames. A cancelled job computes nothing more, but writes the frames that are computed.
    fn run(mut self, from: &Receiver<PostOutput<'_>>) -> Result<Report> {
        let (mut report, mut cancelled) = (Report::default(), false);
        loop {
            let done = from.recv_timeout(PATIENCE);
            self.events.drain(&mut |event| self.observer.event(&event));
            self.observer.event(&Event::Phase(self.phase.get()));
            cancelled |= self.observer.cancelled();
            self.stop.fetch_or(cancelled, Ordering::Relaxed);
            match done {
                Ok(PostOutput::Checkpoint(point)) => self.record(&point, &mut report),
                Ok(PostOutput::Frame(frame)) => {
                    report.frames += 1;
                    self.observer.frame(&frame);
                    let written = timed(&mut report.times.write, || self.sink.write(&frame));
                    self.view.sample_pool().recycle(frame.samples);
                    written.inspect(|()| self.observer.event(&Event::Frames(1)))
                }
                Ok(PostOutput::InPlace(place)) => {
                    report.frames += 1;
                    if self.observer.watches_frames() {
                        self.observer.frame(&self.fetch(place)?);
                    }
                    self.observer.event(&Event::Frames(1));
                    Ok(())
                }
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) if cancelled => return Err(Error::Cancelled),
                Err(RecvTimeoutError::Disconnected) => return Ok(report),
            }
            .map_err(Error::Output)?;
        }
    }

    /// A copy of a frame that is finished in its place.
    fn fetch(&self, place: &dyn DeviceResult) -> Result<Frame> {
        let size = self.view.geometry().output;
        let mut samples = Samples::black(self.depth, 3 * size.pixels());
        samples.as_bytes_mut().copy_from_slice(&place.fetch()?);
        Ok(Frame { size, samples, alpha: None })
    }

    /// All frames of a batch are written.
    fn record(&mut self, point: &Checkpoint, report: &mut Report) -> reseed_media::Result<()> {
        if let Some(recorder) = &mut self.recorder {
            timed(&mut report.times.write, || recorder.record(point, self.sink))?;
            if recorder.is_durable() {
                self.observer.event(&Event::Saved { frames: point.frames });
            }
        }
        self.observer.event(&Event::Batch { batches: point.batches });
        Ok(())
    }
}
