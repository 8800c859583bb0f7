//! The journal of a job on disk, from which it is resumed after a cancellation, a crash or a power cut.
//!
//! A hidden folder beside the output holds `job.json`: a line of settings, then a line after every batch. A line counts
//! once it is complete, and it is written when all that it describes is safe. Frames that later batches may still
//! change are in files beside it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub use reseed_media::video::work_folder as folder;
use reseed_media::video::{JOB_FILE as NAME, discard_work};
use serde_json::{Value, json};

use super::record::JobRecord;
use super::store;
use crate::batch::ShotStart;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};

const HELD: &str = "held-";

/// The files and the model of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub input: PathBuf,
    pub noise_file: Option<PathBuf>,
    pub model: String,
}

/// What an earlier run left.
pub struct EarlierRun {
    /// What its result depends on, as far as it was recorded.
    pub record: JobRecord,
    /// Its files and model.
    pub origin: Origin,
    /// Its last complete line.
    last: Option<Value>,
}

/// A number of a line.
fn number(line: &Value, name: &str) -> Option<usize> {
    line[name].as_u64().map(|number| number as usize)
}

impl EarlierRun {
    /// The content of a journal, and the length of its complete lines.
    fn parse(text: &[u8]) -> (EarlierRun, usize) {
        let lines = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let whole = lines.map_while(|line| Some((line.len(), serde_json::from_slice::<Value>(line).ok()?)));
        let (mut first, mut last, mut end) = (None, None, 0);
        for (length, value) in whole {
            end += length;
            if first.is_none() { first = Some(value) } else { last = Some(value) }
        }
        let first = first.unwrap_or_default();
        let path = |name: &str| first[name].as_str().map(PathBuf::from);
        let origin = Origin {
            input: path("input").unwrap_or_default(),
            noise_file: path("noise_file"),
            model: first["model"].as_str().unwrap_or_default().into(),
        };
        (EarlierRun { record: JobRecord::from_json(&first["settings"]), origin, last }, end)
    }

    /// Finished frames.
    pub fn frames(&self) -> usize {
        self.last.as_ref().and_then(|line| number(line, "frames")).unwrap_or(0)
    }

    /// Whether a batch is finished.
    pub fn has_work(&self) -> bool {
        self.last.is_some()
    }

    /// The checkpoint, with frames of so many values.
    pub fn point(&self, folder: &Path, values: usize) -> Result<Checkpoint> {
        let Some(line) = &self.last else { return Ok(Checkpoint::default()) };
        let damaged = || Error::JournalDamaged { path: folder.into() };
        let get = |name| number(line, name).ok_or_else(damaged);
        let (batches, frames, lead_in) = (get("batches")?, get("frames")?, get("lead_in")?);
        let counts = line["held"].as_array().ok_or_else(damaged)?.iter();
        let counts: Vec<usize> = counts.filter_map(Value::as_u64).map(|count| count as usize).collect();
        let mut held = Vec::new();
        if !counts.is_empty() {
            let path = folder.join(format!("{HELD}{batches}"));
            let mut file = File::open(&path).map_err(|_| damaged())?;
            let mut read = || -> io::Result<Vec<f32>> {
                let mut bytes = vec![0; 4 * values];
                file.read_exact(&mut bytes)?;
                Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
            };
            for count in counts {
                held.push((0..count).map(|_| read()).collect::<io::Result<Vec<_>>>().map_err(|_| damaged())?);
            }
        }
        let shot = ShotStart { batch: get("shot_batch")?, frame: get("shot_frame")? };
        Ok(Checkpoint { batches, frames, lead_in, held, shot })
    }
}

/// The journal of a running job.
pub struct Journal {
    folder: PathBuf,
    file: File,
    held: Option<PathBuf>,
    /// Whether a batch is finished.
    works: bool,
}

impl Journal {
    /// Starts and locks a journal.
    pub fn create(folder: &Path) -> Result<Journal> {
        fs::create_dir_all(folder).map_err(|e| Error::write(folder, e))?;
        let file = File::options().read(true).write(true).create(true).truncate(false).open(folder.join(NAME));
        let journal = Journal::locked(folder, file)?;
        journal.file.set_len(0).map_err(|e| Error::write(folder, e))?;
        // Not every system can sync a folder.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(journal)
    }

