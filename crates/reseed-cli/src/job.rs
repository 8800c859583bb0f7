//! A job that outlives its run: what an earlier run left, and going on with it.

pub mod journal;
mod made;
pub mod settings;

use std::path::{Path, PathBuf};

use reseed::{BatchStore, Checkpoint, Phase};
use reseed_media::video::Options;
use reseed_media::{Info, Kind, Sink};

use crate::ending;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use journal::{EarlierRun, Journal};
use made::DiskBatchStore;
use settings::Settings;

/// What to do with what an earlier run left.
#[derive(Clone, Copy, Default)]
pub struct Leftovers {
    pub resume: bool,
    pub overwrite: bool,
}

/// The work at one output.
pub struct Work {
    output: PathBuf,
    settings: Settings,
    earlier: Option<EarlierRun>,
    journal: Option<Journal>,
    made: Option<DiskBatchStore>,
    /// Whether there is something to go on with if it is interrupted: pipes and single images have nothing.
    keeps: bool,
}

impl Work {
    /// Looks for what an earlier run left, and goes on with it or starts anew, as it was asked for.
    pub fn begin(input: &Path, output: &Path, kind: &Kind, leftovers: Leftovers, settings: Settings) -> Result<Work> {
        let is_pipe = |path: &Path| path == Path::new("-");
        let keeps = !is_pipe(input) && !is_pipe(output) && *kind != Kind::Image;
        if leftovers.resume && (is_pipe(input) || is_pipe(output)) {
            return Err(Failure::Usage("--resume: a pipe cannot be gone on with; give files".into()));
        }
        let made = keeps.then(|| DiskBatchStore::new(journal::folder(output)));
        let mut work = Work { output: output.into(), settings, earlier: None, journal: None, made, keeps };
        if keeps && let Some((journal, earlier)) = Journal::open(&journal::folder(output))? {
            work.take_up(journal, earlier, leftovers)?;
        }
        Ok(work)
    }

    /// Whether it goes on with what an earlier run left.
    pub fn goes_on(&self) -> bool {
        self.earlier.is_some()
    }

    fn take_up(&mut self, mut journal: Journal, earlier: EarlierRun, leftovers: Leftovers) -> Result<()> {
        let (output, frames) = (self.output.display(), earlier.frames());
        if earlier.has_work() && leftovers.resume {
            self.compare(&earlier.settings)?;
            (self.earlier, self.journal) = (Some(earlier), Some(journal));
        } else if earlier.has_work() && !leftovers.overwrite {
            let line =
                format!("{output}: {frames} frames of it are finished; --resume goes on, --overwrite starts anew");
            return Err(Failure::Usage(line));
        } else {
            journal.forget();
            reseed_media::discard(&self.output).map_err(Failure::output)?;
        }
        Ok(())
    }

    fn compare(&self, before: &Settings) -> Result<()> {
        let output = self.output.display();
        self.settings.differs_from(before).map_or(Ok(()), |difference| {
            let way = "resume with the same, or start anew with --overwrite";
            Err(Failure::Usage(format!("{output}: cannot be resumed: {difference}; {way}")))
        })
    }

    /// Where the result goes.
    pub fn sink(&mut self, info: &Info, options: &Options) -> Result<Box<dyn Sink>> {
        let options = &Options { resumable: self.keeps, ..options.clone() };
        let sink = match &self.earlier {
            Some(earlier) => reseed_media::resume_with(&self.output, info, options, earlier.frames()),
            None => reseed_media::create_with(&self.output, info, options),
        };
        let sink = sink.map_err(Failure::output)?;
        if self.keeps && self.journal.is_none() {
            self.journal = Some(Journal::create(&journal::folder(&self.output))?);
        }
        Ok(sink)
    }

    /// Now that everything is known that the result depends on: where the job starts.
    pub fn start(&mut self, settings: impl FnOnce(Settings) -> Result<Settings>, info: &Info) -> Result<Checkpoint> {
        ending::kept(self.earlier.as_ref().map_or(0, EarlierRun::frames));
        if !self.keeps {
            return Ok(Checkpoint::default());
        }
        self.settings = settings(std::mem::take(&mut self.settings))?;
        match (&self.earlier, &mut self.journal) {
            (Some(earlier), _) => {
                self.compare(&earlier.settings)?;
                earlier.point(&journal::folder(&self.output), 3 * info.size.pixels())
            }
            (None, Some(journal)) => journal.describe(&self.settings).map(|()| Checkpoint::default()),
            (None, None) => unreachable!("a job that keeps its work has a journal"),
        }
    }

    /// Hears of the job while it runs, and keeps what its networks make.
    pub fn watch(&mut self, progress: Progress) -> (Watch<'_>, Option<&dyn BatchStore>) {
        let Work { journal, made, .. } = self;
        let made = made.as_ref();
        (Watch { progress, journal: journal.as_mut(), made }, made.map(|made| made as &dyn BatchStore))
    }

    /// The output is complete.
    pub fn finish(mut self) {
        self.journal.iter_mut().for_each(Journal::forget);
    }
}

/// A line on the terminal, the journal, and Ctrl-C.
pub struct Watch<'a> {
    progress: Progress,
    journal: Option<&'a mut Journal>,
    made: Option<&'a DiskBatchStore>,
}

impl Watch<'_> {
    /// Without a journal.
    pub fn plain(progress: Progress) -> Watch<'static> {
        Watch { progress, journal: None, made: None }
    }
}

impl reseed::Progress for Watch<'_> {
    fn advance(&mut self, frames: usize) {
        self.progress.advance(frames);
    }

    fn working(&mut self, phase: Phase) {
        self.progress.step(match phase {
            Phase::Wait => "reading",
            Phase::Encode => "encoding",
            Phase::Upscale => "restoring",
            Phase::Decode => "decoding",
        });
    }

    fn cancelled(&mut self) -> bool {
        ending::check_cancelled().is_err()
    }

    fn wants_points(&self) -> bool {
        self.journal.is_some()
    }

    fn batch_done(&mut self, point: &Checkpoint, sink: &mut dyn Sink) -> reseed_media::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let safe = sink.sync()?;
        assert_eq!(safe, point.frames, "a sink keeps what was written to it");
        journal.add(point)?;
        self.made.inspect(|made| made.forget(point.batches));
        sink.keep_unfinished();
        ending::kept(point.frames);
        Ok(())
    }
}
