//! Models: which are on this machine, and downloads of those that are not. One download runs at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use reseed::models::{self, File, Model};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::events::EventHub;

/// Progress is sent to clients at most so often.
const INTERVAL: Duration = Duration::from_millis(250);

/// A model.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ModelView {
    /// Its name for requests.
    pub name: String,
    /// In words.
    pub about: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes of the files that are not on this machine.
    pub missing_bytes: u64,
    /// Whether all of its files are on this machine.
    pub installed: bool,
    /// Whether jobs use it that choose none.
    pub default: bool,
    /// The download that runs, or why the last one ended.
    pub download: Option<DownloadView>,
}

/// The download of a model.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DownloadView {
    /// Its state.
    pub state: DownloadState,
    /// Bytes that have arrived.
    pub done_bytes: u64,
    /// Bytes of all files that were missing.
    pub total_bytes: u64,
    /// Bytes per second of this download.
    pub bytes_per_second: Option<f64>,
    /// Why it failed.
    pub error: Option<String>,
}

/// The state of a download.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DownloadState {
    /// Another download runs.
    Waiting,
    /// Bytes arrive.
    Running,
    /// An error ended it.
    Failed,
    /// A client ended it.
    Cancelled,
}

/// Downloads of this server.
pub struct Downloads {
    /// The model of jobs that choose none.
    own: String,
    hub: Arc<EventHub>,
    entries: Mutex<HashMap<&'static str, Entry>>,
    /// Held by the download that runs.
    turn: Mutex<()>,
}

struct Entry {
    view: DownloadView,
    stop: Arc<AtomicBool>,
}

impl Entry {
    fn is_active(&self) -> bool {
        matches!(self.view.state, DownloadState::Waiting | DownloadState::Running)
    }
}

