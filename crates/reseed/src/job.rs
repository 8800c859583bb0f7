//! Jobs on files, with a journal from which they are resumed.

pub(crate) mod journal;
mod record;
mod store;

use std::path::{Path, PathBuf};

use reseed_media::video::{Clip, Options};
use reseed_media::{Info, Kind, Sink, Source};
use reseed_ops::Precision;

use crate::batch::Batching;
use crate::batch_store::BatchStore;
use crate::checkpoint::{Checkpoint, Recorder};
use crate::error::{Error, Result};
use crate::observer::{Event, Observer, Warning};
use crate::report::Report;
use crate::session::{Environment, Output, Session, Watch};
use crate::settings::{NoiseSource, Settings};
use journal::{EarlierRun, Journal, Origin};
use record::JobRecord;
use store::DiskBatchStore;

/// What happens to an existing output and to the work of an interrupted job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Neither is touched: the job is refused.
    #[default]
    Refuse,
    /// Both are replaced.
    Overwrite,
    /// An interrupted job with the same settings is resumed.
    Resume,
}

/// Input, output and settings of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// A video, an image, a folder of images, or `-` for Y4M on standard input.
    pub input: PathBuf,
    /// What to write; `-` for Y4M on standard output.
    pub output: PathBuf,
    /// What the user chose.
    pub settings: Settings,
    /// The part of a video.
    pub clip: Clip,
    /// How a video is encoded.
    pub video: Options,
    /// What happens to existing files.
    pub existing: Existing,
}

impl JobSpec {
    /// A job on the whole input that replaces nothing.
    pub fn new(input: impl Into<PathBuf>, output: impl Into<PathBuf>, settings: Settings) -> JobSpec {
        let (input, output, existing) = (input.into(), output.into(), Existing::Refuse);
        JobSpec { input, output, settings, clip: Clip::default(), video: Options::default(), existing }
    }
}

/// A job on files. After every batch its finished frames are safe on disk, and a journal beside the output knows how to
/// continue. Single images and pipes have no journal.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let (input, output) = (folder.path().join("small.y4m"), folder.path().join("large.y4m"));
/// # let mut clip = reseed::media::sample();
/// # let mut sink = reseed::media::create(&input, clip.info())?;
/// # while let Some(frame) = clip.next()? { sink.write(&frame)?; }
/// # sink.finish()?;
/// use reseed::{Job, Session, Settings, Target};
///
/// let session = Session::builder().model("formula:tiny").device("cpu").open()?;
/// let settings = Settings { target: Target::Scale(1.5), ..Settings::default() };
/// let report = Job::create(&input, &output, settings)?.run(&session, &mut ())?;
/// assert_eq!(report.frames, 9);
/// assert!(Job::resume(&output).is_err(), "a finished job leaves nothing to resume");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Job {
    spec: JobSpec,
    source: Box<dyn Source>,
    work: Work,
}

impl Job {
    /// A new job. An error where the output exists or an interrupted job has finished frames of it.
    pub fn create(input: impl Into<PathBuf>, output: impl Into<PathBuf>, settings: Settings) -> Result<Job> {
        Job::open(JobSpec::new(input, output, settings))
    }

    /// The interrupted job at this output, with the settings of its journal. It runs on a session with its
    /// [model](Job::model).
    pub fn resume(output: impl AsRef<Path>) -> Result<Job> {
        let output = output.as_ref();
        let folder = journal::folder(output);
        let earlier = Journal::open(&folder)?.map(|(_, earlier)| earlier).filter(EarlierRun::has_work);
        let earlier = earlier.ok_or_else(|| Error::NothingToResume { path: output.into() })?;
        let damaged = || Error::JournalDamaged { path: folder.clone() };
        let settings = earlier.record.settings(earlier.origin.noise_file.as_deref()).ok_or_else(damaged)?;
        let (clip, video) = earlier.record.video().ok_or_else(damaged)?;
        let (input, output, existing) = (earlier.origin.input, output.into(), Existing::Resume);
        Job::open(JobSpec { input, output, settings, clip, video, existing })
    }

    /// Opens the input, and looks for the work of an interrupted job. Finds all errors that need no model.
    pub fn open(mut spec: JobSpec) -> Result<Job> {
        spec.settings.check()?;
        if !is_pipe(&spec.input) {
            refuse_same_file(&spec.input, &spec.output)?;
        }
        let source = reseed_media::open_clip(&spec.input, spec.clip).map_err(Error::Input)?;
        if source.info().kind.is_still() {
            // Pages have nothing to do with each other.
            spec.settings.batching = Batching { size: 1, overlap: 0, uniform: false };
            spec.settings.lead_in = 0;
        }
        let work = Work::open(&spec, &source.info().kind)?;
        if spec.existing != Existing::Overwrite && work.earlier.is_none() && spec.output.is_file() {
            return Err(Error::OutputExists { path: spec.output });
        }
        Ok(Job { spec, source, work })
    }

