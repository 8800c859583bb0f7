//! The work at one output: journal, stored batches and the sink that continues an earlier run.

use std::path::{Path, PathBuf};

use reseed_media::video::{Options, has_segments};
use reseed_media::{Digest, Info, Kind, Sink};

use super::journal::{self, EarlierRun, Journal, Origin};
use super::record::JobRecord;
use super::store::DiskBatchStore;
use super::{Existing, JobSpec, is_pipe};
use crate::batch_store::BatchStore;
use crate::checkpoint::{Checkpoint, Recorder};
use crate::error::{Error, Result};
use crate::session::{Environment, Output, Watch};
use crate::settings::NoiseSource;

/// An unfinished output that is gone is damage too.
fn gone(error: reseed_media::Error) -> reseed_media::Error {
    match error {
        reseed_media::Error::Read { path, cause } if cause.kind() == std::io::ErrorKind::NotFound => {
            reseed_media::Error::MissingFrame { path, frame: 1 }
        }
        error => error,
    }
}

/// Whether a path is a file or a folder with content.
pub fn has_content(path: &Path) -> bool {
    match std::fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0),
    }
}

/// What an earlier run left at an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// The journal of an output that has its name.
    CompleteOutput,
    /// The journal of an interrupted job.
    Work,
}

/// The work at one output.
pub struct Work {
    output: PathBuf,
    video: Options,
    origin: Origin,
    record: JobRecord,
    pub found: Found,
    pub earlier: Option<EarlierRun>,
    journal: Option<Journal>,
    store: Option<DiskBatchStore>,
    /// Finished frames.
    pub kept: usize,
    /// Whether the job has a journal.
    resumable: bool,
}

impl Work {
    /// Finds the work of an interrupted job, and takes it up or discards it.
    pub fn open(spec: &JobSpec, kind: &Kind) -> Result<Work> {
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
        let (found, earlier, journal) = (Found::Nothing, None, None);
        let mut work = Work { output, video, origin, record, found, earlier, journal, store, kept: 0, resumable };
        if resumable && let Some((journal, earlier)) = Journal::open(&folder)? {
            work.take_up(journal, earlier, spec.existing)?;
        }
        Ok(work)
    }

    fn take_up(&mut self, mut journal: Journal, mut earlier: EarlierRun, existing: Existing) -> Result<()> {
        if earlier.is_complete() && has_content(&self.output) && !reseed_media::has_unfinished(&self.output) {
            // The run was killed between the rename of the output and the removal of the journal.
            self.found = Found::CompleteOutput;
            journal.forget();
            return Ok(());
        }
        self.found = Found::Work;
        match existing {
            Existing::Resume | Existing::Refuse if earlier.is_damaged() => {
                return Err(Error::JournalDamaged { path: journal::folder(&self.output) });
            }
            Existing::Resume if earlier.has_work() => {
                let encoded = has_segments(&journal::folder(&self.output));
                let changed = !encoded && earlier.record.take_encoder_options(&self.record);
                self.compare(&earlier)?;
                if changed {
                    journal.change(&earlier.record)?;
                }
                self.kept = earlier.frames();
                (self.earlier, self.journal) = (Some(earlier), Some(journal));
            }
            Existing::Refuse if earlier.has_work() => {
                return Err(Error::Unfinished { path: self.output.clone(), frames: earlier.frames() });
            }
            _ => {
                journal.start_again()?;
                reseed_media::discard(&self.output).map_err(Error::Output)?;
            }
        }
        Ok(())
    }

    /// Continues the output of the earlier run, unless its frames are damaged.
    fn continue_output(&self, earlier: &EarlierRun, info: &Info) -> reseed_media::Result<Box<dyn Sink>> {
        let mut sink = reseed_media::resume_with(&self.output, info, &self.video, earlier.frames()).map_err(gone)?;
        // A failure from here on must not remove finished frames.
        sink.keep_unfinished();
        match earlier.output_digest() == Some(sink.digest()) {
            true => Ok(sink),
            false => Err(reseed_media::Error::DamagedFrames { path: self.output.clone() }),
        }
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
    pub fn finish(mut self) {
        self.journal.iter_mut().for_each(Journal::forget);
    }
}

impl Output for Work {
    /// Everything that is known is compared before the sink is opened.
    fn open(&mut self, info: &Info, environment: &Environment) -> Result<Box<dyn Sink>> {
        if self.resumable {
            environment.values.iter().for_each(|(name, value)| self.record.set(name, value));
            let mut digest = Digest::new(0);
            environment.embedded.iter().for_each(|content| digest.update(content));
            self.record.set("model", format!("{} ({:016x})", environment.model, digest.value()));
            environment.files.iter().try_for_each(|(name, path)| self.record.set_file(name, path))?;
            self.origin.model = environment.model.clone();
            self.compare_again()?;
        }
        let sink = match &self.earlier {
            Some(earlier) => self.continue_output(earlier, info),
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
        Watch { recorder, store: store.map(|store| store as &dyn BatchStore), places: &[] }
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
        self.journal.add(point, sink.digest())?;
        self.store.inspect(|store| store.forget(point.batches));
        sink.keep_unfinished();
        *self.kept = point.frames;
        Ok(())
    }

    fn complete(&mut self, sink: &mut dyn Sink) -> reseed_media::Result<()> {
        let frames = sink.sync()?;
        self.journal.complete(frames)
    }
}
