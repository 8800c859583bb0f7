//! The queue: which job runs next, and what clients may do with jobs.
//!
//! Every change is in the journal before a client hears of it. The lock of the journal orders changes; the lock of the
//! jobs is held for moments only, so that reading never waits for the disk.

mod change;
mod job;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reseed::Kind;
use serde_json::json;

use crate::error::{Error, Result};
use crate::events::EventHub;
use crate::journal::{Accepted, JobError, Journal, Record, State};
use crate::sessions::SessionCache;
use crate::view::{JobView, Progress};
pub use change::{Acceptance, ChangeError};
use job::QueuedJob;

/// Work for a device between two batches of a job.
pub type PreviewTask = Box<dyn FnOnce(&mut SessionCache) + Send>;

/// Previews that wait.
const MAX_PREVIEWS: usize = 16;

/// Asks a running job to stop.
#[derive(Default)]
pub struct Control {
    stop: AtomicBool,
    preempt: AtomicBool,
}

impl Control {
    /// Stops the job as soon as possible.
    fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Whether the job shall stop now.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Whether the job shall stop after a batch.
    pub fn is_preempted(&self) -> bool {
        self.preempt.load(Ordering::SeqCst)
    }
}

/// What a device does next.
pub enum Task {
    /// A preview.
    Preview(PreviewTask),
    /// A job.
    Job(Box<Accepted>, Arc<Control>),
}

#[derive(Default)]
struct Jobs {
    /// In the order of the queue.
    list: Vec<QueuedJob>,
    /// Jobs that a device works on, by id.
    active: HashMap<String, Arc<Control>>,
    previews: VecDeque<PreviewTask>,
    /// Devices without work.
    idle: usize,
    stopped: bool,
}

impl Jobs {
    fn find(&self, id: &str) -> Option<&QueuedJob> {
        self.list.iter().find(|job| job.accepted.id == id)
    }

    fn find_mut(&mut self, id: &str) -> Option<&mut QueuedJob> {
        self.list.iter_mut().find(|job| job.accepted.id == id)
    }

    fn view(&self, job: &QueuedJob) -> JobView {
        let waiting = self.list.iter().filter(|job| job.state == State::Queued);
        let position = waiting.enumerate().find(|(_, other)| other.accepted.id == job.accepted.id);
        job.view(position.map(|(position, _)| position), self.active.contains_key(&job.accepted.id))
    }

    /// The next job of a device.
    fn next(&self, device: &str) -> Option<usize> {
        self.list.iter().position(|job| {
            let suits = job.accepted.device.as_deref().is_none_or(|chosen| chosen == device);
            job.state == State::Queued && suits && !self.active.contains_key(&job.accepted.id)
        })
    }
}

/// The jobs of a server.
pub struct Queue {
    journal: Mutex<Journal>,
    jobs: Mutex<Jobs>,
    wake: Condvar,
    hub: Arc<EventHub>,
    limit: usize,
    /// Ended jobs that are listed.
    ended: usize,
}

impl Queue {
    /// The queue of a data folder. Jobs that ran when the server ended wait again, in their places.
    pub fn open(data: &Path, hub: Arc<EventHub>, limit: usize, ended: usize) -> Result<Queue> {
        let (mut journal, records) = Journal::open(data)?;
        let mut jobs = Jobs::default();
        records.into_iter().for_each(|record| change::apply(&mut jobs, record));
        let failed = |cause| Error::Data { path: data.into(), cause };
        journal.rewrite(&jobs.list.iter().flat_map(QueuedJob::records).collect::<Vec<_>>()).map_err(failed)?;
        Ok(Queue { journal: Mutex::new(journal), jobs: Mutex::new(jobs), wake: Condvar::new(), hub, limit, ended })
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All jobs in the order of the queue.
    pub fn list(&self) -> Vec<JobView> {
        let jobs = self.jobs();
        jobs.list.iter().map(|job| jobs.view(job)).collect()
    }

    /// One job.
    pub fn get(&self, id: &str) -> Option<JobView> {
        let jobs = self.jobs();
        jobs.find(id).map(|job| jobs.view(job))
    }

    /// A job as it was accepted, with its state.
    pub fn accepted(&self, id: &str) -> Option<(Accepted, State)> {
        self.jobs().find(id).map(|job| (job.accepted.clone(), job.state))
    }

    /// Devices that work, with their jobs.
    pub fn running(&self) -> Vec<(String, String)> {
        let jobs = self.jobs();
        let active = jobs.list.iter().filter(|job| jobs.active.contains_key(&job.accepted.id));
        active.filter_map(|job| Some((job.device()?.to_owned(), job.accepted.id.clone()))).collect()
    }

    /// The number of jobs in each state.
    pub fn counts(&self) -> [(State, usize); 6] {
        let jobs = self.jobs();
        State::ALL.map(|state| (state, jobs.list.iter().filter(|job| job.state == state).count()))
    }

    /// Waits for work. `None` when the server stops.
    pub fn next(&self, device: &str) -> Option<Task> {
        let mut jobs = self.jobs();
        jobs.idle += 1;
        let task = loop {
            if jobs.stopped {
                break None;
            }
            if let Some(preview) = jobs.previews.pop_front() {
                break Some(Task::Preview(preview));
            }
            if let Some(index) = jobs.next(device) {
                let control = Arc::new(Control::default());
                let job = &mut jobs.list[index];
                job.start(device);
                let accepted = job.accepted.clone();
                jobs.active.insert(accepted.id.clone(), control.clone());
                break Some(Task::Job(Box::new(accepted), control));
            }
            jobs = self.wake.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        };
        jobs.idle -= 1;
        if let Some(Task::Job(accepted, _)) = &task {
            self.announce(&jobs, &accepted.id);
        }
        task
    }

    /// Whether an earlier run of a job has begun. It is recorded that this one has.
    pub fn begin(&self, id: &str) -> std::io::Result<bool> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if self.jobs().find(id).is_some_and(|job| job.started) {
            return Ok(true);
        }
        journal.append(&[Record::Start { id: id.into() }])?;
        self.jobs().find_mut(id).into_iter().for_each(|job| job.started = true);
        Ok(false)
    }

