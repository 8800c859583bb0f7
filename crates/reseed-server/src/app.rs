//! What all requests and devices share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use reseed::internals::{AUTO, Machine, auto};
use reseed::media::Info;
use reseed::{Estimate, Settings};
use tokio::sync::{Semaphore, watch};

use crate::auth::Keys;
use crate::capabilities::{self, ordinal};
use crate::config::Config;
use crate::downloads::Downloads;
use crate::error::{Error, Result};
use crate::events::EventHub;
use crate::images::Images;
use crate::problem::{Answer, Problem};
use crate::queue::Queue;
use crate::roots::Roots;
use crate::sessions::{Compute, SessionCache};
use crate::uploads::Uploads;

/// Files that are looked at at the same time.
const PROBES: usize = 4;
/// Results in the data folder.
const RESULTS: &str = "results";

/// What all requests and devices share.
pub struct App {
    /// What the operator chose.
    pub config: Config,
    /// None where everybody may use the server.
    pub keys: Option<Keys>,
    /// Values of the Host header that are served.
    pub hosts: Vec<String>,
    /// The port, which names the cookie: browsers share cookies between the ports of a host.
    pub port: u16,
    pub roots: Roots,
    pub hub: Arc<EventHub>,
    pub queue: Queue,
    pub uploads: Uploads,
    pub images: Images,
    pub downloads: Arc<Downloads>,
    /// What the machine has.
    pub machine: Option<Machine>,
    /// For estimates, by device: the sessions of the devices are busy.
    estimates: Mutex<Vec<(String, SessionCache)>>,
    pub counters: Counters,
    /// Bounds the number of ffprobe processes.
    pub probes: Semaphore,
    /// True when the server stops.
    pub stop: watch::Sender<bool>,
    pub started: Instant,
}

/// Numbers for `/metrics`.
#[derive(Default)]
pub struct Counters {
    pub requests: AtomicU64,
    pub frames: AtomicU64,
    pub previews: AtomicU64,
    pub streams: AtomicUsize,
}

impl Counters {
    /// Adds to a number.
    pub fn add(number: &AtomicU64, count: usize) {
        number.fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl App {
    /// Opens the data folder.
    pub fn open(mut config: Config, port: u16) -> Result<App> {
        if config.access == crate::config::Access::Open && !config.bind.ip().is_loopback() {
            return Err(Error::OpenToNetwork { address: config.bind });
        }
        let path = config.data.clone();
        let data = |cause| Error::Data { path: path.clone(), cause };
        std::fs::create_dir_all(&config.data).map_err(data)?;
        config.data = reseed::media::files::canonicalize(&config.data).map_err(data)?;
        config.devices = devices(&config);
        // Two plans for the memory of one GPU would not fit.
        let gpus = config.devices.iter().filter_map(|device| ordinal(device));
        if let Some(gpu) = gpus.clone().enumerate().find(|(i, gpu)| gpus.clone().take(*i).any(|other| other == *gpu)) {
            return Err(Error::DeviceTwice { name: format!("cuda:{}", gpu.1) });
        }
        let hub = Arc::new(EventHub::new());
        let queue = Queue::open(&config.data, hub.clone(), config.limits.jobs, config.limits.ended)?;
        Ok(App {
            keys: Keys::open(&config.access, &config.data)?,
            hosts: hosts(&config, port),
            port,
            roots: Roots::open(&config.roots, &config.data)?,
            uploads: Uploads::open(&config.data, &config.limits).map_err(data)?,
            images: Images::open(&config.data).map_err(data)?,
            downloads: Arc::new(Downloads::new(&config.model, hub.clone())),
            machine: capabilities::machine(),
            estimates: Mutex::default(),
            queue,
            hub,
            counters: Counters::default(),
            probes: Semaphore::new(PROBES),
            stop: watch::channel(false).0,
            started: Instant::now(),
            config,
        })
    }

    /// The devices. A name that occurs twice runs two jobs.
    pub fn devices(&self) -> &[String] {
        &self.config.devices
    }

    /// A device by the name that a client gives, or the first.
    pub fn device(&self, name: Option<&str>) -> Answer<String> {
        let devices = self.devices();
        let found = devices.iter().find(|device| name.is_none_or(|name| name == *device));
        found.cloned().ok_or_else(|| {
            let name = name.unwrap_or_default();
            Problem::invalid(format!("device {name:?} is not one of {}", devices.join(", ")))
        })
    }

    /// How sessions of a device are opened.
    pub fn compute(&self, device: &str) -> Compute {
        let Config { budget, dtype, math, threads, .. } = self.config;
        Compute { device: device.to_owned(), budget, dtype, math, threads }
    }

    /// What a job would need.
    pub fn estimate(&self, device: &str, model: &str, input: &Info, settings: &Settings) -> reseed::Result<Estimate> {
        let mut estimates = self.estimates.lock().unwrap_or_else(PoisonError::into_inner);
        let index = estimates.iter().position(|(name, _)| name == device).unwrap_or_else(|| {
            estimates.push((device.to_owned(), SessionCache::new(self.compute(device))));
            estimates.len() - 1
        });
        estimates[index].1.get(model)?.estimate(input, settings)
    }

    /// The folder of the result of a job without a chosen output.
    pub fn results(&self, id: &str) -> PathBuf {
        self.config.data.join(RESULTS).join(id)
    }

    /// Whether a path is one that the server made, or under a root.
    pub fn may_use(&self, path: &std::path::Path) -> bool {
        path.starts_with(&self.config.data) || self.roots.contain(path)
    }
}

/// The devices by their own names.
fn devices(config: &Config) -> Vec<String> {
    let named = |name: &String| if name == AUTO { auto().to_owned() } else { name.clone() };
    match config.devices.is_empty() {
        true => vec![auto().to_owned()],
        false => config.devices.iter().map(named).collect(),
    }
}

/// Values of the Host header that are served.
fn hosts(config: &Config, port: u16) -> Vec<String> {
    let ip = config.bind.ip();
    let mut hosts: Vec<String> = config.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    if ip.is_loopback() || ip.is_unspecified() {
        hosts.extend(["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}")));
    }
    if !ip.is_unspecified() {
        hosts.push(std::net::SocketAddr::new(ip, port).to_string());
    }
    hosts
}