impl Downloads {
    /// No download runs.
    pub fn new(own: &str, hub: Arc<EventHub>) -> Downloads {
        Downloads { own: own.to_owned(), hub, entries: Mutex::default(), turn: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<&'static str, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All models, the best first.
    pub fn models(&self) -> Vec<ModelView> {
        let mut list: Vec<ModelView> = models::all().iter().map(|model| self.view(model)).collect();
        let installed = |name: &str, about: &str, bytes| ModelView {
            name: name.into(),
            about: about.into(),
            bytes,
            missing_bytes: 0,
            installed: true,
            default: name == self.own,
            download: None,
        };
        list.extend(models::embedded().iter().map(|model| installed(model.name, model.about, model.bytes as u64)));
        if !list.iter().any(|model| model.default) {
            list.push(installed(&self.own, "the server's own", 0));
        }
        list
    }

    /// Models with a download.
    pub fn downloading(&self) -> Vec<ModelView> {
        let names: Vec<&str> = self.entries().keys().copied().collect();
        models::all().iter().filter(|model| names.contains(&model.name)).map(|model| self.view(model)).collect()
    }

    /// A model as clients see it.
    pub fn view(&self, model: &'static Model) -> ModelView {
        let missing = missing(model);
        let download = self.entries().get(model.name).map(|entry| entry.view.clone());
        ModelView {
            name: model.name.into(),
            about: model.about.into(),
            bytes: model.files().iter().map(|file| file.bytes).sum(),
            missing_bytes: missing.iter().map(|file| file.bytes).sum(),
            installed: missing.is_empty(),
            default: model.name == self.own,
            download: download.filter(|_| !missing.is_empty()),
        }
    }

    /// Starts a download, unless one of this model runs or none is needed.
    pub fn start(self: &Arc<Downloads>, model: &'static Model) -> std::io::Result<ModelView> {
        let files = missing(model);
        if files.is_empty() {
            return Ok(self.view(model));
        }
        let stop = Arc::<AtomicBool>::default();
        {
            let mut entries = self.entries();
            if entries.get(model.name).is_some_and(Entry::is_active) {
                drop(entries);
                return Ok(self.view(model));
            }
            let total_bytes = files.iter().map(|file| file.bytes).sum();
            let (state, done_bytes, bytes_per_second, error) = (DownloadState::Waiting, 0, None, None);
            let view = DownloadView { state, done_bytes, total_bytes, bytes_per_second, error };
            entries.insert(model.name, Entry { view, stop: stop.clone() });
        }
        self.announce(model);
        let shared = self.clone();
        let started = thread::Builder::new().name("reseed-download".into());
        started.spawn(move || Transfer { downloads: &shared, model, stop }.run(&files))?;
        Ok(self.view(model))
    }

    /// Ends a download. False where none runs.
    pub fn cancel(&self, model: &'static Model) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(model.name).filter(|entry| entry.is_active()) else { return false };
        entry.stop.store(true, Ordering::SeqCst);
        entry.view.state = DownloadState::Cancelled;
        drop(entries);
        self.announce(model);
        true
    }

    /// Ends all downloads.
    pub fn stop(&self) {
        self.entries().values().for_each(|entry| entry.stop.store(true, Ordering::SeqCst));
    }

    fn announce(&self, model: &'static Model) {
        self.hub.send("model", &json!(self.view(model)));
    }
}

/// The files of a model that are not on this machine.
fn missing(model: &'static Model) -> Vec<&'static File> {
    model.files().into_iter().filter(|file| models::locate(file).is_none()).collect()
}

/// A download on its thread.
struct Transfer<'a> {
    downloads: &'a Downloads,
    model: &'static Model,
    stop: Arc<AtomicBool>,
}

impl Transfer<'_> {
    fn run(self, files: &[&'static File]) {
        let _turn = self.downloads.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stop.load(Ordering::SeqCst) {
            return;
        }
        let result = self.fetch(files);
        match &result {
            Ok(()) => tracing::info!(model = self.model.name, "downloaded"),
            Err(error) => tracing::warn!(model = self.model.name, %error, "a download ended"),
        }
        match result {
            Ok(()) => self.remove(),
            Err(reseed::Error::Cancelled) => self.change(|view| view.state = DownloadState::Cancelled),
            Err(error) => self.change(|view| {
                (view.state, view.error) = (DownloadState::Failed, Some(error.to_string()));
            }),
        }
        self.downloads.announce(self.model);
    }

    fn fetch(&self, files: &[&'static File]) -> reseed::Result<()> {
        let (start, mut sent, mut before) = (Instant::now(), None::<Instant>, 0);
        // Bytes that earlier downloads have left.
        let mut kept = None;
        for file in files {
            models::download_until(file, &self.stop, &mut |count| {
                let done = before + count;
                let kept = *kept.get_or_insert(done);
                if sent.is_some_and(|sent| sent.elapsed() < INTERVAL) {
                    return;
                }
                sent = Some(Instant::now());
                let rate = (done - kept.min(done)) as f64 / start.elapsed().as_secs_f64().max(1e-3);
                self.change(|view| {
                    (view.done_bytes, view.bytes_per_second) = (done, (done > kept).then_some(rate));
                    if view.state == DownloadState::Waiting {
                        view.state = DownloadState::Running;
                    }
                });
                self.downloads.announce(self.model);
            })?;
            before += file.bytes;
        }
        Ok(())
    }

    /// Changes this download, unless a later one of the same model has taken its place.
    fn change(&self, change: impl FnOnce(&mut DownloadView)) {
        let mut entries = self.downloads.entries();
        let own = |entry: &&mut Entry| Arc::ptr_eq(&entry.stop, &self.stop);
        if let Some(entry) = entries.get_mut(self.model.name).filter(own) {
            change(&mut entry.view);
        }
    }

    fn remove(&self) {
        let mut entries = self.downloads.entries();
        if entries.get(self.model.name).is_some_and(|entry| Arc::ptr_eq(&entry.stop, &self.stop)) {
            entries.remove(self.model.name);
        }
    }
}
