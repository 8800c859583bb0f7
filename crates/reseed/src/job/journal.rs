//! The journal of a job on disk, from which it is resumed after a cancellation, a crash or a power cut.
//!
//! A hidden folder beside the output holds `job.json`: a line of settings, another one when a resumed run changes
//! them, a line after every batch, and a line before the output gets its name. A line counts once it is complete, and
//! it is written when all that it describes is safe.
//! Frames that later batches may still change are in files beside it. Every line ends with a digest of itself and of
//! all lines before it, and names the digests of the files that it needs, so that damage never becomes a result.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub use reseed_media::video::work_folder as folder;
use reseed_media::video::{JOB_FILE as NAME, discard_work};
use reseed_media::{Digest, files};
use serde_json::{Value, json};

use super::line;
use super::record::JobRecord;
use super::store;
use crate::batch::ShotStart;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};

const HELD: &str = "held-";
/// Values that are converted at once.
const RUN: usize = 1 << 14;

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
    /// Its last checkpoint.
    last: Option<Value>,
    /// Whether all frames were written after that checkpoint.
    complete: bool,
    /// Whether there are lines and the first is damaged.
    damaged: bool,
}

/// A number of a line.
fn number(line: &Value, name: &str) -> Option<usize> {
    line[name].as_u64().map(|number| number as usize)
}

/// A digest of a line.
fn hex(line: &Value, name: &str) -> Option<u64> {
    u64::from_str_radix(line[name].as_str()?, 16).ok()
}

/// The end of the sound lines of a journal.
struct End {
    length: usize,
    digest: u64,
}

impl EarlierRun {
    /// The content of a journal up to a damaged or incomplete line.
    fn parse(text: &[u8]) -> (EarlierRun, End) {
        let (mut first, mut last, mut complete) = (None, None, false);
        let mut end = End { length: 0, digest: line::SEED };
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let Some((value, digest)) = line::open(line, end.digest) else { break };
            end = End { length: end.length + line.len(), digest };
            complete = value["complete"].is_u64();
            match first {
                None => first = Some(value),
                Some(_) if complete => {}
                Some(ref mut first) if value["settings"].is_object() => first["settings"] = value["settings"].clone(),
                Some(_) => last = Some(value),
            }
        }
        let damaged = first.is_none() && text.contains(&b'\n');
        let first = first.unwrap_or_default();
        let path = |name: &str| first[name].as_str().map(PathBuf::from);
        let origin = Origin {
            input: path("input").unwrap_or_default(),
            noise_file: path("noise_file"),
            model: first["model"].as_str().unwrap_or_default().into(),
        };
        (EarlierRun { record: JobRecord::from_json(&first["settings"]), origin, last, complete, damaged }, end)
    }

    /// Finished frames.
    pub fn frames(&self) -> usize {
        self.last.as_ref().and_then(|line| number(line, "frames")).unwrap_or(0)
    }

    /// Whether a batch is finished.
    pub fn has_work(&self) -> bool {
        self.last.is_some()
    }

    /// Whether all frames were written and the output was about to get its name.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether nothing is known of the run although it began.
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// The digest of the finished frames in the output.
    pub fn output_digest(&self) -> Option<u64> {
        hex(self.last.as_ref()?, "output_digest")
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
            let damaged = |_| Error::JournalDamaged { path: path.clone() };
            let (frames, digest) = read_frames(&path, &counts, values).map_err(damaged)?;
            if hex(line, "held_digest") != Some(digest) {
                return Err(Error::JournalDamaged { path });
            }
            held = frames;
        }
        let shot = ShotStart { batch: get("shot_batch")?, frame: get("shot_frame")? };
        let sane = batches.checked_sub(held.len()).is_some_and(|first| shot.batch <= first);
        let point = Checkpoint { batches, frames, lead_in, held, shot };
        if sane { Ok(point) } else { Err(damaged()) }
    }
}

