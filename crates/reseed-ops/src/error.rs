use crate::precision::Precision;
use crate::shape::{DType, Shape};

/// A failure of a device that is not a bug.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device has no memory left for a tensor.
    #[error(
        "{device}: out of memory: {op} needs {} MiB for {shape}; use shorter slices or tiles",
        bytes.div_ceil(1 << 20)
    )]
    OutOfMemory {
        /// The op that allocates.
        op: &'static str,
        /// Name of the device.
        device: String,
        /// Shape of the tensor.
        shape: Shape,
        /// Bytes of the tensor.
        bytes: usize,
    },
    /// The host has no pinned memory left for offloaded tensors and weights.
    #[error(
        "{device}: out of pinned host memory: {} MiB needed; allow the device more memory, or use tiles",
        bytes.div_ceil(1 << 20)
    )]
    HostMemory {
        /// Name of the device.
        device: String,
        /// Bytes of the allocation.
        bytes: usize,
    },
    /// `RESEED_CPU` does not name a level.
    #[error("RESEED_CPU={found} is not a level; use one of {known}")]
    UnknownLevel {
        /// Its value.
        found: String,
        /// The names of all levels.
        known: String,
    },
    /// The thread pool did not start.
    #[error("could not start {threads} threads: {reason}")]
    Threads {
        /// Number of threads.
        threads: usize,
        /// The message of the system.
        reason: String,
    },
    /// No device of the requested kind is available.
    #[error("{reason}")]
    NoDevice {
        /// Why not, and what to do.
        reason: String,
    },
    /// A call of the driver failed.
    #[error("{device}: {what} failed: {code}")]
    Device {
        /// Name of the device.
        device: String,
        /// The call.
        what: String,
        /// The message of the driver.
        code: String,
    },
    /// Values overflowed the device's type: their statistics are not finite.
    #[error("values overflow {dtype}; use bf16")]
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
