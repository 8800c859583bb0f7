//! A thread for each device, which runs jobs and previews.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use reseed::media::{check_self_contained, files};
use reseed::{Error, Eta, Event, Existing, Job, JobSpec, Kind, Observer, Phase};

use crate::app::{App, Counters};
use crate::journal::{Accepted, JobError};
use crate::queue::{Control, Task};
use crate::request::{parsed, spec_of};
use crate::sessions::SessionCache;
use crate::settings::Chosen;

/// Progress is sent to clients at most so often.
const INTERVAL: Duration = Duration::from_millis(200);
/// Warnings of a job that are kept.
const MAX_WARNINGS: usize = 20;

/// Starts the thread of a device with its session.
pub fn start(app: Arc<App>, device: String, sessions: SessionCache) -> std::io::Result<JoinHandle<()>> {
    let name = format!("reseed-{device}");
    thread::Builder::new().name(name).spawn(move || Worker { app, device, sessions }.run())
}

struct Worker {
    app: Arc<App>,
    device: String,
    sessions: SessionCache,
}

impl Worker {
    fn run(mut self) {
        while let Some(task) = self.app.queue.next(&self.device) {
            match task {
                Task::Preview(preview) => {
                    if catch_unwind(AssertUnwindSafe(|| preview(&mut self.sessions))).is_err() {
                        tracing::error!(device = self.device, "a preview panicked");
                        self.sessions.clear();
                    }
                }
                Task::Job(accepted, control) => self.job(&accepted, &control),
            }
        }
    }

    fn job(&mut self, accepted: &Accepted, control: &Control) {
        let id = accepted.id.as_str();
        tracing::info!(job = id, device = self.device, input = %accepted.input.display(), "started");
        let result = catch_unwind(AssertUnwindSafe(|| self.run_job(accepted, control)));
        let result = result.unwrap_or_else(|_| {
            self.sessions.clear();
            Err(JobError { kind: Kind::Failed.name().into(), detail: "an internal error; see the log".into() })
        });
        match &result {
            Ok((frames, bytes)) => tracing::info!(job = id, frames, bytes, "done"),
            Err(error) => tracing::info!(job = id, kind = error.kind, detail = error.detail, "stopped"),
        }
        self.app.queue.end(id, result);
    }

    /// Runs a job and returns the frames and bytes of its output.
    fn run_job(&mut self, accepted: &Accepted, control: &Control) -> Result<(usize, u64), JobError> {
        let usage = |detail: String| JobError { kind: Kind::Usage.name().into(), detail };
        if let Some(folder) = accepted.output.parent().filter(|folder| folder.starts_with(&self.app.config.data)) {
            fs::create_dir_all(folder).map_err(|error| usage(format!("{}: {error}", folder.display())))?;
        }
        // The folders may have changed since the job was accepted.
        let input = files::canonicalize(&accepted.input).map_err(|error| usage(error.to_string()))?;
        let folder = accepted.output.parent().and_then(|folder| files::canonicalize(folder).ok());
        if !self.app.may_use(&input) || !folder.is_some_and(|folder| self.app.may_use(&folder)) {
            return Err(usage("the input or the output is no longer under a folder that this server serves".into()));
        }
        let unusable = |error: reseed::media::Error| {
            let error = Error::Input(error);
            JobError { kind: error.kind().name().into(), detail: error.to_string() }
        };
        if input.is_file() {
            check_self_contained(&input).map_err(unusable)?;
        }
        let chosen = parsed(&accepted.settings).map_err(|_| usage("the settings are not understood".into()))?;
        match self.attempt(accepted, &chosen, control) {
            // Such as the work of another version of this program.
            Err(error) if matches!(error, Error::SettingChanged { .. }) || error.is_damage() => {
                tracing::warn!(job = accepted.id, %error, "the work cannot be resumed; starting again");
                Job::discard(&accepted.output).and_then(|()| self.attempt(accepted, &chosen, control))
            }
            result => result,
        }
        .map(|frames| (frames, bytes_at(&accepted.output)))
        .map_err(|error| JobError { kind: error.kind().name().into(), detail: error.to_string() })
    }

    fn attempt(&mut self, accepted: &Accepted, chosen: &Chosen, control: &Control) -> reseed::Result<usize> {
        let job = open(accepted, chosen, self.app.queue.has_begun(&accepted.id))?;
        if job.is_complete() {
            return Ok(accepted.frames.unwrap_or(0));
        }
        let session = self.sessions.get(&accepted.model)?;
        let recorded = self.app.queue.begin(&accepted.id);
        recorded.map_err(|cause| Error::Write { path: self.app.config.data.clone(), cause })?;
        let resumable = !job.info().kind.is_still();
        let mut observer = JobObserver::new(&self.app, &accepted.id, control, resumable);
        let done = job.run(session, &mut observer);
        observer.send(true);
        done.map(|report| observer.done.max(report.frames))
    }
}

