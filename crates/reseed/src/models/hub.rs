//! Downloads from the hub into its shared cache, where other programs find the files.

use std::env;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use reseed_media::files;
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use super::download::{Attempt, Download, MinimumRate, Reason};
use super::places::Places;
use super::registry::File;
use crate::error::{DownloadError, Error, Result};

const PUBLIC: &str = "https://huggingface.co";
/// Attempts in a row that bring nearly nothing.
const TRIES: u32 = 5;
/// Bytes that make an attempt count: a server must not keep a client busy with a byte per connection.
const PROGRESS: u64 = 64 << 10;
/// Redirects of one request. The hub uses two.
const REDIRECTS: u32 = 5;

/// How long a server may take.
#[derive(Clone, Copy)]
pub struct Limits {
    /// For the address of a name. Without a network, a user hears of it after this time at the latest.
    pub resolve: Duration,
    /// For a connection, with its encryption.
    pub connect: Duration,
    /// For the head of an answer.
    pub response: Duration,
    /// Between two pieces of a file.
    pub silence: Duration,
    /// For the file.
    pub rate: MinimumRate,
    /// Before the second attempt in a row; doubled before each further one.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            resolve: Duration::from_secs(2),
            connect: Duration::from_millis(2500),
            response: Duration::from_secs(10),
            silence: Duration::from_secs(20),
            rate: MinimumRate { bytes: 30 << 10, window: Duration::from_secs(30) },
            pause: Duration::from_secs(1),
        }
    }
}

/// The hub and its connection.
pub struct Hub {
    pub endpoint: String,
    pub offline: bool,
    /// Ends a download.
    stop: Arc<AtomicBool>,
    limits: Limits,
    agent: Agent,
}

impl Hub {
    /// The hub of `HF_ENDPOINT`; `HF_HUB_OFFLINE` forbids downloads.
    pub fn of_user() -> Hub {
        let endpoint = env::var("HF_ENDPOINT").ok().filter(|url| !url.is_empty());
        let offline = env::var("HF_HUB_OFFLINE").unwrap_or_default().to_ascii_lowercase();
        let endpoint = endpoint.map_or(PUBLIC.into(), |url| url.trim_end_matches('/').into());
        let offline = matches!(offline.as_str(), "1" | "on" | "yes" | "true");
        Hub { offline, ..Hub::new(endpoint, Limits::default()) }
    }

    /// The same, whose downloads end when a flag is set.
    pub fn stopped_by(self, stop: &Arc<AtomicBool>) -> Hub {
        Hub { stop: stop.clone(), ..self }
    }

