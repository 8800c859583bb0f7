use crate::precision::Precision;
use crate::shape::{DType, Shape};

/// What can go wrong on a device that is not a bug of ours.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device has no memory left for a tensor.
    #[error(
        "{device}: {op} needs {} MiB for {shape} and could not get them; use shorter slices (--slice) or tiles (--tile)",
        bytes.div_ceil(1 << 20)
    )]
    OutOfMemory {
        /// The op that asked.
        op: &'static str,
        /// Name of the device.
        device: String,
        /// What was to be allocated.
        shape: Shape,
        /// Its size.
        bytes: usize,
    },
    /// The host has no memory left for what waits outside a device.
    #[error(
        "{device}: the host has not {} MiB more for what waits outside the card; give the card more (--max-vram) or use tiles (--tile)",
        bytes.div_ceil(1 << 20)
    )]
    HostMemory {
        /// Name of the device.
        device: String,
        /// What was to be allocated.
        bytes: usize,
    },
    /// `RESEED_CPU` holds a word that is not a level.
    #[error("RESEED_CPU={found}: the levels are {known}")]
    UnknownLevel {
        /// What it holds.
        found: String,
        /// What it may hold.
        known: String,
    },
    /// The thread pool could not be made.
    #[error("could not start {threads} threads: {reason}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// The system's words.
        reason: String,
    },
    /// There is no device of the kind that was asked for.
    #[error("{reason}")]
    NoDevice {
        /// What was found instead, and what to do.
        reason: String,
    },
    /// The driver of a device refused.
    #[error("{device}: {what} failed: {code}")]
    Device {
        /// Name of the device.
        device: String,
        /// What was asked of it.
        what: String,
        /// The driver's words.
        code: String,
    },
    /// Values left the range of the device's type: statistics of them are not finite.
    #[error("values left the range of {dtype}; use --dtype bf16")]
    OutOfRange {
        /// The type.
        dtype: DType,
    },
    /// A weight could not be read.
    #[error(transparent)]
    Weight(Box<dyn std::error::Error + Send + Sync>),
    /// The device cannot compute in the precision that was asked for.
    #[error(
        "{device} cannot compute in {precision}: it has compute capability {}.{}, {}.{} is needed; choose f16 or f32",
        capability.0, capability.1, needed.0, needed.1
    )]
    UnsupportedPrecision {
        /// Name of the device.
        device: String,
        /// The precision that was asked for.
        precision: Precision,
        /// Its compute capability, major and minor.
        capability: (usize, usize),
        /// The compute capability that the precision needs.
        needed: (usize, usize),
    },
}

/// Result of an op.
pub type Result<T> = std::result::Result<T, Error>;