/// Bytes of a file, or of the files of a folder.
fn bytes_at(path: &Path) -> u64 {
    let bytes = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    match path.is_dir() {
        false => bytes(path),
        true => fs::read_dir(path).into_iter().flatten().flatten().map(|entry| bytes(&entry.path())).sum(),
    }
}

/// Opens a job. The work of an earlier run is resumed.
fn open(accepted: &Accepted, chosen: &Chosen, begun: bool) -> reseed::Result<Job> {
    let spec = spec_of(&accepted.input, &accepted.output, chosen.clone());
    let first = if accepted.overwrite { Existing::Overwrite } else { Existing::Refuse };
    if !begun {
        return Job::open(JobSpec { existing: first, ..spec });
    }
    let job = Job::open(JobSpec { existing: Existing::Resume, ..spec.clone() })?;
    // A complete output may be the one that was to be replaced.
    match job.is_complete() && accepted.overwrite {
        true => Job::open(JobSpec { existing: first, ..spec }),
        false => Ok(job),
    }
}

/// Passes the events of a job to clients, and their wishes to the job.
struct JobObserver<'a> {
    app: &'a App,
    id: &'a str,
    control: &'a Control,
    resumable: bool,
    /// Whether a batch has ended since a preview waits.
    yields: bool,
    eta: Eta,
    start: Instant,
    sent: Option<Instant>,
    total: Option<usize>,
    /// Frames of earlier runs.
    before: usize,
    done: usize,
    saved: usize,
    batches: usize,
    phase: Option<&'static str>,
    warnings: Vec<String>,
}

impl<'a> JobObserver<'a> {
    fn new(app: &'a App, id: &'a str, control: &'a Control, resumable: bool) -> JobObserver<'a> {
        let (eta, start, warnings) = (Eta::default(), Instant::now(), Vec::new());
        let (sent, total, before, done, saved, batches, phase, yields) = (None, None, 0, 0, 0, 0, None, false);
        JobObserver {
            app,
            id,
            control,
            resumable,
            yields,
            eta,
            start,
            sent,
            total,
            before,
            done,
            saved,
            batches,
            phase,
            warnings,
        }
    }

    /// Sends the progress, if some time has passed or if it must be.
    fn send(&mut self, must: bool) {
        if !must && self.sent.is_some_and(|sent| sent.elapsed() < INTERVAL) {
            return;
        }
        self.sent = Some(Instant::now());
        let (elapsed, run) = (self.start.elapsed(), self.done - self.before);
        let left = self.total.and_then(|total| self.eta.seconds(total.saturating_sub(self.before), elapsed));
        self.app.queue.update(self.id, |progress| {
            progress.total = self.total.or(progress.total);
            (progress.done, progress.saved, progress.phase) = (self.done, self.saved, self.phase);
            progress.batches = self.batches;
            progress.batches_total = progress.batches_total.map(|total| total.max(self.batches));
            progress.fps = (run > 0).then(|| run as f64 / elapsed.as_secs_f64().max(1e-9));
            progress.eta_seconds = left;
            progress.warnings.clone_from(&self.warnings);
        });
    }
}

impl Observer for JobObserver<'_> {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Started { frames, done } => {
                (self.total, self.before, self.done, self.saved) = (*frames, *done, *done, *done);
                (self.start, self.eta) = (Instant::now(), Eta::default());
                self.send(true);
            }
            Event::Phase(phase) => {
                self.phase = Some(match phase {
                    Phase::Wait => "wait",
                    Phase::Encode => "encode",
                    Phase::Upscale => "upscale",
                    Phase::Decode => "decode",
                });
                self.send(false);
            }
            Event::Frames(count) => {
                self.done += count;
                Counters::add(&self.app.counters.frames, *count);
                self.eta.update(self.done - self.before, self.start.elapsed());
                self.send(false);
            }
            Event::Batch { batches } => {
                self.batches = *batches;
                self.yields |= self.control.is_preempted();
            }
            Event::Saved { frames } => self.saved = *frames,
            Event::Warning(warning) if self.warnings.len() < MAX_WARNINGS => {
                self.warnings.push(warning.to_string());
                self.send(true);
            }
            _ => {}
        }
    }

    fn cancelled(&mut self) -> bool {
        self.control.is_stopped() || (self.resumable && self.yields)
    }
}