    /// The journal of an earlier run, if there is one.
    pub fn open(folder: &Path) -> Result<Option<(Journal, EarlierRun)>> {
        let file = match File::options().read(true).write(true).open(folder.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file,
        };
        let mut journal = Journal::locked(folder, file)?;
        let cannot = |e| Error::write(folder, e);
        let mut text = Vec::new();
        journal.file.read_to_end(&mut text).map_err(cannot)?;
        let (earlier, end) = EarlierRun::parse(&text);
        let ended = journal.file.set_len(end as u64).and_then(|()| journal.file.seek(SeekFrom::End(0)));
        ended.map_err(cannot)?;
        if let Some(line) = &earlier.last {
            journal.keep();
            journal.held = number(line, "batches").map(|count| folder.join(format!("{HELD}{count}")));
        }
        Ok(Some((journal, earlier)))
    }

    /// From now on it stays when dropped.
    fn keep(&mut self) {
        self.works = true;
    }

    fn locked(folder: &Path, file: io::Result<File>) -> Result<Journal> {
        let file = file.map_err(|e| Error::write(folder, e))?;
        if file.try_lock().is_err() {
            return Err(Error::Busy { path: folder.into() });
        }
        Ok(Journal { folder: folder.into(), file, held: None, works: false })
    }

    /// Writes the first line.
    pub fn describe(&mut self, origin: &Origin, record: &JobRecord) -> Result<()> {
        let input = origin.input.to_string_lossy();
        let noise_file = origin.noise_file.as_ref().map(|path| path.to_string_lossy());
        let line = json!({"reseed": env!("CARGO_PKG_VERSION"), "input": input, "noise_file": noise_file,
                          "model": origin.model, "settings": record.to_json()});
        self.append(&line).map_err(|e| Error::write(&self.folder, e))
    }

    /// Adds a checkpoint whose frames are safe.
    pub fn add(&mut self, point: &Checkpoint) -> reseed_media::Result<()> {
        let folder = self.folder.clone();
        let cannot_write = |cause| reseed_media::Error::Write { path: folder.clone(), cause };
        let path = folder.join(format!("{HELD}{}", point.batches));
        let held: Vec<usize> = point.held.iter().map(Vec::len).collect();
        if !held.is_empty() {
            write_frames(&path, &point.held).map_err(cannot_write)?;
        }
        let Checkpoint { batches, frames, lead_in, shot, .. } = point;
        let line = json!({"batches": batches, "frames": frames, "lead_in": lead_in, "held": held,
                          "shot_batch": shot.batch, "shot_frame": shot.frame});
        self.append(&line).map_err(cannot_write)?;
        // The frames of the line before are no longer needed; where they cannot be removed, they do no harm.
        let before = std::mem::replace(&mut self.held, (!held.is_empty()).then_some(path));
        let _ = before.map(fs::remove_file);
        self.keep();
        Ok(())
    }

    fn append(&mut self, line: &Value) -> io::Result<()> {
        // In one write, so that a full disk cuts off this line alone.
        self.file.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.file.sync_data())
    }

    /// The output is complete or is started again: the journal is removed when dropped.
    pub fn forget(&mut self) {
        self.works = false;
    }
}

fn write_frames(path: &Path, held: &[Vec<Vec<f32>>]) -> io::Result<()> {
    let mut file = io::BufWriter::new(File::create(path)?);
    for value in held.iter().flatten().flatten() {
        file.write_all(&value.to_le_bytes())?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
}

/// A journal without a finished batch is not kept.
impl Drop for Journal {
    fn drop(&mut self) {
        if !self.works {
            discard(&self.folder);
        }
    }
}

/// Removes the journal of an output unless it has a finished batch. For a process that ends without dropping it.
pub fn discard_unused(folder: &Path) {
    let unused = fs::read(folder.join(NAME)).is_ok_and(|text| !EarlierRun::parse(&text).0.has_work());
    if unused {
        discard(folder);
    }
}

/// Removes a journal and its files, and the folder unless something else is in it.
pub fn discard(folder: &Path) {
    store::discard(folder);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(HELD)) {
            // A failure to remove a file must not hide the error that led here.
            let _ = fs::remove_file(entry.path());
        }
    }
    discard_work(folder);
}
