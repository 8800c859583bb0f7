//! Times on the GPU.

use std::sync::Arc;
use std::time::Duration;

use reseed_ops::{CopyTime, DeviceTimer, Result, Timing};

use super::CudaOps;
use crate::driver::Driver;
use crate::stream::{Event, Stream};

/// A point in time on the GPU.
pub struct Timestamp(pub(super) Arc<Event>);

impl Timestamp {
    /// Seconds to a later one, after waiting for it.
    pub fn seconds_to(&self, later: &Timestamp) -> Result<f64> {
        later.0.wait()?;
        self.0.seconds_to(&later.0)
    }
}

/// Time between two points on the stream of kernels.
struct GpuTimer {
    driver: Arc<Driver>,
    start: Arc<Event>,
    end: Arc<Event>,
}

impl DeviceTimer for GpuTimer {
    fn end(&mut self) -> Result<()> {
        self.end = Event::record(&self.driver, Stream::Compute)?;
        Ok(())
    }

    fn time(&self) -> Result<Duration> {
        self.end.wait()?;
        Ok(Duration::from_secs_f64(self.start.seconds_to(&self.end)?))
    }
}

impl Timing for CudaOps {
    fn stage(&self, _: &str) {}

    fn timer(&self) -> Result<Box<dyn DeviceTimer>> {
        let start = Event::record(&self.driver, Stream::Compute)?;
        Ok(Box::new(GpuTimer { driver: self.driver.clone(), end: start.clone(), start }))
    }

    fn finish(&self) -> Result<()> {
        self.driver.synchronize()
    }

    fn copy_time(&self) -> Result<CopyTime> {
        self.memory.copies.take()
    }
}