    /// A hub at this address.
    pub fn new(endpoint: String, limits: Limits) -> Hub {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(REDIRECTS)
            .timeout_resolve(Some(limits.resolve))
            .timeout_connect(Some(limits.connect))
            .timeout_send_request(Some(limits.response))
            .timeout_recv_response(Some(limits.response))
            .timeout_per_read(Some(limits.silence))
            .user_agent(concat!("reseed/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Hub { endpoint, offline: false, stop: Arc::default(), limits, agent }
    }

    /// The address of a file.
    pub fn url(&self, file: &File) -> String {
        format!("{}/{}/resolve/{}/{}", self.endpoint, file.repo.name, file.repo.revision, file.path())
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
            return Err(DownloadError::WrongHash { url: self.url(file), found, expected: file.sha256 }.into());
        }
        files::rename(&path, &blob).map_err(|e| Error::write(&blob, e))?;
        link(&blob, &snapshot, file).map_err(|e| Error::write(&snapshot, e))?;
        Ok(snapshot)
    }

    /// Requests the rest of a file until it is complete. A server that has never answered is asked once: without a
    /// network, waiting does not help.
    fn fetch(&self, file: &File, download: &mut Download) -> std::result::Result<(), Reason> {
        let (mut idle, mut answered) = (0, false);
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return Err(Reason::Disk(Error::Cancelled));
            }
            let before = download.have;
            let reason = match self.attempt(file, download, &mut answered)? {
                Attempt::Whole => return Ok(()),
                Attempt::Broken(reason) => reason,
            };
            idle = if download.have >= before + PROGRESS { 0 } else { idle + 1 };
            if (idle == TRIES || !answered) && !self.stop.load(Ordering::SeqCst) {
                return Err(Reason::Hub(reason));
            }
            if !self.stop.load(Ordering::SeqCst) {
                sleep(self.limits.pause * (1 << idle) / 2);
            }
        }
    }

    fn attempt(
        &self,
        file: &File,
        download: &mut Download,
        answered: &mut bool,
    ) -> std::result::Result<Attempt, Reason> {
        if download.have > file.bytes {
            download.restart()?;
        }
        if download.have == file.bytes {
            return Ok(Attempt::Whole);
        }
        let request = self.agent.get(self.url(file)).header("Range", format!("bytes={}-", download.have));
        let response = match request.call() {
            Ok(response) => response,
            Err(ureq::Error::TooManyRedirects) => {
                return Err(Reason::Hub(format!("the server redirects more than {REDIRECTS} times")));
            }
            Err(error) => return Ok(Attempt::Broken(error.to_string())),
        };
        *answered = true;
        match response.status().as_u16() {
            200 | 206 => {}
            code @ (408 | 429 | 500..) => return Ok(Attempt::Broken(format!("the server answers {code}"))),
            code => return Err(Reason::Hub(format!("the server answers {code}"))),
        }
        self.check(&response, file, download)?;
        let body = Stoppable { body: response.into_body().into_reader(), stop: &self.stop };
        download.take(body, file.bytes, self.limits.rate)
    }

    /// Checks that an answer is the asked part of a file of the published length, before the file is transferred.
    fn check(
        &self,
        response: &Response<Body>,
        file: &File,
        download: &mut Download,
    ) -> std::result::Result<(), Reason> {
        let total = match response.status().as_u16() {
            206 => {
                let (first, total) = content_range(response.headers()).unwrap_or((u64::MAX, None));
                if first != download.have {
                    return Err(Reason::Hub("the server sends another part than it was asked for".into()));
                }
                total
            }
            // A server without range support sends everything.
            _ => {
                download.restarts += u32::from(download.have > 0);
                if download.restarts > TRIES {
                    return Err(Reason::Hub("the server starts every transfer again and completes none".into()));
                }
                download.restart()?;
                header(response.headers(), "content-length").and_then(|length| length.parse().ok())
            }
        };
        match total {
            Some(total) if total != file.bytes => {
                let expected = file.bytes;
                Err(Reason::Hub(format!("the server has a file of {total} bytes; the published one has {expected}")))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, file: &File, places: &Places, reason: &str) -> Error {
        // A reason may repeat what a server sent.
        let reason: String = reason.chars().take(200).flat_map(char::escape_debug).collect();
        let (url, folder) = (self.url(file), places.own.clone());
        DownloadError::Unreachable { url, reason, file: file.name, bytes: file.bytes, folder }.into()
    }
}

/// A body that breaks off when a flag is set.
struct Stoppable<'a, R> {
    body: R,
    stop: &'a AtomicBool,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stop.load(Ordering::SeqCst) {
            true => Err(io::Error::other("cancelled")),
            false => self.body.read(buffer),
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The first byte of a partial answer, and the length of the whole file if it is given.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let (range, total) = header(headers, "content-range")?.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()))
}

/// Gives a blob its name: a link as the hub's own programs make it, or the file itself where links do not exist.
fn link(blob: &Path, snapshot: &Path, file: &File) -> std::io::Result<()> {
    let _ = fs::remove_file(snapshot);
    #[cfg(unix)]
    {
        let name = blob.file_name().unwrap_or_default();
        // From the folder of the file to the one of its repository.
        let up = "../".repeat(1 + file.path().split('/').count());
        std::os::unix::fs::symlink(Path::new(&up).join("blobs").join(name), snapshot)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        files::rename(blob, snapshot)
    }
}
