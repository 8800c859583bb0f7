//! A CPU whose values have a small range, as those of f16 on a GPU have.

use std::sync::{Mutex, PoisonError};

use reseed_cpu::CpuOps;
use reseed_ops::{DType, Device, Error, Ops, PendingDownload, Residency, Result, Tensor, Timing, Transfer, forward};

pub struct Narrow {
    inner: CpuOps,
    /// The largest value that a downloaded tensor may have.
    limit: f32,
    /// The largest value of every download.
    pub largest: Mutex<Vec<f32>>,
}

impl Narrow {
    pub fn new(limit: f32) -> Narrow {
        Narrow { inner: CpuOps::new(DType::F32, Some(2)).unwrap(), limit, largest: Mutex::default() }
    }
}

impl Device for Narrow {
    forward!(Device to inner);
}

impl Ops for Narrow {
    forward!(Ops to inner);
}

impl Residency for Narrow {
    forward!(Residency to inner);
}

impl Timing for Narrow {
    forward!(Timing to inner);
}

/// A download that ends with an error, as on a device that computes beside the caller.
struct Overflow;

impl PendingDownload for Overflow {
    fn wait(self: Box<Self>, _: &mut Vec<f32>) -> Result<()> {
        Err(Error::OutOfRange { dtype: DType::F16 })
    }
}

impl Transfer for Narrow {
    forward!(Transfer to inner, except start_download);

    fn start_download(&self, x: &Tensor) -> Result<Box<dyn PendingDownload>> {
        let values = self.inner.download(x)?;
        let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        self.largest.lock().unwrap_or_else(PoisonError::into_inner).push(largest);
        if largest > self.limit { Ok(Box::new(Overflow)) } else { Ok(Box::new(values)) }
    }
}
