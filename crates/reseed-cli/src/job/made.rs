//! What the networks made of batches, in the work folder until their frames are safe in the output: pictures, and latents
//! that wait for the next network's turn. Nothing is synced: a killed process loses no file, and what a power cut tore does
//! not count.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reseed::{BatchStore, Turn};

/// `made-12` holds the pictures of batch 12, and a number that follows from them; the others hold latents.
const NAME: &str = "made-";
const ENCODED: &str = "encoded-";
const RESTORED: &str = "restored-";
const GROWING: &str = "made-growing";
/// CachePlan may take this part of the time that making takes; where it would take more, batches are made quickly.
const SHARE: u32 = 20;
/// The digest of nothing.
const SEED: u64 = 1;

/// A folder for pictures.
pub struct DiskBatchStore {
    folder: PathBuf,
    state: Mutex<State>,
}

struct State {
    growing: Option<File>,
    digest: u64,
    /// When the last batch was complete, and how long keeping one takes.
    since: Instant,
    cost: Duration,
    /// Whether the batch in hand is kept.
    keeps: bool,
    /// Whether slices of it have come.
    begun: bool,
}

impl DiskBatchStore {
    pub fn new(folder: PathBuf) -> DiskBatchStore {
        let (growing, since, cost) = (None, Instant::now(), Duration::ZERO);
        DiskBatchStore {
            folder,
            state: Mutex::new(State { growing, digest: SEED, since, cost, keeps: false, begun: false }),
        }
    }

    /// The frames of all batches before this are safe.
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

    /// Appends pictures to the file that grows, and names it when it is whole.
    fn append(&self, state: &mut State, batch: usize, pictures: &[f32], last: bool) -> std::io::Result<()> {
        let mut file = match state.growing.take() {
            Some(file) => file,
            None => File::create(self.folder.join(GROWING))?,
        };
        let bytes = bytes(pictures);
        state.digest = digest(state.digest, &bytes);
        file.write_all(&bytes)?;
        if last {
            file.write_all(&state.digest.to_le_bytes())?;
            return fs::rename(self.folder.join(GROWING), self.path(batch));
        }
        state.growing = Some(file);
        Ok(())
    }
}

impl BatchStore for DiskBatchStore {
    fn put(&self, batch: usize, pictures: &[f32], last: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        if !std::mem::replace(&mut state.begun, true) {
            state.keeps = state.cost * SHARE <= start - state.since;
            state.digest = SEED;
            // What was too dear once is tried again later.
            state.cost = if state.keeps { Duration::ZERO } else { state.cost / 2 };
        }
        if state.keeps {
            // What cannot be kept is computed again, should that ever be needed.
            state.keeps = self.append(&mut state, batch, pictures, last).is_ok();
            state.cost += start.elapsed();
        }
        if last {
            (state.begun, state.growing, state.since) = (false, None, Instant::now());
        }
    }

    fn get(&self, batch: usize) -> Option<Vec<f32>> {
        read(&self.path(batch))
    }

    fn put_latent(&self, turn: Turn, batch: usize, latent: &[f32]) {
        let mut bytes = bytes(latent);
        bytes.extend(digest(SEED, &bytes).to_le_bytes());
        // What is torn is found out when it is read, and what cannot be kept is computed again.
        let _ = fs::write(self.latent_path(turn, batch), bytes);
    }

    fn get_latent(&self, turn: Turn, batch: usize) -> Option<Vec<f32>> {
        read(&self.latent_path(turn, batch))
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The values of a file that is whole.
fn read(path: &Path) -> Option<Vec<f32>> {
    let bytes = fs::read(path).ok()?;
    let (values, told) = bytes.split_last_chunk::<8>()?;
    let whole = digest(SEED, values) == u64::from_le_bytes(*told);
    let (values, _) = values.as_chunks::<4>();
    whole.then(|| values.iter().map(|value| f32::from_le_bytes(*value)).collect())
}

/// What a file's name says it holds, and of which batch.
fn parts(name: &str) -> Option<(&'static str, &str)> {
    [NAME, ENCODED, RESTORED].into_iter().find_map(|kind| Some((kind, name.strip_prefix(kind)?)))
}

/// A number that bytes which differ hardly ever share, from that of what came before them.
fn digest(before: u64, bytes: &[u8]) -> u64 {
    let (values, _) = bytes.as_chunks::<4>();
    let mix = |sum: u64, value: &[u8; 4]| {
        (sum ^ u64::from(u32::from_le_bytes(*value))).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    };
    values.iter().fold(before, mix)
}

/// Removes all of it from a folder.
pub fn discard(folder: &Path) {
    remove(folder, |name| parts(name).is_some());
}

fn remove(folder: &Path, which: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(&which) {
            // What cannot be removed now is removed with the folder.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_batches_come_back_and_torn_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let made = DiskBatchStore::new(folder.path().into());
        made.put(3, &[1.0, -2.5], false);
        made.put(3, &[0.5], true);
        assert_eq!(made.get(3), Some(vec![1.0, -2.5, 0.5]));
        assert_eq!((made.get(2), made.get(4)), (None, None));

        let mut bytes = fs::read(made.path(3)).unwrap();
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
