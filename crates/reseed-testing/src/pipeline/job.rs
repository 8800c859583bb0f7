//! Jobs without files: frames from a list, frames to a list.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use reseed::{BatchStore, Checkpoint, Latent, Model, Progress, Report, Result, Settings, Step, Upscaler};
use reseed_cpu::CpuOps;
use reseed_media::{Depth, Frame, Info, Kind, Rate, Sink, Size, Source};
use reseed_model::weights::formula::Formula;
use reseed_model::{Config, Vae};
use reseed_ops::DType;

/// A device and a small VAE.
pub struct SmallVae {
    pub ops: CpuOps,
    pub vae: Vae,
}

impl SmallVae {
    pub fn new() -> SmallVae {
        let ops = CpuOps::new(DType::F32, Some(2)).unwrap();
        let config = Config::tiny();
        let vae = Vae::load(&ops, &Formula::new(config.tensors(), config.groups, 1)).unwrap();
        SmallVae { ops, vae }
    }

    /// Runs frames through a job and gives what it wrote, if it finished.
    pub fn run(&self, settings: Settings, step: &dyn Step, frames: &[Frame]) -> (Result<Report>, Vec<Frame>) {
        self.run_with(settings, step, Film::new(frames), &mut ())
    }

    pub fn run_with(
        &self,
        settings: Settings,
        step: &dyn Step,
        film: Film,
        progress: &mut dyn Progress,
    ) -> (Result<Report>, Vec<Frame>) {
        self.resume(Checkpoint::default(), settings, step, film, progress)
    }

    /// The same from a point on; gives what is written from there.
    pub fn resume(
        &self,
        from: Checkpoint,
        settings: Settings,
        step: &dyn Step,
        film: Film,
        progress: &mut dyn Progress,
    ) -> (Result<Report>, Vec<Frame>) {
        self.keeping((None, from), settings, step, film, progress)
    }

    /// The same with a place for what the networks make.
    pub fn keeping(
        &self,
        (keep, from): (Option<&dyn BatchStore>, Checkpoint),
        settings: Settings,
        step: &dyn Step,
        film: Film,
        progress: &mut dyn Progress,
    ) -> (Result<Report>, Vec<Frame>) {
        let size = settings.output(film.info()).unwrap().size;
        let upscaler = Upscaler::new(&self.ops, Model { vae: &self.vae, step }, settings).keeping(keep);
        show(&upscaler, size, film, (from, progress))
    }
}

/// Runs a job whose result has that size and gives what it wrote, if it finished.
pub fn show(
    upscaler: &Upscaler,
    size: Size,
    mut film: Film,
    (from, progress): (Checkpoint, &mut dyn Progress),
) -> (Result<Report>, Vec<Frame>) {
    let (screen, finished) = screen(&film, size);
    let report = upscaler.resume(from, &mut film, screen, progress);
    let frames = finished.lock().unwrap().take();
    assert_eq!(report.is_ok(), frames.is_some(), "a job is done when its sink is finished");
    (report, frames.unwrap_or_default())
}

/// A transformer that leaves its input as it is.
pub fn identity(condition: &Latent, noise: &Latent) -> reseed_model::Result<Latent> {
    assert_eq!((condition.thw, condition.channels()), (noise.thw, noise.channels()));
    Ok(condition.clone())
}

/// How many frames were read and written.
#[derive(Default)]
pub struct Counts {
    pub read: AtomicUsize,
    pub written: AtomicUsize,
    /// Most frames that were read and not yet written.
    pub most: AtomicUsize,
    /// Whether nothing can be written.
    pub unwritable: AtomicBool,
}

/// Frames from a list, or made one by one.
pub struct Film {
    info: Info,
    frame: Box<dyn Fn(usize) -> reseed_media::Result<Option<Frame>> + Send>,
    pub counts: Arc<Counts>,
}

impl Film {
    pub fn new(frames: &[Frame]) -> Film {
        let frames = frames.to_vec();
        let (size, depth) = frames.first().map_or((Size { h: 16, w: 16 }, Depth::Eight), |f| (f.size, f.depth()));
        Film::made(size, depth, move |i| Ok(frames.get(i).cloned()))
    }

    pub fn made(
        size: Size,
        depth: Depth,
        frame: impl Fn(usize) -> reseed_media::Result<Option<Frame>> + Send + 'static,
    ) -> Film {
        let info = Info {
            size,
            frames: None,
            rate: Rate::default(),
            depth,
            alpha: false,
            kind: Kind::Folder,
            names: Vec::new(),
            icc: None,
        };
        Film { info, frame: Box::new(frame), counts: Arc::default() }
    }
}

impl Source for Film {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> reseed_media::Result<Option<Frame>> {
        let frame = (self.frame)(self.counts.read.load(Ordering::SeqCst))?;
        if frame.is_some() {
            let read = self.counts.read.fetch_add(1, Ordering::SeqCst) + 1;
            self.counts.most.fetch_max(read - self.counts.written.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        Ok(frame)
    }
}

/// The frames of a finished job.
pub type Finished = Arc<Mutex<Option<Vec<Frame>>>>;

/// A sink for frames of that size, and where they are once it is finished.
pub fn screen(film: &Film, size: Size) -> (Box<dyn Sink>, Finished) {
    let screen = Screen { film: film.counts.clone(), size, ..Screen::default() };
    let finished = screen.finished.clone();
    (Box::new(screen), finished)
}

/// Frames to a list, which is there once it is finished.
struct Screen {
    film: Arc<Counts>,
    size: Size,
    frames: Vec<Frame>,
    finished: Finished,
}

impl Default for Screen {
    fn default() -> Screen {
        Screen { film: Arc::default(), size: Size { h: 0, w: 0 }, frames: Vec::new(), finished: Arc::default() }
    }
}

impl Sink for Screen {
    fn write(&mut self, frame: &Frame) -> reseed_media::Result<()> {
        assert_eq!(frame.size, self.size);
        if self.film.unwritable.load(Ordering::SeqCst) {
            return Err(reseed_media::Error::FolderNotEmpty { path: PathBuf::from("screen") });
        }
        self.film.written.fetch_add(1, Ordering::SeqCst);
        self.frames.push(frame.clone());
        Ok(())
    }

    fn finish(self: Box<Self>) -> reseed_media::Result<()> {
        *self.finished.lock().unwrap() = Some(self.frames);
        Ok(())
    }
}

/// A file that cannot be read.
pub fn unreadable() -> reseed_media::Error {
    reseed_media::Error::Truncated { path: PathBuf::from("film"), frame: 3 }
}
