//! What a job has done, on disk, so that it can go on after a Ctrl-C, a crash or a power cut.
//!
//! A hidden folder beside the output holds `job.json`: a line of settings, then a line behind every batch. A line counts
//! once it is whole, and it is written when everything it speaks of is safe. Pictures that later batches may still change
//! lie beside it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use reseed::Checkpoint;
use reseed::batch::ShotStart;
pub use reseed_media::video::work_folder as folder;
use reseed_media::video::{JOB_FILE as NAME, discard_work};
use serde_json::{Value, json};

use super::made;
use super::settings::Settings;
use crate::ending;
use crate::failure::{Failure, Result};

const HELD: &str = "held-";

/// What an earlier run left.
pub struct EarlierRun {
    /// What it was told to do, as far as it had come to say so.
    pub settings: Settings,
    /// Its last whole line.
    last: Option<Value>,
}

/// A line's number of that name.
fn number(line: &Value, name: &str) -> Option<usize> {
    line[name].as_u64().map(|number| number as usize)
}

impl EarlierRun {
    /// What a journal says, and how much of it is whole.
    fn parse(text: &[u8]) -> (EarlierRun, usize) {
        let lines = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let whole = lines.map_while(|line| Some((line.len(), serde_json::from_slice::<Value>(line).ok()?)));
        let (mut first, mut last, mut end) = (None, None, 0);
        for (length, value) in whole {
            end += length;
            if first.is_none() { first = Some(value) } else { last = Some(value) }
        }
        let settings = first.map(|line| Settings::from_json(&line["settings"])).unwrap_or_default();
        (EarlierRun { settings, last }, end)
    }

    /// Frames that are finished.
    pub fn frames(&self) -> usize {
        self.last.as_ref().and_then(|line| number(line, "frames")).unwrap_or(0)
    }

    /// Whether a batch is finished.
    pub fn has_work(&self) -> bool {
        self.last.is_some()
    }

    /// Where the job stands, with pictures of so many values.
    pub fn point(&self, folder: &Path, picture: usize) -> Result<Checkpoint> {
        let Some(line) = &self.last else { return Ok(Checkpoint::default()) };
        let damaged = || Failure::Failed(format!("{}: is damaged; start again with --overwrite", folder.display()));
        let get = |name| number(line, name).ok_or_else(damaged);
        let (batches, frames, lead_in) = (get("batches")?, get("frames")?, get("lead_in")?);
        let counts = line["held"].as_array().ok_or_else(damaged)?.iter();
        let counts: Vec<usize> = counts.filter_map(Value::as_u64).map(|count| count as usize).collect();
        let mut held = Vec::new();
        if !counts.is_empty() {
            let path = folder.join(format!("{HELD}{batches}"));
            let mut file = File::open(&path).map_err(|e| Failure::Failed(format!("{}: {e}", path.display())))?;
            let mut read = || -> io::Result<Vec<f32>> {
                let mut bytes = vec![0; 4 * picture];
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
    /// Whether something is to be kept.
    works: bool,
}

impl Journal {
    /// Starts a journal, and keeps others from the same output.
    pub fn create(folder: &Path) -> Result<Journal> {
        fs::create_dir_all(folder).map_err(|e| Failure::write(folder, e))?;
        let file = File::options().read(true).write(true).create(true).truncate(false).open(folder.join(NAME));
        let journal = Journal::locked(folder, file)?;
        ending::remove(folder);
        journal.file.set_len(0).map_err(|e| Failure::write(folder, e))?;
        // Not every system can make the name itself safe.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(journal)
    }

    /// The journal of an earlier run, ready to go on, if there is one.
    pub fn open(folder: &Path) -> Result<Option<(Journal, EarlierRun)>> {
        let file = match File::options().read(true).write(true).open(folder.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file,
        };
        let mut journal = Journal::locked(folder, file)?;
        let cannot = |e| Failure::write(folder, e);
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

    /// From here on it stays when dropped.
    fn keep(&mut self) {
        ending::spare(&self.folder);
        self.works = true;
    }

    fn locked(folder: &Path, file: io::Result<File>) -> Result<Journal> {
        let file = file.map_err(|e| Failure::write(folder, e))?;
        if file.try_lock().is_err() {
            let folder = folder.display();
            return Err(Failure::Usage(format!("{folder}: another run is working at this output; wait for it")));
        }
        Ok(Journal { folder: folder.into(), file, held: None, works: false })
    }

    /// Says what the job is.
    pub fn describe(&mut self, settings: &Settings) -> Result<()> {
        let line = json!({"reseed": env!("CARGO_PKG_VERSION"), "settings": settings.to_json()});
        self.append(&line).map_err(|e| Failure::write(&self.folder, e))
    }

    /// A batch is done, and its frames are safe.
    pub fn add(&mut self, point: &Checkpoint) -> reseed_media::Result<()> {
        let folder = self.folder.clone();
        let cannot_write = |cause| reseed_media::Error::Write { path: folder.clone(), cause };
        let path = folder.join(format!("{HELD}{}", point.batches));
        let held: Vec<usize> = point.held.iter().map(Vec::len).collect();
        if !held.is_empty() {
            write_pictures(&path, &point.held).map_err(cannot_write)?;
        }
        let Checkpoint { batches, frames, lead_in, shot, .. } = point;
        let line = json!({"batches": batches, "frames": frames, "lead_in": lead_in, "held": held,
                          "shot_batch": shot.batch, "shot_frame": shot.frame});
        self.append(&line).map_err(cannot_write)?;
        // What the lines before spoke of is no longer needed; where it cannot be removed, it does no harm.
        let before = std::mem::replace(&mut self.held, (!held.is_empty()).then_some(path));
        let _ = before.map(fs::remove_file);
        self.keep();
        Ok(())
    }

    fn append(&mut self, line: &Value) -> io::Result<()> {
        // In one piece, so that a full disk cuts off this line and no other.
        self.file.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.file.sync_data())
    }

    /// The output is complete, or to be started anew: the journal goes when dropped.
    pub fn forget(&mut self) {
        self.works = false;
    }
}

fn write_pictures(path: &Path, held: &[Vec<Vec<f32>>]) -> io::Result<()> {
    let mut file = io::BufWriter::new(File::create(path)?);
    for value in held.iter().flatten().flatten() {
        file.write_all(&value.to_le_bytes())?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
}

/// A journal of nothing is not kept.
impl Drop for Journal {
    fn drop(&mut self) {
        if !self.works {
            ending::spare(&self.folder);
            discard(&self.folder);
        }
    }
}

/// Removes a journal and all that belongs to it, and its folder unless something else is in it.
pub fn discard(folder: &Path) {
    made::discard(folder);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(HELD)) {
            // What cannot be tidied up must not hide the reason that led here.
            let _ = fs::remove_file(entry.path());
        }
    }
    discard_work(folder);
}
