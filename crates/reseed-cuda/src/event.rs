//! Streams and the moments that one of them waits for in another.

use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{result, sys};
use reseed_ops::Result;

use crate::driver::Driver;

/// A queue of the card's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Kernels.
    Compute,
    /// Copies from the host.
    In,
    /// Copies to the host of what comes back.
    Out,
    /// Copies to the host of results, which need not wait until all that comes back has left.
    Results,
}

impl Lane {
    /// How many there are.
    pub const COUNT: usize = Lane::Results as usize + 1;
}

/// The moment when a stream had done what was queued on it so far.
pub struct Event {
    handle: sys::CUevent,
    driver: Arc<Driver>,
    lane: Lane,
    /// Which event of its stream it is; later ones have larger numbers.
    number: u64,
}

// SAFETY: the driver's handles belong to the process, not to a thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// The moment when `lane` has done what is queued on it now.
    pub fn record(driver: &Arc<Driver>, lane: Lane) -> Result<Arc<Event>> {
        driver.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: writes one handle.
        driver.check("cuEventCreate", unsafe { sys::cuEventCreate(&mut handle, 0) })?;
        let mut event = Event { handle, driver: driver.clone(), lane, number: 0 };
        // Numbers follow the order on the stream: no other thread records between the two.
        let mut recorded = driver.recorded[lane as usize].lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: both are ours and of one context.
        driver.check("cuEventRecord", unsafe { sys::cuEventRecord(handle, driver.stream(lane)) })?;
        *recorded += 1;
        event.number = *recorded;
        drop(recorded);
        Ok(Arc::new(event))
    }

    /// Makes what is queued on `lane` from now on wait for this moment.
    pub fn hold(&self, lane: Lane) -> Result<()> {
        self.driver.enter()?;
        // SAFETY: both are ours and of one context.
        let answer = unsafe { sys::cuStreamWaitEvent(self.driver.stream(lane), self.handle, 0) };
        self.driver.check("cuStreamWaitEvent", answer)
    }

    /// Makes the caller wait for this moment.
    pub fn wait(&self) -> Result<()> {
        self.driver.enter()?;
        // SAFETY: ours.
        self.driver.check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.handle) })
    }

    /// Whether the moment has passed.
    pub fn passed(&self) -> bool {
        // SAFETY: ours. An error is one that the next wait will report.
        unsafe { sys::cuEventQuery(self.handle) == sys::CUresult::CUDA_SUCCESS }
    }

    /// Seconds from this moment, which has passed as has the other, to that one; less than none where that came first.
    pub fn seconds_to(&self, other: &Event) -> Result<f64> {
        let mut milliseconds = 0.0;
        // SAFETY: both are ours and recorded; writes one number.
        let answer = unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, self.handle, other.handle) };
        self.driver.check("cuEventElapsedTime", answer)?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.driver.enter();
        // SAFETY: ours; the driver lets what is queued go on.
        let _ = unsafe { result::event::destroy(self.handle) };
    }
}

/// Copies that use a piece of memory: the last one of each stream. When that has ended, those before it have too.
#[derive(Default)]
pub struct LastCopies(Mutex<[Option<Arc<Event>>; Lane::COUNT]>);

impl LastCopies {
    /// Adds a copy. Copies of other streams stay.
    pub fn add(&self, copy: Arc<Event>) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut last[copy.lane as usize];
        if slot.as_ref().is_none_or(|other| other.number < copy.number) {
            *slot = Some(copy);
        }
    }

    /// All copies, none of which is remembered any more.
    pub fn take(&self) -> impl Iterator<Item = Arc<Event>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().flatten()
    }
}