    /// Whether an earlier run of a job has begun.
    pub fn has_begun(&self, id: &str) -> bool {
        self.jobs().find(id).is_some_and(|job| job.started)
    }

    /// A device has ended its work on a job. The result of a job that is done has so many frames and bytes.
    pub fn end(&self, id: &str, result: std::result::Result<(usize, u64), JobError>) {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let mut jobs = self.jobs();
        let Some(job) = jobs.find(id) else { return };
        let cancelled = matches!(&result, Err(error) if error.kind == Kind::Cancelled.name());
        let record = |state, frames, bytes, error| {
            let (id, at) = (id.into(), now());
            Record::State { id, state, at, frames, bytes, error }
        };
        let record = match (result, job.state) {
            (Ok((frames, bytes)), _) => Some(record(State::Done, Some(frames), Some(bytes), None)),
            (Err(_), State::Cancelled) => None,
            (Err(_), _) if cancelled => None,
            (Err(error), _) => Some(record(State::Failed, None, None, Some(error))),
        };
        drop(jobs);
        if let Some(Err(cause)) = record.as_ref().map(|record| journal.append(std::slice::from_ref(record))) {
            tracing::error!(%cause, job = id, "the end of a job cannot be recorded; the next start finds it");
        }
        jobs = self.jobs();
        jobs.active.remove(id);
        record.into_iter().for_each(|record| change::apply(&mut jobs, record));
        jobs.find_mut(id).into_iter().for_each(QueuedJob::stand);
        self.announce(&jobs, id);
        self.wake.notify_all();
    }

    /// Changes the progress of a running job.
    pub fn update(&self, id: &str, change: impl FnOnce(&mut Progress)) {
        let mut jobs = self.jobs();
        if let Some(job) = jobs.find_mut(id) {
            change(&mut job.progress);
            self.announce(&jobs, id);
        }
    }

    /// Adds a preview, which runs before any job, and after a batch where all devices are busy. False where too many
    /// wait.
    pub fn preview(&self, task: PreviewTask) -> bool {
        let mut jobs = self.jobs();
        if jobs.previews.len() >= MAX_PREVIEWS || jobs.stopped {
            return false;
        }
        jobs.previews.push_back(task);
        if jobs.idle == 0
            && let Some(control) = jobs.active.values().next()
        {
            control.preempt.store(true, Ordering::SeqCst);
        }
        self.wake.notify_all();
        true
    }

    /// Stops all devices. Jobs continue at the next start.
    pub fn stop(&self) {
        let mut jobs = self.jobs();
        jobs.stopped = true;
        jobs.active.values().for_each(|control| control.stop());
        jobs.previews.clear();
        self.wake.notify_all();
    }

    /// Outputs of jobs that devices still work on after a time.
    pub fn wait_idle(&self, time: Duration) -> Vec<std::path::PathBuf> {
        let jobs = self.jobs();
        let waited = self.wake.wait_timeout_while(jobs, time, |jobs| !jobs.active.is_empty());
        let (jobs, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let outputs = jobs.active.keys().filter_map(|id| jobs.find(id));
        outputs.map(|job| job.accepted.output.clone()).collect()
    }

    /// Lets another server use the queue.
    pub fn release(&self) {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).release();
    }

    /// Sends a job to clients.
    fn announce(&self, jobs: &Jobs, id: &str) {
        if let Some(job) = jobs.find(id) {
            self.hub.send("job", &json!(jobs.view(job)));
        }
    }
}

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| (time.as_secs_f64() * 1e3).round() / 1e3)
}
