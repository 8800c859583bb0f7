//! Streams of a GPU, and events: points on one stream that another stream or the host waits for.

use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{result, sys};
use reseed_ops::Result;

use crate::driver::Driver;

/// A CUDA stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Kernels.
    Compute,
    /// Copies from the host.
    Upload,
    /// Copies to the host of tensors that come back.
    Offload,
    /// Copies to the host of results. They do not wait for offloaded tensors.
    Download,
    /// Copies of memory that is shared with other libraries. They wait for nothing of the other streams.
    Interop,
    /// Work on finished frames, with its copies, in the order of the calls. It goes first where kernels compete.
    Frames,
}

impl Stream {
    /// Number of streams.
    pub const COUNT: usize = Stream::Frames as usize + 1;
}

impl Driver {
    /// Waits for everything queued on a stream so far, and returns its errors.
    pub fn wait_for(&self, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream is held until this value is dropped.
        self.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.handle(stream)) })
    }
}

/// A point on a stream. It is reached when everything that was queued on the stream before it has ended.
pub struct Event {
    handle: sys::CUevent,
    driver: Arc<Driver>,
    stream: Stream,
    /// Position among the events of its stream; later ones have larger numbers.
    number: u64,
}

// SAFETY: event handles belong to the process, not to a thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Records an event behind everything queued on `stream` so far.
    pub fn record(driver: &Arc<Driver>, stream: Stream) -> Result<Arc<Event>> {
        driver.enter()?;
        let mut handle = ptr::null_mut();
        // A thread that waits sleeps: the cores are for the other devices of a job, for decoding and for encoding.
        let flags = sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
        // SAFETY: writes one handle.
        driver.check("cuEventCreate", unsafe { sys::cuEventCreate(&mut handle, flags) })?;
        let mut event = Event { handle, driver: driver.clone(), stream, number: 0 };
        // The lock makes numbers follow the order on the stream.
        let mut recorded = driver.recorded[stream as usize].lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: this crate created both, in one context.
        driver.check("cuEventRecord", unsafe { sys::cuEventRecord(handle, driver.handle(stream)) })?;
        *recorded += 1;
        event.number = *recorded;
        drop(recorded);
        Ok(Arc::new(event))
    }

    /// Makes work that is queued on `stream` from now on wait for this event.
    pub fn block(&self, stream: Stream) -> Result<()> {
        self.block_on(&self.driver, stream)
    }

    /// The same on a stream of another handle of the same GPU.
    pub fn block_on(&self, driver: &Driver, stream: Stream) -> Result<()> {
        driver.enter()?;
        // SAFETY: this crate created both, in the primary context of one GPU.
        let status = unsafe { sys::cuStreamWaitEvent(driver.handle(stream), self.handle, 0) };
        driver.check("cuStreamWaitEvent", status)
    }

    /// Blocks the calling thread until the event is reached.
    pub fn wait(&self) -> Result<()> {
        self.driver.enter()?;
        // SAFETY: this value owns the event.
        self.driver.check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.handle) })
    }

    /// Whether the event is reached.
    pub fn is_reached(&self) -> bool {
        // SAFETY: this value owns the event. The next wait reports an error of the context.
        unsafe { sys::cuEventQuery(self.handle) == sys::CUresult::CUDA_SUCCESS }
    }

    /// Whether this event comes before another one on the same stream.
    pub fn precedes(&self, other: &Event) -> bool {
        self.stream == other.stream && self.number < other.number
    }

    /// Seconds from this event to another, both of which are reached; negative where the other came first.
    pub fn seconds_to(&self, other: &Event) -> Result<f64> {
        let mut milliseconds = 0.0;
        // SAFETY: both events are recorded; writes one number.
        let status = unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, self.handle, other.handle) };
        self.driver.check("cuEventElapsedTime", status)?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.driver.enter();
        // SAFETY: this value owns the event; the driver completes work that waits for it.
        let _ = unsafe { result::event::destroy(self.handle) };
    }
}

/// Copies that use a piece of memory: the last one of each stream. When it has ended, all before it have ended too.
#[derive(Default)]
pub struct LastCopies(Mutex<[Option<Arc<Event>>; Stream::COUNT]>);

impl LastCopies {
    /// Adds the end of a copy. Copies on other streams stay.
    pub fn add(&self, copy: Arc<Event>) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut last[copy.stream as usize];
        if slot.as_ref().is_none_or(|other| other.precedes(&copy)) {
            *slot = Some(copy);
        }
    }

    /// Removes and returns all copies.
    pub fn take(&self) -> impl Iterator<Item = Arc<Event>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().flatten()
    }
}

/// A value that one caller must handle before any other caller goes on.
pub struct Pending<T>(Mutex<Option<T>>);

impl<T> Default for Pending<T> {
    fn default() -> Pending<T> {
        Pending(Mutex::new(None))
    }
}

impl<T> Pending<T> {
    /// Replaces the value.
    pub fn set(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    /// Passes the value, if there is one, to `handle`. Other callers return when that has ended.
    pub fn settle(&self, handle: impl FnOnce(T)) {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = pending.take() {
            handle(value);
        }
    }

    /// Removes the value without handling it.
    pub fn take(&mut self) -> Option<T> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_caller_waits_until_the_value_is_handled() {
        let (pending, handled) = (Pending::default(), AtomicBool::new(false));
        pending.set(());
        let (entered, wait_entered) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                pending.settle(|()| {
                    entered.send(()).expect("the test waits for it");
                    // Long enough for a caller that does not wait to return.
                    thread::sleep(Duration::from_millis(100));
                    handled.store(true, Ordering::SeqCst);
                });
            });
            wait_entered.recv().expect("the value is handled");
            pending.settle(|()| panic!("the value is handled once"));
            assert!(handled.load(Ordering::SeqCst));
        });
    }
}
