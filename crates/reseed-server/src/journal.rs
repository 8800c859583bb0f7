//! The queue on disk: an append-only file with one writer, from which the queue is read after a crash.
//!
//! Every line is a record in JSON and its digest. A line that a power cut has torn is not read. The file is rewritten
//! when it is opened, so that it holds no more than the queue. A lock keeps other servers out.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use reseed::media::{digest, files};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};

const FILE: &str = "queue";
const NEW: &str = "queue.new";
const LOCK: &str = "lock";

/// What happened to a job.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Record {
    /// A job was accepted.
    Accept(Box<Accepted>),
    /// A job has begun, so that a work folder may exist.
    Start {
        /// The job.
        id: String,
    },
    /// A job has another state.
    State {
        /// The job.
        id: String,
        /// The state.
        state: State,
        /// When, in seconds since 1970.
        at: f64,
        /// Frames of the output, of a job that is done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        frames: Option<usize>,
        /// Bytes of the output, of a job that is done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<JobError>,
    },
    /// The jobs have another order.
    Order {
        /// All jobs.
        ids: Vec<String>,
    },
    /// A job is no longer listed.
    Remove {
        /// The job.
        id: String,
    },
}

/// A job as it was accepted.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Accepted {
    /// Names the job.
    pub id: String,
    /// When, in seconds since 1970.
    pub at: f64,
    /// The Idempotency-Key of the request.
    pub key: Option<String>,
    /// The digest of the request.
    pub request: u64,
    /// The input.
    pub input: PathBuf,
    /// The upload that the input is.
    pub upload: Option<String>,
    /// The output.
    pub output: PathBuf,
    /// Whether an existing output is replaced.
    pub overwrite: bool,
    /// The preset that the client chose.
    pub preset: Option<String>,
    /// The settings, those of the preset included: a preset may change while a job waits.
    pub settings: Value,
    /// The model.
    pub model: String,
    /// The device; any where none.
    pub device: Option<String>,
    /// Frames of the input, where they are known.
    pub frames: Option<usize>,
    /// Width and height of input and output.
    pub sizes: [[usize; 2]; 2],
    /// Frames per second as a fraction.
    pub rate: [u32; 2],
    /// Whether the input is a still image.
    pub still: bool,
    /// Bytes of the input.
    pub bytes: u64,
    /// Batches without the cuts of shots, where the frames are known.
    pub batches: Option<usize>,
}

impl Accepted {
    /// Frames per second.
    pub fn rate(&self) -> f64 {
        f64::from(self.rate[0]) / f64::from(self.rate[1].max(1))
    }
}

/// The state of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It waits for its turn.
    Queued,
    /// It runs.
    Running,
    /// It keeps its finished frames until it is resumed.
    Paused,
    /// Its output is complete.
    Done,
    /// An error ended it.
    Failed,
    /// A client ended it.
    Cancelled,
}

impl State {
    /// All states.
    pub const ALL: [State; 6] =
        [State::Queued, State::Running, State::Paused, State::Done, State::Failed, State::Cancelled];

    /// Whether nothing more happens by itself.
    pub fn is_ended(self) -> bool {
        matches!(self, State::Done | State::Failed | State::Cancelled)
    }

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Running => "running",
            State::Paused => "paused",
            State::Done => "done",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
        }
    }
}

/// Why a job failed.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq, utoipa::ToSchema)]
pub struct JobError {
    /// failed, usage, input, model, memory or device.
    pub kind: String,
    /// One line.
    pub detail: String,
}

/// The open file.
pub struct Journal {
    folder: PathBuf,
    file: File,
    /// Held until the server ends.
    lock: File,
    released: bool,
}

