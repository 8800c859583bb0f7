//! When a device is done, and how long it took.

use std::time::{Duration, Instant};

use crate::error::Result;

/// The clock of a device, and names for the parts of a run.
///
/// Ops may return before the device has computed their result. A device that queues its work measures on its own clock.
pub trait Timing: Send + Sync {
    /// Names the part of the network that runs next, for reports.
    fn stage(&self, name: &str);

    /// Starts a timer when all work that has been queued so far is done.
    fn timer(&self) -> Result<Box<dyn DeviceTimer>>;

    /// Waits until all work that has been queued so far is done.
    fn finish(&self) -> Result<()>;

    /// Durations of the copies that ran beside the ops since the last call. Waits for these copies.
    fn copy_time(&self) -> Result<CopyTime>;
}

/// A timer on a device's clock.
pub trait DeviceTimer: Send {
    /// Stops when all work that has been queued so far is done.
    fn end(&mut self) -> Result<()>;

    /// The time from start to end. Waits until the device reaches the end.
    fn time(&self) -> Result<Duration>;
}

/// A timer on the host's clock, for devices whose results are complete when a call returns.
pub struct HostTimer {
    start: Instant,
    time: Duration,
}

impl HostTimer {
    /// Starts now.
    pub fn start() -> HostTimer {
        HostTimer { start: Instant::now(), time: Duration::ZERO }
    }
}

impl DeviceTimer for HostTimer {
    fn end(&mut self) -> Result<()> {
        self.time = self.start.elapsed();
        Ok(())
    }

    fn time(&self) -> Result<Duration> {
        Ok(self.time)
    }
}

/// Seconds of copies between host and device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CopyTime {
    /// Copies from the host.
    pub inward: f64,
    /// Copies to the host.
    pub outward: f64,
    /// Time in which at least one copy ran.
    pub copying: f64,
    /// Time in which the device waited for copies.
    pub waiting: f64,
}

impl CopyTime {
    /// The fraction of the copying that the device did not wait for.
    pub fn hidden(&self) -> f64 {
        if self.copying > 0.0 { (1.0 - self.waiting / self.copying).max(0.0) } else { 1.0 }
    }

    /// The mean over `runs` runs.
    pub fn of_one(self, runs: usize) -> CopyTime {
        let one = |seconds: f64| seconds / runs as f64;
        CopyTime {
            inward: one(self.inward),
            outward: one(self.outward),
            copying: one(self.copying),
            waiting: one(self.waiting),
        }
    }
}

impl std::ops::AddAssign for CopyTime {
    fn add_assign(&mut self, other: CopyTime) {
        self.inward += other.inward;
        self.outward += other.outward;
        self.copying += other.copying;
        self.waiting += other.waiting;
    }
}
