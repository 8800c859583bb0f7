//! Settings of a session.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use reseed_ops::{MathMode, Precision};

use super::Session;
use crate::devices::{self, CheckReport, ComputeOptions};
use crate::error::Result;
use crate::models;
use crate::models::weights::Parts;
use crate::threads::{most_threads, start_pool};

/// Bytes of GPU memory that a session may allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(usize);

impl Budget {
    /// So many bytes.
    pub const fn bytes(bytes: usize) -> Budget {
        Budget(bytes)
    }

    /// So many GiB.
    pub const fn gib(gib: usize) -> Budget {
        Budget(gib << 30)
    }

    /// The number of bytes.
    pub const fn get(self) -> usize {
        self.0
    }
}

/// Parses `6G`, `7.5GiB`, `900M` or a number of bytes.
impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Budget, String> {
        let wrong = || format!("`{text}` is not a size such as 6G, 7.5G or 900M");
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
            "" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            _ => return Err(wrong()),
        };
        let count: f64 = digits.parse().map_err(|_| wrong())?;
        match count * (1u64 << shift) as f64 {
            bytes if bytes >= 1.0 && bytes < (1u64 << 50) as f64 => Ok(Budget(bytes as usize)),
            _ => Err(wrong()),
        }
    }
}

/// Settings of a [`Session`].
#[derive(Clone, Default)]
pub struct Builder {
    model: Option<String>,
    parts: Parts,
    devices: Vec<String>,
    options: ComputeOptions,
}

impl Builder {
    /// The model: the name of a public model such as `3b`, a folder with model files, the file of a transformer, `nano`
    /// for the embedded model, or a formula model such as `formula:tiny`. `nano` unless given.
    pub fn model(mut self, name: impl Into<String>) -> Builder {
        self.model = Some(name.into());
        self
    }

    /// The file of the VAE. Unless given, it is the one beside the transformer, or one of the user's models.
    pub fn vae(mut self, file: impl Into<Option<PathBuf>>) -> Builder {
        self.parts.vae = file.into();
        self
    }

    /// The file of the text embedding. Unless given, it is in the transformer's file or found as the VAE is.
    pub fn text(mut self, file: impl Into<Option<PathBuf>>) -> Builder {
        self.parts.text = file.into();
        self
    }

    /// The device: `auto` for the first GPU or else the CPU, `cpu`, `cuda:N`, or `cuda` for all GPUs; several with
    /// commas between them. `auto` unless given.
    pub fn device(self, name: impl Into<String>) -> Builder {
        self.devices([name])
    }

    /// Several devices of one kind, which take the batches of a job in turn. The result is that of one device. A device
    /// that is named twice computes two batches at a time.
    pub fn devices(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Builder {
        self.devices = names.into_iter().map(Into::into).collect();
        self
    }

    /// The GPU memory of each device; what is free less a margin unless given.
    pub fn budget(mut self, budget: impl Into<Option<Budget>>) -> Builder {
        self.options.budget = budget.into().map(|Budget(bytes)| bytes);
        self
    }

    /// Threads of the CPU, at most four per core; one per core unless given.
    pub fn threads(mut self, threads: impl Into<Option<usize>>) -> Builder {
        self.options.threads = threads.into().map(|threads| threads.min(most_threads()));
        self
    }

    /// Type of the activations; what suits device and model unless given.
    pub fn dtype(mut self, dtype: impl Into<Option<Precision>>) -> Builder {
        self.options.dtype = dtype.into();
        self
    }

    /// Accuracy that the products of a GPU keep; [`MathMode::Exact`] unless given. The CPU has one mode.
    pub fn math(mut self, math: MathMode) -> Builder {
        self.options.math = math;
        self
    }

    /// Whether new linear layers are measured with cuBLASLt on a GPU, and the faster kernel is recorded.
    pub fn tune(mut self, tune: bool) -> Builder {
        self.options.tune = tune;
        self
    }

    /// Whether kernels that were measured on this machine are used; `true` unless given. Without them, results
    /// do not depend on the machine's record.
    pub fn measured_kernels(mut self, used: bool) -> Builder {
        self.options.measured_kernels = used;
        self
    }

    /// Whether reports have a [profile](crate::Report::profile).
    pub fn profile(mut self, profile: bool) -> Builder {
        self.options.profile = profile;
        self
    }

    /// Compares every op with the reference level of the CPU; `report` receives a line for each that disagrees. Slow.
    pub fn check(mut self, report: impl Fn(&dyn std::fmt::Display) + Send + Sync + 'static) -> Builder {
        self.options.check = Some(Arc::new(report) as CheckReport);
        self
    }

    /// Opens the model's files and its device. Networks are loaded by the first job.
    pub fn open(self) -> Result<Session> {
        start_pool()?;
        let devices = devices::names(&self.devices);
        Session::open(self.model.unwrap_or(models::EMBEDDED.into()), &self.parts, devices, self.options)
    }
}