/// The journal of a running job.
pub struct Journal {
    folder: PathBuf,
    file: File,
    /// The digest of all lines.
    digest: u64,
    held: Option<PathBuf>,
    /// Whether a batch is finished.
    works: bool,
    /// Dropped after `file`.
    _closed: ClosedFolder,
}

/// Removes a folder that is empty on drop, where the system can remove it only after its files are closed.
struct ClosedFolder(#[cfg(windows)] PathBuf);

impl ClosedFolder {
    fn new(_folder: &Path) -> ClosedFolder {
        ClosedFolder(
            #[cfg(windows)]
            _folder.into(),
        )
    }
}

#[cfg(windows)]
impl Drop for ClosedFolder {
    fn drop(&mut self) {
        reseed_media::video::remove_empty_work(&self.0);
    }
}

impl Journal {
    /// Starts and locks a journal. Files of a run that was killed while it removed them are removed.
    pub fn create(folder: &Path) -> Result<Journal> {
        fs::create_dir_all(folder).map_err(|e| Error::write(folder, e))?;
        discard_frames(folder);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(folder.join(NAME));
        let journal = Journal::locked(folder, file)?;
        journal.file.set_len(0).map_err(|e| Error::write(folder, e))?;
        // Frames are written once the journal is sure to be found. Not every system can sync a folder.
        for folder in [Some(folder), folder.parent()].into_iter().flatten() {
            let folder = if folder == Path::new("") { Path::new(".") } else { folder };
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
        }
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
        if earlier.is_damaged() {
            journal.keep();
            return Ok(Some((journal, earlier)));
        }
        journal.digest = end.digest;
        let ended = journal.file.set_len(end.length as u64).and_then(|()| journal.file.seek(SeekFrom::End(0)));
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
        if files::try_lock(&file).is_err() {
            return Err(Error::Busy { path: folder.into() });
        }
        let _closed = ClosedFolder::new(folder);
        Ok(Journal { folder: folder.into(), file, digest: line::SEED, held: None, works: false, _closed })
    }

    /// Writes the first line.
    pub fn describe(&mut self, origin: &Origin, record: &JobRecord) -> Result<()> {
        let input = origin.input.to_string_lossy();
        let noise_file = origin.noise_file.as_ref().map(|path| path.to_string_lossy());
        let line = json!({"reseed": env!("CARGO_PKG_VERSION"), "input": input, "noise_file": noise_file,
                          "model": origin.model, "settings": record.to_json()});
        self.append(&line).map_err(|e| Error::write(&self.folder, e))
    }

    /// Replaces the settings.
    pub fn change(&mut self, record: &JobRecord) -> Result<()> {
        self.append(&json!({"settings": record.to_json()})).map_err(|e| Error::write(&self.folder, e))
    }

    /// Adds a checkpoint whose frames are safe, in an output with this digest.
    pub fn add(&mut self, point: &Checkpoint, output: u64) -> reseed_media::Result<()> {
        let folder = self.folder.clone();
        let cannot_write = |cause| reseed_media::Error::Write { path: folder.clone(), cause };
        let path = folder.join(format!("{HELD}{}", point.batches));
        let held: Vec<usize> = point.held.iter().map(Vec::len).collect();
        let digest = match held.is_empty() {
            true => None,
            false => Some(write_frames(&path, &point.held).map_err(cannot_write)?),
        };
        let Checkpoint { batches, frames, lead_in, shot, .. } = point;
        let line = json!({"batches": batches, "frames": frames, "lead_in": lead_in, "held": held,
                          "held_digest": digest.map(|digest| format!("{digest:016x}")),
                          "output_digest": format!("{output:016x}"),
                          "shot_batch": shot.batch, "shot_frame": shot.frame});
        self.append(&line).map_err(cannot_write)?;
        // The frames of the line before are no longer needed; where they cannot be removed, they do no harm.
        let before = std::mem::replace(&mut self.held, (!held.is_empty()).then_some(path));
        let _ = before.map(fs::remove_file);
        self.keep();
        Ok(())
    }

    /// All frames are safe, and the output is about to get its name.
    pub fn complete(&mut self, frames: usize) -> reseed_media::Result<()> {
        let line = json!({"complete": frames});
        self.append(&line).map_err(|cause| reseed_media::Error::Write { path: self.folder.clone(), cause })
    }

    fn append(&mut self, content: &Value) -> io::Result<()> {
        let (line, digest) = line::sealed(content, self.digest);
        // In one write, so that a full disk cuts off this line alone.
        self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data())?;
        self.digest = digest;
        Ok(())
    }

    /// The output is complete: the journal is removed when dropped.
    pub fn forget(&mut self) {
        self.works = false;
    }

    /// The output is started again: from now on nothing of it counts, and the journal is removed when dropped.
    pub fn start_again(&mut self) -> Result<()> {
        self.forget();
        self.file.set_len(0).map_err(|e| Error::write(&self.folder, e))
    }
}