    /// What is known of the input.
    pub fn info(&self) -> &Info {
        self.source.info()
    }

    /// The input.
    pub fn input(&self) -> &Path {
        &self.spec.input
    }

    /// The output.
    pub fn output(&self) -> &Path {
        &self.spec.output
    }

    /// What the output will be.
    pub fn output_info(&self) -> Result<Info> {
        self.spec.settings.output(self.source.info())
    }

    /// The model that an interrupted job was started with.
    pub fn model(&self) -> Option<&str> {
        self.work.earlier.as_ref().map(|earlier| earlier.origin.model.as_str())
    }

    /// Runs the job to its end. Where values leave the range of f16 and the session has no chosen type, the job runs
    /// again in bf16.
    pub fn run(self, session: &Session, observer: &mut dyn Observer) -> Result<Report> {
        let spec = self.spec.clone();
        let again = session.dtype().is_none() && !is_pipe(&spec.input);
        match self.run_once(session, session.dtype(), observer) {
            Err(error) if again && error.is_out_of_range() => {
                let reason = error.without_kept().to_string();
                observer.event(&Event::Warning(Warning::Rerun { reason }));
                let job = Job::open(JobSpec { existing: Existing::Overwrite, ..spec })?;
                job.run_once(session, Some(Precision::Bf16), observer)
            }
            done => done,
        }
    }

    fn run_once(self, session: &Session, dtype: Option<Precision>, observer: &mut dyn Observer) -> Result<Report> {
        let Job { spec, mut source, mut work } = self;
        if let Kind::Video(video) = &source.info().kind {
            let fields = video.field_note().map(|note| Warning::Fields(note.to_owned()));
            fields.into_iter().for_each(|warning| observer.event(&Event::Warning(warning)));
        }
        let losses = reseed_media::losses(source.info(), &spec.output, &spec.video).into_iter().map(Warning::Loss);
        losses.for_each(|warning| observer.event(&Event::Warning(warning)));
        let done = session.execute(dtype, &mut *source, &spec.settings, &mut work, observer);
        let problems = source.problems().into_iter().map(|problem| Warning::DamagedInput { problem });
        problems.for_each(|warning| observer.event(&Event::Warning(warning)));
        let kept = work.kept;
        match done {
            Ok(report) => {
                work.finish();
                Ok(report)
            }
            Err(Error::NoFrames { .. }) => Err(Error::NoFrames { path: Some(spec.input) }),
            Err(error) => Err(error.keeping(kept)),
        }
    }

    /// Removes the journal that a process left at an output when it ended without dropping its job, unless frames of it
    /// are finished.
    pub fn discard_unused(output: &Path) {
        journal::discard_unused(&journal::folder(output));
    }
}

fn is_pipe(path: &Path) -> bool {
    path == Path::new("-")
}

/// An error where an output would replace its input.
pub fn refuse_same_file(input: &Path, output: &Path) -> Result<()> {
    match (std::fs::canonicalize(input), std::fs::canonicalize(output)) {
        (Ok(real), Ok(output)) if real == output => Err(Error::SameFile { path: input.into() }),
        _ => Ok(()),
    }
}

/// The work at one output.
struct Work {
    output: PathBuf,
    video: Options,
    origin: Origin,
    record: JobRecord,
    earlier: Option<EarlierRun>,
    journal: Option<Journal>,
    store: Option<DiskBatchStore>,
    /// Finished frames.
    kept: usize,
    /// Whether the job has a journal.
    resumable: bool,
}

impl Work {
    /// Finds the work of an interrupted job, and takes it up or discards it.
    fn open(spec: &JobSpec, kind: &Kind) -> Result<Work> {
        let pipe = is_pipe(&spec.input) || is_pipe(&spec.output);
        let resumable = !pipe && !kind.is_still();
        if pipe && spec.existing == Existing::Resume {
            return Err(Error::PipeNotResumable);
        }
        let mut record = JobRecord::new(&spec.settings, &spec.clip, &spec.video);
        if let Kind::Video(video) = kind {
            record.set("fields", video.field_note().unwrap_or("progressive"));
        }
        let noise_file = match &spec.settings.noise {
            NoiseSource::File(path) => Some(std::path::absolute(path).unwrap_or(path.clone())),
            NoiseSource::Seed(_) => None,
        };
        if resumable {
            match reseed_media::sequence(&spec.input) {
                Some(files) => record.set_files("input", &spec.input, &files)?,
                None => record.set_file("input", &spec.input)?,
            }
            noise_file.iter().try_for_each(|path| record.set_file("noise", path))?;
        }
        let input = std::path::absolute(&spec.input).unwrap_or(spec.input.clone());
        let origin = Origin { input, noise_file, model: String::new() };
        let folder = journal::folder(&spec.output);
        let store = resumable.then(|| DiskBatchStore::new(folder.clone()));
        let (output, video) = (spec.output.clone(), Options { resumable, ..spec.video.clone() });
        let mut work = Work { output, video, origin, record, earlier: None, journal: None, store, kept: 0, resumable };
        if resumable && let Some((journal, earlier)) = Journal::open(&folder)? {
            work.take_up(journal, earlier, spec.existing)?;
        }
        Ok(work)
    }

