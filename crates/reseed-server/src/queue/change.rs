//! Changes of the queue: each is valid, recorded and then applied.

use std::path::Path;
use std::sync::PoisonError;

use reseed::Job;
use serde_json::json;

use super::job::QueuedJob;
use super::{Jobs, Queue, now};
use crate::journal::{Accepted, Record, State};
use crate::view::JobView;

/// Why a change is refused.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// No job has this id.
    #[error("no job has the id {0:?}")]
    Unknown(String),
    /// The state of the job does not allow it.
    #[error("the job is {}, so that it cannot be {}", .0.name(), .1)]
    State(State, &'static str),
    /// Too many jobs wait.
    #[error("{0} jobs wait already; try again when one has ended")]
    Full(usize),
    /// A key with another request.
    #[error("the Idempotency-Key {0:?} was used for another request")]
    KeyReused(String),
    /// Another job writes the same output.
    #[error("job {0} writes the same output")]
    SameOutput(String),
    /// The journal cannot be written.
    #[error(transparent)]
    Storage(#[from] std::io::Error),
}

/// An accepted job.
pub struct Acceptance {
    /// The job.
    pub job: JobView,
    /// Whether an earlier request with the same key made it.
    pub replayed: bool,
}

/// Applies a record to the jobs.
pub fn apply(jobs: &mut Jobs, record: Record) {
    match record {
        Record::Accept(accepted) => jobs.list.push(QueuedJob::new(*accepted)),
        Record::Start { id } => jobs.find_mut(&id).into_iter().for_each(|job| job.started = true),
        Record::State { id, state, at, frames, bytes, error } => {
            if let Some(job) = jobs.find_mut(&id) {
                (job.state, job.at, job.bytes, job.error) = (state, at, bytes, error);
                if let Some(frames) = frames.filter(|_| state == State::Done) {
                    (job.progress.done, job.progress.saved) = (frames, frames);
                    job.progress.total = Some(frames);
                }
            }
        }
        Record::Order { ids } => {
            let rank = |job: &QueuedJob| ids.iter().position(|id| *id == job.accepted.id).unwrap_or(usize::MAX);
            jobs.list.sort_by_key(rank);
        }
        Record::Remove { id } => jobs.list.retain(|job| job.accepted.id != id),
    }
}

impl Queue {
    /// Records what `plan` decides, then applies it.
    fn commit<T>(&self, plan: impl FnOnce(&Jobs) -> Result<(Vec<Record>, T), ChangeError>) -> Result<T, ChangeError> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let (records, value) = plan(&self.jobs())?;
        if !records.is_empty() {
            journal.append(&records)?;
        }
        let mut jobs = self.jobs();
        for record in records {
            let (accepted, removed) = match &record {
                Record::Accept(accepted) => (Some(accepted.id.clone()), None),
                Record::Remove { id } => (None, Some(id.clone())),
                _ => (None, None),
            };
            apply(&mut jobs, record);
            // Before a device can take the job, so that clients see it wait.
            accepted.into_iter().for_each(|id| self.announce(&jobs, &id));
            removed.into_iter().for_each(|id| self.hub.send("removed", &json!({"id": id})));
        }
        self.wake.notify_all();
        Ok(value)
    }

    /// The job that an earlier request with this key made.
    pub fn replayed(&self, key: &str, request: u64) -> Option<Result<JobView, ChangeError>> {
        let jobs = self.jobs();
        let job = jobs.list.iter().find(|job| job.accepted.key.as_deref() == Some(key))?;
        Some(match job.accepted.request == request {
            true => Ok(jobs.view(job)),
            false => Err(ChangeError::KeyReused(key.to_owned())),
        })
    }

    /// Adds a job. It is safe on disk when this returns.
    pub fn accept(&self, accepted: Accepted) -> Result<Acceptance, ChangeError> {
        let id = accepted.id.clone();
        let replayed = self.commit(|jobs| {
            if let Some(key) = accepted.key.as_deref()
                && let Some(job) = jobs.list.iter().find(|job| job.accepted.key.as_deref() == Some(key))
            {
                let same = job.accepted.request == accepted.request;
                let known = job.accepted.id.clone();
                return if same { Ok((Vec::new(), Some(known))) } else { Err(ChangeError::KeyReused(key.into())) };
            }
            let waiting = jobs.list.iter().filter(|job| !job.state.is_ended());
            if waiting.clone().count() >= self.limit {
                return Err(ChangeError::Full(self.limit));
            }
            if let Some(other) = waiting.clone().find(|job| job.accepted.output == accepted.output) {
                return Err(ChangeError::SameOutput(other.accepted.id.clone()));
            }
            let mut records = vec![Record::Accept(Box::new(accepted))];
            let ended: Vec<&QueuedJob> = jobs.list.iter().filter(|job| job.state.is_ended()).collect();
            let old = ended.iter().take(ended.len().saturating_sub(self.ended));
            records.extend(old.map(|job| Record::Remove { id: job.accepted.id.clone() }));
            Ok((records, None))
        })?;
        let (id, replayed) = (replayed.clone().unwrap_or(id), replayed.is_some());
        let jobs = self.jobs();
        let job = jobs.find(&id).ok_or(ChangeError::Unknown(id))?;
        Ok(Acceptance { job: jobs.view(job), replayed })
    }

    /// Gives a job another state, if it has one of `from`.
    fn set(&self, id: &str, from: &[State], to: State, verb: &'static str) -> Result<JobView, ChangeError> {
        self.commit(|jobs| {
            let job = jobs.find(id).ok_or_else(|| ChangeError::Unknown(id.into()))?;
            if job.state == to {
                return Ok((Vec::new(), ()));
            }
            if !from.contains(&job.state) {
                return Err(ChangeError::State(job.state, verb));
            }
            Ok((
                vec![Record::State { id: id.into(), state: to, at: now(), frames: None, bytes: None, error: None }],
                (),
            ))
        })?;
        let jobs = self.jobs();
        if !matches!(to, State::Queued | State::Running) {
            jobs.active.get(id).into_iter().for_each(|control| control.stop());
        }
        let job = jobs.find(id).ok_or_else(|| ChangeError::Unknown(id.into()))?;
        let view = jobs.view(job);
        self.hub.send("job", &json!(view));
        Ok(view)
    }

    /// Ends a job that waits or runs. Its finished frames are kept for a retry.
    pub fn cancel(&self, id: &str) -> Result<JobView, ChangeError> {
        self.set(id, &[State::Queued, State::Running, State::Paused], State::Cancelled, "cancelled")
    }

    /// Stops a job until it is resumed.
    pub fn pause(&self, id: &str) -> Result<JobView, ChangeError> {
        self.set(id, &[State::Queued, State::Running], State::Paused, "paused")
    }

    /// Lets a paused job wait for its turn.
    pub fn resume(&self, id: &str) -> Result<JobView, ChangeError> {
        match self.get(id).map(|job| job.state) {
            Some(State::Running) => self.get(id).ok_or_else(|| ChangeError::Unknown(id.into())),
            _ => self.set(id, &[State::Paused], State::Queued, "resumed"),
        }
    }

    /// Lets a failed or cancelled job wait for its turn.
    pub fn retry(&self, id: &str) -> Result<JobView, ChangeError> {
        self.set(id, &[State::Failed, State::Cancelled], State::Queued, "retried")
    }

    /// Removes an ended job from the list, and the work that it left. Its output stays.
    pub fn remove(&self, id: &str) -> Result<(), ChangeError> {
        let output = self.commit(|jobs| {
            let job = jobs.find(id).ok_or_else(|| ChangeError::Unknown(id.into()))?;
            if !job.state.is_ended() || jobs.active.contains_key(id) {
                return Err(ChangeError::State(job.state, "removed"));
            }
            let left = (job.state != State::Done && job.started).then(|| job.accepted.output.clone());
            Ok((vec![Record::Remove { id: id.into() }], left))
        })?;
        output.as_deref().into_iter().for_each(discard);
        Ok(())
    }

    /// Puts jobs that wait first, in this order.
    pub fn reorder(&self, first: &[String]) -> Result<(), ChangeError> {
        self.commit(|jobs| {
            for id in first {
                let job = jobs.find(id).ok_or_else(|| ChangeError::Unknown(id.clone()))?;
                if job.state.is_ended() {
                    return Err(ChangeError::State(job.state, "moved"));
                }
            }
            let rest = jobs.list.iter().map(|job| &job.accepted.id).filter(|id| !first.contains(id));
            Ok((vec![Record::Order { ids: first.iter().chain(rest).cloned().collect() }], ()))
        })?;
        let jobs = self.jobs();
        let waiting = jobs.list.iter().filter(|job| job.state == State::Queued);
        waiting.for_each(|job| self.hub.send("job", &json!(jobs.view(job))));
        Ok(())
    }
}

/// Removes the work at an output.
fn discard(output: &Path) {
    if let Err(error) = Job::discard(output) {
        tracing::warn!(output = %output.display(), %error, "the work of a removed job stays");
    }
}