/// Writes frames that later batches may still change, and returns the digest of the file.
fn write_frames(path: &Path, held: &[Vec<Vec<f32>>]) -> io::Result<u64> {
    let (mut file, mut digest) = (File::create(path)?, Digest::new(0));
    for frame in held.iter().flatten() {
        for values in frame.chunks(RUN) {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            digest.update(&bytes);
            file.write_all(&bytes)?;
        }
    }
    file.sync_data()?;
    Ok(digest.value())
}

/// Reads `counts` frames of each batch, and the digest of the file.
fn read_frames(path: &Path, counts: &[usize], values: usize) -> io::Result<(Vec<Vec<Vec<f32>>>, u64)> {
    let (mut file, mut digest) = (File::open(path)?, Digest::new(0));
    let frames: usize = counts.iter().sum();
    if file.metadata()?.len() != (4 * values * frames) as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut read = || -> io::Result<Vec<f32>> {
        let (mut frame, mut bytes) = (Vec::with_capacity(values), vec![0; 4 * RUN]);
        while frame.len() < values {
            let bytes = &mut bytes[..4 * RUN.min(values - frame.len())];
            file.read_exact(bytes)?;
            digest.update(bytes);
            let (bytes, _) = bytes.as_chunks::<4>();
            frame.extend(bytes.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        }
        Ok(frame)
    };
    let held = counts.iter().map(|count| (0..*count).map(|_| read()).collect()).collect::<io::Result<_>>()?;
    Ok((held, digest.value()))
}

/// A journal without a finished batch is not kept.
impl Drop for Journal {
    fn drop(&mut self) {
        if !self.works {
            discard(&self.folder);
        }
        // A child process that is just being started may still hold a copy of the file, and with it the lock.
        let _ = self.file.unlock();
    }
}

/// Removes the journal of an output unless it has a finished batch. For a process that ends without dropping it.
pub fn discard_unused(folder: &Path) {
    let earlier = fs::read(folder.join(NAME)).map(|text| EarlierRun::parse(&text).0);
    if earlier.is_ok_and(|earlier| !earlier.has_work() && !earlier.is_damaged()) {
        discard(folder);
    }
}

/// Removes a journal and its files, and the folder unless something else is in it.
pub fn discard(folder: &Path) {
    discard_frames(folder);
    discard_work(folder);
}

/// Removes stored batches and frames that later batches may still change.
fn discard_frames(folder: &Path) {
    store::discard(folder);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(HELD)) {
            // A failure to remove a file must not hide the error that led here.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_file_in_a_child_process_does_not_keep_the_lock() {
        let folder = temp_dir::TempDir::new().unwrap();
        let mut journal = Journal::create(folder.path()).unwrap();
        journal.keep();
        let copy = journal.file.try_clone().unwrap();
        assert!(matches!(Journal::create(folder.path()), Err(Error::Busy { .. })));
        drop(journal);
        Journal::create(folder.path()).unwrap();
        drop(copy);
    }
}