    fn take_up(&mut self, mut journal: Journal, earlier: EarlierRun, existing: Existing) -> Result<()> {
        match existing {
            Existing::Resume if earlier.has_work() => {
                self.compare(&earlier)?;
                self.kept = earlier.frames();
                (self.earlier, self.journal) = (Some(earlier), Some(journal));
            }
            Existing::Refuse if earlier.has_work() => {
                return Err(Error::Unfinished { path: self.output.clone(), frames: earlier.frames() });
            }
            _ => {
                journal.forget();
                reseed_media::discard(&self.output).map_err(Error::Output)?;
            }
        }
        Ok(())
    }

    /// An error where the earlier run had other settings.
    fn compare(&self, earlier: &EarlierRun) -> Result<()> {
        self.record.difference(&earlier.record).map_or(Ok(()), |(setting, before, now)| {
            Err(Error::SettingChanged { path: self.output.clone(), setting, before, now })
        })
    }

    fn compare_again(&self) -> Result<()> {
        self.earlier.as_ref().map_or(Ok(()), |earlier| self.compare(earlier))
    }

    /// The output is complete.
    fn finish(mut self) {
        self.journal.iter_mut().for_each(Journal::forget);
    }
}

impl Output for Work {
    /// Everything that is known is compared before the sink is opened.
    fn open(&mut self, info: &Info, environment: &Environment) -> Result<Box<dyn Sink>> {
        if self.resumable {
            environment.values.iter().for_each(|(name, value)| self.record.set(name, value));
            let mut digest = record::FNV_OFFSET;
            environment.embedded.iter().for_each(|content| digest = record::digest(digest, content));
            self.record.set("model", format!("{} ({digest:016x})", environment.model));
            environment.files.iter().try_for_each(|(name, path)| self.record.set_file(name, path))?;
            self.origin.model = environment.model.clone();
            self.compare_again()?;
        }
        let sink = match &self.earlier {
            // A failure from here on must not remove finished frames.
            Some(earlier) => {
                reseed_media::resume_with(&self.output, info, &self.video, earlier.frames()).map(|mut sink| {
                    sink.keep_unfinished();
                    sink
                })
            }
            None => reseed_media::create_with(&self.output, info, &self.video),
        };
        let sink = sink.map_err(Error::Output)?;
        if self.resumable && self.journal.is_none() {
            self.journal = Some(Journal::create(&journal::folder(&self.output))?);
        }
        Ok(sink)
    }

    fn start(&mut self, plan: &str, info: &Info) -> Result<Checkpoint> {
        if !self.resumable {
            return Ok(Checkpoint::default());
        }
        self.record.set("plan", plan);
        self.compare_again()?;
        match (&self.earlier, &mut self.journal) {
            (Some(earlier), _) => earlier.point(&journal::folder(&self.output), 3 * info.size.pixels()),
            (None, Some(journal)) => journal.describe(&self.origin, &self.record).map(|()| Checkpoint::default()),
            (None, None) => unreachable!("a resumable job has a journal"),
        }
    }

    fn watch(&mut self) -> Watch<'_> {
        let Work { journal, store, kept, .. } = self;
        let store = store.as_ref();
        let recorder =
            journal.as_mut().map(|journal| Box::new(JobRecorder { journal, store, kept }) as Box<dyn Recorder>);
        Watch { recorder, store: store.map(|store| store as &dyn BatchStore) }
    }
}

/// Writes checkpoints to the journal.
struct JobRecorder<'a> {
    journal: &'a mut Journal,
    store: Option<&'a DiskBatchStore>,
    kept: &'a mut usize,
}

impl Recorder for JobRecorder<'_> {
    fn record(&mut self, point: &Checkpoint, sink: &mut dyn Sink) -> reseed_media::Result<()> {
        let safe = sink.sync()?;
        assert_eq!(safe, point.frames, "a sink keeps the frames that were written to it");
        self.journal.add(point)?;
        self.store.inspect(|store| store.forget(point.batches));
        sink.keep_unfinished();
        *self.kept = point.frames;
        Ok(())
    }
}
