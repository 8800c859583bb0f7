//! Jobs without files: a source that reads frames from memory and a sink that collects them in memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use reseed::internals::{BatchStore, Checkpoint, ClipInput, Model, Recorder, RunPlan, Step, Upscaler};
use reseed::{Latent, Observer, Report, Result, Settings};
use reseed_cpu::CpuOps;
use reseed_media::{Depth, Frame, Info, Kind, Rate, Sink, Size, Source};
use reseed_model::weights::formula::Formula;
use reseed_model::{Config, Vae};
use reseed_ops::DType;

/// A CPU device and a VAE with few channels.
pub struct TinyVae {
    pub ops: CpuOps,
    pub vae: Vae,
}

impl Default for TinyVae {
    fn default() -> TinyVae {
        TinyVae::on_threads(2)
    }
}

impl TinyVae {
    pub fn new() -> TinyVae {
        TinyVae::default()
    }

    /// On a CPU device with so many threads of its own.
    pub fn on_threads(threads: usize) -> TinyVae {
        let ops = CpuOps::new(DType::F32, Some(threads)).unwrap();
        let config = Config::tiny();
        let vae = Vae::load(&ops, &Formula::new(config.tensors(), config.groups, 1)).unwrap();
        TinyVae { ops, vae }
    }

    /// Runs a job on `frames`; returns the written frames, or none if the job failed.
    pub fn run(&self, settings: Settings, step: &dyn Step, frames: &[Frame]) -> (Result<Report>, Vec<Frame>) {
        self.run_with(settings, step, MemorySource::new(frames), &mut ())
    }

    pub fn run_with(
        &self,
        settings: Settings,
        step: &dyn Step,
        source: MemorySource,
        observer: &mut dyn Observer,
    ) -> (Result<Report>, Vec<Frame>) {
        self.resume(Checkpoint::default(), settings, step, source, observer)
    }

    /// Resumes a job from a checkpoint; returns the frames written after it.
    pub fn resume(
        &self,
        from: Checkpoint,
        settings: Settings,
        step: &dyn Step,
        source: MemorySource,
        observer: &mut dyn Observer,
    ) -> (Result<Report>, Vec<Frame>) {
        self.resume_with_store((None, from), settings, step, source, (observer, None))
    }

    /// Resumes a job from a checkpoint and the results in a batch store.
    pub fn resume_with_store(
        &self,
        (store, from): (Option<&dyn BatchStore>, Checkpoint),
        settings: Settings,
        step: &dyn Step,
        source: MemorySource,
        (observer, recorder): (&mut dyn Observer, Option<&mut dyn Recorder>),
    ) -> (Result<Report>, Vec<Frame>) {
        let size = settings.output(source.info()).unwrap().size;
        let model = Model { vae: &self.vae, step };
        let upscaler = Upscaler::new(&self.ops, model, settings, RunPlan::default()).storing(store);
        run_job(&upscaler, size, source, (from, observer, recorder))
    }
}

/// Runs a job with output frames of `size`; returns the written frames, or none if the job failed.
pub fn run_job(
    upscaler: &Upscaler,
    size: Size,
    mut source: MemorySource,
    (from, observer, recorder): (Checkpoint, &mut dyn Observer, Option<&mut dyn Recorder>),
) -> (Result<Report>, Vec<Frame>) {
    let (sink, finished) = memory_sink(&source, size);
    let report = upscaler.resume(from, ClipInput::Whole(&mut source), sink, (observer, recorder));
    let frames = finished.lock().unwrap().take();
    assert_eq!(report.is_ok(), frames.is_some(), "only a successful job finishes its sink");
    (report, frames.unwrap_or_default())
}

/// A transformer step that returns the condition.
pub fn identity(condition: &Latent, noise: &Latent) -> reseed_model::Result<Latent> {
    assert_eq!((condition.thw, condition.channels()), (noise.thw, noise.channels()));
    Ok(condition.clone())
}

/// Numbers of frames read and written.
#[derive(Default)]
pub struct FrameCounts {
    pub read: AtomicUsize,
    pub written: AtomicUsize,
    /// Largest number of frames that were read and not yet written.
    pub peak: AtomicUsize,
    /// Whether the sink fails on every write.
    pub unwritable: AtomicBool,
}

/// A source of frames from a list or from a function of the frame index.
pub struct MemorySource {
    info: Info,
    frame: Box<dyn Fn(usize) -> reseed_media::Result<Option<Frame>> + Send>,
    pub counts: Arc<FrameCounts>,
}

impl MemorySource {
    pub fn new(frames: &[Frame]) -> MemorySource {
        let frames = frames.to_vec();
        let (size, depth) = frames.first().map_or((Size { h: 16, w: 16 }, Depth::Eight), |f| (f.size, f.depth()));
        let alpha = frames.first().is_some_and(|frame| frame.alpha.is_some());
        let mut source = MemorySource::from_fn(size, depth, move |i| Ok(frames.get(i).cloned()));
        source.info.alpha = alpha;
        source
    }

    pub fn from_fn(
        size: Size,
        depth: Depth,
        frame: impl Fn(usize) -> reseed_media::Result<Option<Frame>> + Send + 'static,
    ) -> MemorySource {
        let info = Info {
            size,
            frames: None,
            rate: Rate::default(),
            depth,
            alpha: false,
            kind: Kind::Folder,
            names: Vec::new(),
            tags: reseed_media::ImageTags::default(),
        };
        MemorySource { info, frame: Box::new(frame), counts: Arc::default() }
    }
}

impl Source for MemorySource {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> reseed_media::Result<Option<Frame>> {
        let frame = (self.frame)(self.counts.read.load(Ordering::SeqCst))?;
        if frame.is_some() {
            let read = self.counts.read.fetch_add(1, Ordering::SeqCst) + 1;
            self.counts.peak.fetch_max(read - self.counts.written.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        Ok(frame)
    }
}

/// The frames of a finished sink; `None` until then.
pub type FinishedFrames = Arc<Mutex<Option<Vec<Frame>>>>;

/// A sink for frames of `size` that updates the counts of `source`, and its frames once it is finished.
pub fn memory_sink(source: &MemorySource, size: Size) -> (Box<dyn Sink>, FinishedFrames) {
    let finished = FinishedFrames::default();
    let sink = MemorySink { counts: source.counts.clone(), size, frames: Vec::new(), finished: finished.clone() };
    (Box::new(sink), finished)
}

/// Collects frames in memory and publishes them when it is finished.
struct MemorySink {
    counts: Arc<FrameCounts>,
    size: Size,
    frames: Vec<Frame>,
    finished: FinishedFrames,
}

impl Sink for MemorySink {
    fn write(&mut self, frame: &Frame) -> reseed_media::Result<()> {
        assert_eq!(frame.size, self.size);
        if self.counts.unwritable.load(Ordering::SeqCst) {
            return Err(reseed_media::Error::FolderNotEmpty { path: PathBuf::from("memory") });
        }
        self.counts.written.fetch_add(1, Ordering::SeqCst);
        self.frames.push(frame.clone());
        Ok(())
    }

    fn finish(self: Box<Self>) -> reseed_media::Result<()> {
        *self.finished.lock().unwrap() = Some(self.frames);
        Ok(())
    }
}

/// The error of a source that cannot be read.
pub fn unreadable() -> reseed_media::Error {
    reseed_media::Error::Truncated { path: PathBuf::from("memory"), frame: 3 }
}
