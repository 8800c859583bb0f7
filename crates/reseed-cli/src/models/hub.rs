//! Downloads from the hub into its cache, so that other programs find the files too.

use std::env;
use std::fs::{self, File as OsFile, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use ureq::Agent;

use super::hash::{CHUNK, Hash};
use super::places::Places;
use super::registry::File;
use crate::failure::{Failure, Result};
use crate::report::bytes;

const PUBLIC: &str = "https://huggingface.co";
/// A connection that is silent for this long is dead.
const SILENCE: Duration = Duration::from_secs(60);
/// Attempts in a row that bring nothing.
const TRIES: u32 = 5;

/// The hub and how it is reached.
pub struct Hub {
    pub endpoint: String,
    pub offline: bool,
    /// Before the second attempt in a row; doubled before each further one.
    pub pause: Duration,
    pub agent: Agent,
}

/// How an attempt ended.
enum Attempt {
    /// There is nothing more to come.
    Whole,
    /// The connection broke, for this reason.
    Broken(String),
}

impl Hub {
    /// The hub of `HF_ENDPOINT`, out of reach where `HF_HUB_OFFLINE` says so.
    pub fn of_user() -> Hub {
        let endpoint = env::var("HF_ENDPOINT").ok().filter(|url| !url.is_empty());
        let offline = env::var("HF_HUB_OFFLINE").unwrap_or_default().to_ascii_lowercase();
        Hub {
            endpoint: endpoint.map_or(PUBLIC.into(), |url| url.trim_end_matches('/').into()),
            offline: matches!(offline.as_str(), "1" | "on" | "yes" | "true"),
            pause: Duration::from_secs(1),
            agent: Agent::config_builder()
                .http_status_as_error(false)
                .timeout_connect(Some(SILENCE))
                .timeout_recv_response(Some(SILENCE))
                .timeout_per_read(Some(SILENCE))
                .user_agent(concat!("reseed/", env!("CARGO_PKG_VERSION")))
                .build()
                .new_agent(),
        }
    }

    /// Where a file is on the hub.
    pub fn url(&self, file: &File) -> String {
        format!("{}/{}/resolve/{}/{}", self.endpoint, file.repo.name, file.repo.revision, file.name)
    }

    /// Brings a file into the cache, going on where an earlier download stopped. `tell` hears how many bytes there are.
    pub fn pull(&self, file: &File, places: &Places, tell: &mut dyn FnMut(u64)) -> Result<PathBuf> {
        if self.offline {
            return Err(self.by_hand(file, places, "HF_HUB_OFFLINE is set"));
        }
        let blob = places.blob(file);
        let snapshot = places.snapshot(file);
        for folder in [&blob, &snapshot].map(|path| path.parent()).into_iter().flatten() {
            fs::create_dir_all(folder).map_err(|e| Failure::write(folder, e))?;
        }
        let mut download = Download::open(blob.with_extension("incomplete"), tell)?;
        self.fetch(file, &mut download).map_err(|reason| match reason {
            Reason::Hub(reason) => self.by_hand(file, places, &reason),
            Reason::Disk(failure) => failure,
        })?;
        let Download { path, hash, .. } = download;
        let found = hash.finish();
        if found != file.sha256 {
            fs::remove_file(&path).map_err(|e| Failure::write(&path, e))?;
            let line = format!("its SHA-256 is {found} instead of {}", file.sha256);
            let url = self.url(file);
            return Err(Failure::Model(format!(
                "{url}: {line}; nothing of it is kept, try again or use another mirror"
            )));
        }
        fs::rename(&path, &blob).map_err(|e| Failure::write(&blob, e))?;
        link(&blob, &snapshot).map_err(|e| Failure::write(&snapshot, e))?;
        Ok(snapshot)
    }

    /// Asks for the rest of a file until there is none.
    fn fetch(&self, file: &File, download: &mut Download) -> std::result::Result<(), Reason> {
        let mut idle = 0;
        loop {
            let before = download.have;
            let reason = match self.attempt(file, download)? {
                Attempt::Whole => return Ok(()),
                Attempt::Broken(reason) => reason,
            };
            idle = if download.have > before { 0 } else { idle + 1 };
            if idle == TRIES {
                return Err(Reason::Hub(reason));
            }
            sleep(self.pause * (1 << idle) / 2);
        }
    }

    fn attempt(&self, file: &File, download: &mut Download) -> std::result::Result<Attempt, Reason> {
        if download.have > file.bytes {
            download.restart()?;
        }
        if download.have == file.bytes {
            return Ok(Attempt::Whole);
        }
        let request = self.agent.get(self.url(file)).header("Range", format!("bytes={}-", download.have));
        let response = match request.call() {
            Ok(response) => response,
            Err(error) => return Ok(Attempt::Broken(error.to_string())),
        };
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        let starts = format!("bytes {}-", download.have);
        match response.status().as_u16() {
            206 if header("content-range").starts_with(&starts) => {}
            // A server that knows no ranges sends everything.
            200 => download.restart()?,
            code @ (408 | 429 | 500..) => return Ok(Attempt::Broken(format!("the server answers {code}"))),
            code => return Err(Reason::Hub(format!("the server answers {code}"))),
        }
        download.take(response.into_body().into_reader(), file.bytes)
    }

    /// The way that is left without a network.
    fn by_hand(&self, file: &File, places: &Places, reason: &str) -> Failure {
        let (url, size, own) = (self.url(file), bytes(file.bytes as usize), places.own.display());
        Failure::Model(format!("{url}: {reason}; without a network put {} ({size}) into {own}", file.name))
    }
}

/// Why there is no file.
enum Reason {
    Hub(String),
    Disk(Failure),
}

impl From<Failure> for Reason {
    fn from(failure: Failure) -> Reason {
        Reason::Disk(failure)
    }
}

/// A file that grows, and the hash of what is there.
struct Download<'a> {
    path: PathBuf,
    file: OsFile,
    hash: Hash,
    have: u64,
    tell: &'a mut dyn FnMut(u64),
}

