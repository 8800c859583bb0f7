//! Jobs on files, with a journal from which they are resumed.

pub(crate) mod journal;
mod line;
mod record;
mod store;
mod work;

use std::path::{Path, PathBuf};

use reseed_media::video::{Clip, Options};
use reseed_media::{Info, Kind, Source};

use crate::batch::Batching;
use crate::error::{Error, Result};
use crate::observer::{Event, Observer, Warning};
use crate::report::Report;
use crate::session::Session;
use crate::settings::Settings;
use journal::Journal;
pub(crate) use record::JobRecord;
use work::{Found, Work, has_content};

/// What happens to an existing output and to the work of an interrupted job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Neither is touched: the job is refused.
    #[default]
    Refuse,
    /// Both are replaced.
    Overwrite,
    /// An interrupted job with the same settings is resumed. An output without a work folder is
    /// [complete](Job::is_complete), and the job does nothing.
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

    /// The settings that the job uses for an input: those of the user, within what input and output allow.
    pub fn settings_for(&self, input: &Info) -> Settings {
        let mut settings = self.settings.clone();
        settings.even_sides |= reseed_media::needs_even_sides(&self.output, input, &self.video);
        if input.kind.is_still() {
            // Pages have nothing to do with each other.
            settings.batching = Batching { size: 1, overlap: 0, uniform: false };
            settings.lead_in = 0;
        }
        settings
    }
}

/// A job on files. After every batch its finished frames are safe on disk, and a journal beside the output knows how to
/// continue. Single images and pipes have no journal. An error, a panic and a process that is killed keep the finished
/// frames. Digests find damage to them: a resumed job goes back to an undamaged checkpoint, or is an error.
///
/// ```
/// # let folder = temp_dir::TempDir::new()?;
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
    complete: bool,
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
        let damaged = || Error::JournalDamaged { path: folder.clone() };
        let earlier = match Journal::open(&folder)?.map(|(_, earlier)| earlier) {
            Some(earlier) if earlier.is_damaged() => return Err(damaged()),
            Some(earlier) if earlier.has_work() => earlier,
            _ => return Err(Error::NothingToResume { path: output.into() }),
        };
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
        reseed_media::files::check_name(&spec.output).map_err(Error::Output)?;
        let source = reseed_media::open_clip(&spec.input, spec.clip).map_err(Error::Input)?;
        spec.settings = spec.settings_for(source.info());
        let work = Work::open(&spec, &source.info().kind)?;
        let complete = spec.existing == Existing::Resume && work.found != Found::Work && has_content(&spec.output);
        let replaces = spec.existing == Existing::Overwrite || work.earlier.is_some();
        if !replaces && !complete && spec.output.is_file() {
            return Err(Error::OutputExists { path: spec.output });
        }
        Ok(Job { spec, source, work, complete })
    }

    /// Whether a job that was to be resumed has nothing left to do. An output gets its name when it is complete, and
    /// then its work folder is removed: a file or a folder with content that has no work folder is complete. The
    /// settings that it was made with are not known.
    pub fn is_complete(&self) -> bool {
        self.complete
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

    /// Runs the job to its end. A [complete](Job::is_complete) job has an empty report.
    pub fn run(self, session: &Session, observer: &mut dyn Observer) -> Result<Report> {
        if self.complete {
            return Ok(Report::default());
        }
        let Job { spec, mut source, mut work, .. } = self;
        if let Kind::Video(video) = &source.info().kind {
            video.field_note().iter().for_each(|note| observer.event(&Event::Fields((*note).to_owned())));
        }
        let losses = reseed_media::losses(source.info(), &spec.output, &spec.video).into_iter().map(Warning::Loss);
        losses.for_each(|warning| observer.event(&Event::Warning(warning)));
        let done = session.execute(&mut *source, &spec.settings, &mut work, observer);
        // An error of the input says already what is wrong with it.
        if !matches!(done, Err(Error::Input(_))) {
            let problems = source.problems().into_iter().map(|problem| Warning::DamagedInput { problem });
            problems.for_each(|warning| observer.event(&Event::Warning(warning)));
        }
        let kept = work.kept;
        match done {
            Ok(report) => {
                work.finish();
                Ok(report)
            }
            Err(Error::NoFrames { .. }) => Err(Error::NoFrames { path: Some(spec.input) }),
            Err(error) if error.is_damage() => Err(error),
            Err(error) => Err(error.keeping(kept)),
        }
    }

    /// Removes the journal that a process left at an output when it ended without dropping its job, unless frames of it
    /// are finished.
    pub fn discard_unused(output: &Path) {
        journal::discard_unused(&journal::folder(output));
    }

    /// Removes the work of an interrupted job at an output. An output that has its name stays. An error where the job
    /// runs.
    pub fn discard(output: &Path) -> Result<()> {
        let folder = journal::folder(output);
        let Some((mut journal, _)) = Journal::open(&folder)? else { return Ok(()) };
        journal.start_again()?;
        reseed_media::discard(output).map_err(Error::Output)
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