impl Journal {
    /// Locks the journal of a folder and reads its records.
    pub fn open(folder: &Path) -> Result<(Journal, Vec<Record>)> {
        let failed = |cause| Error::Data { path: folder.into(), cause };
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = File::options().write(true).create(true).truncate(false).open(folder.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: folder.into() }),
            Err(TryLockError::Error(cause)) => return Err(failed(cause)),
        }
        let text = match fs::read(folder.join(FILE)) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Vec::new(),
            text => text.map_err(failed)?,
        };
        let records = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).filter_map(read).collect();
        let file = File::options().append(true).create(true).open(folder.join(FILE)).map_err(failed)?;
        Ok((Journal { folder: folder.into(), file, lock, released: false }, records))
    }

    /// Replaces all records.
    pub fn rewrite(&mut self, records: &[Record]) -> io::Result<()> {
        let path = self.folder.join(NEW);
        let mut file = File::create(&path)?;
        for record in records {
            file.write_all(line(record)?.as_bytes())?;
        }
        file.sync_all()?;
        // Windows does not replace a file that is open.
        self.file = file;
        let renamed = files::rename(&path, &self.folder.join(FILE));
        self.file = File::options().append(true).create(true).open(self.folder.join(FILE))?;
        renamed?;
        // Not every system can sync a folder.
        let _ = File::open(&self.folder).and_then(|folder| folder.sync_all());
        Ok(())
    }

    /// Lets another server use the folder. Nothing is added from here on.
    pub fn release(&mut self) {
        self.released = true;
        let _ = self.lock.unlock();
    }

    /// Adds records, which are safe on disk when this returns.
    pub fn append(&mut self, records: &[Record]) -> io::Result<()> {
        if self.released {
            return Err(io::Error::other("the server has stopped"));
        }
        let before = self.file.metadata()?.len();
        let lines: String = records.iter().map(line).collect::<io::Result<_>>()?;
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // A part of a line must not swallow the next one.
            let _ = self.file.set_len(before);
        }
        written
    }
}

fn line(record: &Record) -> io::Result<String> {
    let text = serde_json::to_string(record)?;
    Ok(format!("{text}\t{:016x}\n", digest(0, text.as_bytes())))
}

/// The record of a line, unless it is damaged.
fn read(line: &[u8]) -> Option<Record> {
    let record = std::str::from_utf8(line).ok().and_then(|line| line.rsplit_once('\t')).and_then(|(text, sum)| {
        let sound = u64::from_str_radix(sum, 16).ok()? == digest(0, text.as_bytes());
        serde_json::from_str(text).ok().filter(|_| sound)
    });
    if record.is_none() {
        tracing::warn!(bytes = line.len(), "a line of the queue is damaged and not read");
    }
    record
}

impl Drop for Journal {
    /// A child process that is just being started may still hold a copy of the file, and with it the lock.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn started(id: &str) -> Record {
        Record::Start { id: id.into() }
    }

    #[test]
    fn records_survive_and_damaged_lines_do_not_count() {
        let folder = temp_dir::TempDir::new().unwrap();
        let (mut journal, records) = Journal::open(folder.path()).unwrap();
        assert_eq!(records, []);
        journal.append(&[started("a"), started("b")]).unwrap();
        journal.append(&[started("c")]).unwrap();
        drop(journal);
        let path = folder.path().join(FILE);
        let mut text = fs::read(&path).unwrap();
        let at = text.iter().position(|byte| *byte == b'b').unwrap();
        text[at] ^= 1;
        text.extend_from_slice(b"{\"op\":\"start\",\"id\":\"torn");
        fs::write(&path, text).unwrap();
        let (mut journal, records) = Journal::open(folder.path()).unwrap();
        assert_eq!(records, [started("a"), started("c")]);
        journal.rewrite(&records).unwrap();
        journal.append(&[started("d")]).unwrap();
        drop(journal);
        assert_eq!(Journal::open(folder.path()).unwrap().1, [started("a"), started("c"), started("d")]);
    }

    #[test]
    fn two_servers_cannot_share_a_folder() {
        let folder = temp_dir::TempDir::new().unwrap();
        let _first = Journal::open(folder.path()).unwrap();
        assert!(matches!(Journal::open(folder.path()), Err(Error::Busy { .. })));
    }
}