impl<'a> Download<'a> {
    /// Opens what an earlier download left, or a new file, and keeps others from writing to it.
    fn open(path: PathBuf, tell: &'a mut dyn FnMut(u64)) -> Result<Download<'a>> {
        let cannot = |e| Failure::write(&path, e);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(cannot)?;
        if file.try_lock().is_err() {
            return Err(Failure::Failed(format!("{}: another download is writing it; wait for that", path.display())));
        }
        let (mut hash, mut have) = (Hash::new(), 0);
        hash.read(&mut file, &path, |count| have += count as u64)?;
        tell(have);
        Ok(Download { path, file, hash, have, tell })
    }

    fn restart(&mut self) -> Result<()> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|e| Failure::write(&self.path, e))?;
        (self.hash, self.have) = (Hash::new(), 0);
        Ok(())
    }

    /// Appends what comes, up to `total` bytes in all.
    fn take(&mut self, mut from: impl Read, total: u64) -> std::result::Result<Attempt, Reason> {
        let mut buffer = vec![0; CHUNK];
        while self.have < total {
            let room = buffer.len().min((total - self.have) as usize);
            match from.read(&mut buffer[..room]) {
                Ok(0) => {
                    return Ok(Attempt::Broken(format!("the transfer ended after {} of {total} bytes", self.have)));
                }
                Ok(count) => {
                    let piece = &buffer[..count];
                    self.file.write_all(piece).map_err(|e| Failure::write(&self.path, e))?;
                    self.hash.update(piece);
                    self.have += count as u64;
                    (self.tell)(self.have);
                }
                Err(error) => return Ok(Attempt::Broken(error.to_string())),
            }
        }
        self.file.sync_all().map_err(|e| Failure::write(&self.path, e))?;
        Ok(Attempt::Whole)
    }
}

/// Gives a blob its name: a link as the hub's own programs make it or, where the system has none, the file itself.
fn link(blob: &Path, snapshot: &Path) -> std::io::Result<()> {
    let _ = fs::remove_file(snapshot);
    #[cfg(unix)]
    {
        let name = blob.file_name().unwrap_or_default();
        std::os::unix::fs::symlink(Path::new("../../blobs").join(name), snapshot)
    }
    #[cfg(not(unix))]
    fs::rename(blob, snapshot)
}
