//! Downloads from the hub into its shared cache, where other programs find the files.

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
use crate::error::{Error, Result};

const PUBLIC: &str = "https://huggingface.co";
/// A connection without data for this long has failed.
const SILENCE: Duration = Duration::from_secs(60);
/// Attempts in a row without a byte.
const TRIES: u32 = 5;

/// The hub and its connection.
pub struct Hub {
    pub endpoint: String,
    pub offline: bool,
    /// Before the second attempt in a row; doubled before each further one.
    pub pause: Duration,
    pub agent: Agent,
}

/// How an attempt ended.
enum Attempt {
    /// The file is complete.
    Whole,
    /// The connection broke for this reason.
    Broken(String),
}

impl Hub {
    /// The hub of `HF_ENDPOINT`; `HF_HUB_OFFLINE` forbids downloads.
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

    /// The address of a file.
    pub fn url(&self, file: &File) -> String {
        format!("{}/{}/resolve/{}/{}", self.endpoint, file.repo.name, file.repo.revision, file.name)
    }

    /// Downloads a file into the cache and continues an earlier download. `progress` receives the bytes so far.
    pub fn pull(&self, file: &File, places: &Places, progress: &mut dyn FnMut(u64)) -> Result<PathBuf> {
        if self.offline {
            return Err(self.failed(file, places, "HF_HUB_OFFLINE is set"));
        }
        let blob = places.blob(file);
        let snapshot = places.snapshot(file);
        for folder in [&blob, &snapshot].map(|path| path.parent()).into_iter().flatten() {
            fs::create_dir_all(folder).map_err(|e| Error::write(folder, e))?;
        }
        let mut download = Download::open(blob.with_extension("incomplete"), progress)?;
        self.fetch(file, &mut download).map_err(|reason| match reason {
            Reason::Hub(reason) => self.failed(file, places, &reason),
            Reason::Disk(error) => error,
        })?;
        let Download { path, hash, .. } = download;
        let found = hash.finish();
        if found != file.sha256 {
            fs::remove_file(&path).map_err(|e| Error::write(&path, e))?;
            return Err(Error::WrongHash { url: self.url(file), found, expected: file.sha256 });
        }
        fs::rename(&path, &blob).map_err(|e| Error::write(&blob, e))?;
        link(&blob, &snapshot).map_err(|e| Error::write(&snapshot, e))?;
        Ok(snapshot)
    }

    /// Requests the rest of a file until it is complete.
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
            // A server without range support sends everything.
            200 => download.restart()?,
            code @ (408 | 429 | 500..) => return Ok(Attempt::Broken(format!("the server answers {code}"))),
            code => return Err(Reason::Hub(format!("the server answers {code}"))),
        }
        download.take(response.into_body().into_reader(), file.bytes)
    }

    fn failed(&self, file: &File, places: &Places, reason: &str) -> Error {
        let (url, reason, folder) = (self.url(file), reason.to_owned(), places.own.clone());
        Error::Download { url, reason, file: file.name, bytes: file.bytes, folder }
    }
}

/// Why a download failed.
enum Reason {
    Hub(String),
    Disk(Error),
}

impl From<Error> for Reason {
    fn from(error: Error) -> Reason {
        Reason::Disk(error)
    }
}

/// A growing file and its hash so far.
struct Download<'a> {
    path: PathBuf,
    file: OsFile,
    hash: Hash,
    have: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> Download<'a> {
    /// Opens and locks the file of an earlier download, or a new one.
    fn open(path: PathBuf, progress: &'a mut dyn FnMut(u64)) -> Result<Download<'a>> {
        let cannot = |cause| Error::write(&path, cause);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(cannot)?;
        if file.try_lock().is_err() {
            return Err(Error::DownloadBusy { path });
        }
        let (mut hash, mut have) = (Hash::new(), 0);
        hash.read(&mut file, &path, |count| have += count as u64)?;
        progress(have);
        Ok(Download { path, file, hash, have, progress })
    }

    fn restart(&mut self) -> Result<()> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|e| Error::write(&self.path, e))?;
        (self.hash, self.have) = (Hash::new(), 0);
        Ok(())
    }

    /// Appends a response up to `total` bytes in all.
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
                    self.file.write_all(piece).map_err(|e| Error::write(&self.path, e))?;
                    self.hash.update(piece);
                    self.have += count as u64;
                    (self.progress)(self.have);
                }
                Err(error) => return Ok(Attempt::Broken(error.to_string())),
            }
        }
        self.file.sync_all().map_err(|e| Error::write(&self.path, e))?;
        Ok(Attempt::Whole)
    }
}

/// Gives a blob its name: a link as the hub's own programs make it, or the file itself where links do not exist.
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
