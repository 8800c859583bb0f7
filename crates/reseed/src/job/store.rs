//! Computed batches in the work folder until their frames are safe in the output: frames, and latents that wait for the
//! turn of the next network. Nothing is synced: a killed process loses no file, and a file that a power cut tore is
//! found out by its digest.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reseed_media::{Digest, digest, files};

use crate::batch_store::{BatchStore, Turn};

/// `made-12` holds the frames of batch 12 and their digest; the others hold latents.
const NAME: &str = "made-";
const ENCODED: &str = "encoded-";
const RESTORED: &str = "restored-";
const GROWING: &str = "made-growing";
/// Storing may take this fraction of the computing time; batches that are computed faster are not stored.
const SHARE: u32 = 20;

/// The kind of stored frames, beside the turns of latents.
const MADE: u64 = 2;

/// Stores batches in a folder.
pub struct DiskBatchStore {
    folder: PathBuf,
    state: Mutex<State>,
}

struct State {
    growing: Option<File>,
    digest: Digest,
    /// When the last batch was complete, and how long storing one takes.
    since: Instant,
    cost: Duration,
    /// Whether the batch in hand is stored.
    keeps: bool,
    /// Whether it has slices.
    begun: bool,
}

impl DiskBatchStore {
    pub fn new(folder: PathBuf) -> DiskBatchStore {
        let (growing, since, cost) = (None, Instant::now(), Duration::ZERO);
        DiskBatchStore {
            folder,
            state: Mutex::new(State { growing, digest: Digest::new(0), since, cost, keeps: false, begun: false }),
        }
    }

    /// Removes all batches before this one, whose frames are safe.
    pub fn forget(&self, batches: usize) {
        let number = |name: &str| parts(name)?.1.parse::<usize>().ok();
        remove(&self.folder, |name| number(name).is_some_and(|batch| batch < batches));
    }

    fn path(&self, batch: usize) -> PathBuf {
        self.folder.join(format!("{NAME}{batch}"))
    }

    fn latent_path(&self, turn: Turn, batch: usize) -> PathBuf {
        let name = match turn {
            Turn::Encode => ENCODED,
            Turn::Step => RESTORED,
        };
        self.folder.join(format!("{name}{batch}"))
    }

    /// Appends frames to the growing file, and renames it when it is complete.
    fn append(&self, state: &mut State, batch: usize, frames: &[f32], last: bool) -> std::io::Result<()> {
        let mut file = match state.growing.take() {
            Some(file) => file,
            None => File::create(self.folder.join(GROWING))?,
        };
        let bytes = bytes(frames);
        state.digest.update(&bytes);
        file.write_all(&bytes)?;
        if last {
            file.write_all(&state.digest.value().to_le_bytes())?;
            drop(file);
            return files::rename(&self.folder.join(GROWING), &self.path(batch));
        }
        state.growing = Some(file);
        Ok(())
    }
}

impl State {
    /// Decides at the first slice of a batch whether the batch is stored.
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.keeps = self.cost * SHARE <= self.since.elapsed();
            // A batch that was too expensive to store is tried again later.
            self.cost = if self.keeps { Duration::ZERO } else { self.cost / 2 };
        }
    }
}

impl BatchStore for DiskBatchStore {
    fn stores(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.begin();
        state.keeps
    }

    fn put(&self, batch: usize, frames: &[f32], last: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        state.begin();
        if state.growing.is_none() {
            state.digest = Digest::new(seed(MADE, batch));
        }
        if state.keeps {
            // A batch that cannot be stored is computed again if it is ever needed.
            state.keeps = self.append(&mut state, batch, frames, last).is_ok();
            state.cost += start.elapsed();
        }
        if last {
            (state.begun, state.growing, state.since) = (false, None, Instant::now());
        }
    }

    fn restart(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.growing = None;
    }

    fn get(&self, batch: usize) -> Option<Vec<f32>> {
        read(&self.path(batch), seed(MADE, batch))
    }

    fn put_latent(&self, turn: Turn, batch: usize, latent: &[f32]) {
        let mut bytes = bytes(latent);
        bytes.extend(digest(seed(turn as u64, batch), &bytes).to_le_bytes());
        // A torn file is found out when it is read; a latent that cannot be stored is computed again.
        let _ = fs::write(self.latent_path(turn, batch), bytes);
    }

    fn get_latent(&self, turn: Turn, batch: usize) -> Option<Vec<f32>> {
        read(&self.latent_path(turn, batch), seed(turn as u64, batch))
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The values of a complete file.
fn read(path: &Path, seed: u64) -> Option<Vec<f32>> {
    let bytes = fs::read(path).ok()?;
    let (values, expected) = bytes.split_last_chunk::<8>()?;
    let whole = digest(seed, values) == u64::from_le_bytes(*expected);
    let (values, _) = values.as_chunks::<4>();
    whole.then(|| values.iter().map(|value| f32::from_le_bytes(*value)).collect())
}

/// The seed of a file's digest, so that a file in the place of another is not taken for it.
fn seed(kind: u64, batch: usize) -> u64 {
    kind << 62 | batch as u64
}

/// The kind of a file and its batch, by its name.
fn parts(name: &str) -> Option<(&'static str, &str)> {
    [NAME, ENCODED, RESTORED].into_iter().find_map(|kind| Some((kind, name.strip_prefix(kind)?)))
}

/// Removes all stored batches of a folder.
pub fn discard(folder: &Path) {
    remove(folder, |name| parts(name).is_some());
}

fn remove(folder: &Path, which: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(&which) {
            // A file that cannot be removed now is removed with the folder.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_begins_again_has_its_later_frames_alone() {
        let folder = temp_dir::TempDir::new().unwrap();
        let made = DiskBatchStore::new(folder.path().into());
        made.put(6, &[1.0, -2.5], false);
        made.restart();
        made.put(6, &[4.0], false);
        made.put(6, &[2.0], true);
        assert_eq!(made.get(6), Some(vec![4.0, 2.0]));
    }

    #[test]
    fn whole_batches_come_back_and_torn_ones_do_not() {
        let folder = temp_dir::TempDir::new().unwrap();
        let made = DiskBatchStore::new(folder.path().into());
        made.put(3, &[1.0, -2.5], false);
        made.put(3, &[0.5], true);
        assert_eq!(made.get(3), Some(vec![1.0, -2.5, 0.5]));
        assert_eq!((made.get(2), made.get(4)), (None, None));

        let mut bytes = fs::read(made.path(3)).unwrap();
        fs::write(made.path(4), &bytes).unwrap();
        assert_eq!(made.get(4), None, "the frames of another batch");
        bytes[1] ^= 1;
        fs::write(made.path(4), &bytes).unwrap();
        assert_eq!(made.get(4), None);
        fs::write(made.path(5), &bytes[..3]).unwrap();
        assert_eq!(made.get(5), None);

        made.put_latent(Turn::Encode, 3, &[7.0]);
        made.put_latent(Turn::Encode, 4, &[8.0, -0.0]);
        made.put_latent(Turn::Step, 4, &[9.0]);
        let latents = [(Turn::Encode, 3), (Turn::Encode, 4), (Turn::Step, 4), (Turn::Step, 3)];
        let latents = || latents.map(|(turn, batch)| made.get_latent(turn, batch));
        assert_eq!(latents(), [Some(vec![7.0]), Some(vec![8.0, -0.0]), Some(vec![9.0]), None]);

        made.forget(4);
        assert_eq!((made.get(3), latents()[0].clone()), (None, None));
        assert!(made.path(4).exists() && latents()[1].is_some());
        discard(folder.path());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
