//! The state of a traced run: addresses of tensors, and end times of ops and copies.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::arena::Arena;
use crate::cost::Cost;
use crate::tensor::Storage;

/// What has been counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceReport {
    /// Bytes of tensors alive now.
    pub live: usize,
    /// Most bytes alive at once, workspace included.
    pub peak: usize,
    /// Bytes of one arena that holds them all, with the gaps between them.
    pub arena: usize,
    /// Most bytes of tensors in host memory at once.
    pub offloaded: usize,
    /// Bytes copied by offloads and prefetches.
    pub copied: usize,
    /// Bytes of weights on the device.
    pub weights: usize,
    /// Bytes of weights in host memory.
    pub hosted: usize,
    /// Arithmetic and traffic so far.
    pub cost: Cost,
    /// Ops so far.
    pub ops: usize,
    /// Nanoseconds of the run.
    pub time: u64,
    /// Nanoseconds in which ops wait for copies.
    pub waited: u64,
}

/// Operations and bytes per nanosecond of a device.
#[derive(Clone, Copy, Debug)]
pub struct SpeedModel {
    /// Multiplications and additions.
    pub flops: u64,
    /// Bytes that ops read and write.
    pub bytes: u64,
    /// Bytes that are copied in each direction between host and device.
    pub bus: u64,
}

impl Default for SpeedModel {
    /// A data-centre GPU of 2024.
    fn default() -> SpeedModel {
        SpeedModel { flops: 650_000, bytes: 2_700, bus: 45 }
    }
}

/// The report, the arena of tensors, and the end times of the copy streams.
pub struct TraceState {
    pub report: TraceReport,
    pub speed: SpeedModel,
    arena: Arena,
    offloaded: usize,
    /// Bytes of the shared buffer of repacked weights, part of those of the weights.
    repacked: usize,
    /// End of the last copy from the host.
    inward: u64,
    /// End of the last copy to the host.
    outward: u64,
    /// Freed ranges that a copy still uses, and the end of that copy.
    busy: Vec<(Range<usize>, u64)>,
}

impl TraceState {
    pub fn new(speed: SpeedModel) -> TraceState {
        let (report, arena) = (TraceReport::default(), Arena::new(usize::MAX, usize::MAX));
        TraceState { report, speed, arena, offloaded: 0, repacked: 0, inward: 0, outward: 0, busy: Vec::new() }
    }

    /// Places buffers of at least `large` bytes at the end of the arena, which must be empty.
    pub fn place_at_end(&mut self, large: usize) {
        self.arena = Arena::new(usize::MAX, large);
    }

    /// Counts the shared buffer in which the weights of one layer at a time are repacked.
    pub fn repacked(&mut self, bytes: usize) {
        let repacked = self.repacked.max(bytes);
        self.report.weights += repacked - self.repacked;
        self.repacked = repacked;
    }

    /// An address for `bytes` bytes that an op may write.
    pub fn allocate(&mut self, bytes: usize) -> usize {
        let (at, done) = self.place(bytes);
        self.wait(done);
        at
    }

    /// An address, and the end of the copies that still use it.
    pub fn place(&mut self, bytes: usize) -> (usize, u64) {
        let report = &mut self.report;
        report.live += bytes;
        report.peak = report.peak.max(report.live);
        let at = self.arena.allocate(bytes).expect("the arena is unbounded");
        report.arena = self.arena.size();
        self.busy.retain(|&(_, done)| done > self.report.time);
        let overlaps = |range: &Range<usize>| range.start < at + bytes && at < range.end;
        let done = self.busy.iter().filter(|(range, _)| overlaps(range)).map(|&(_, done)| done).max();
        (at, done.unwrap_or(0))
    }

    /// Frees a range that copies use until `done`.
    pub fn free(&mut self, at: usize, bytes: usize, done: u64) {
        self.report.live -= bytes;
        self.arena.free(at, bytes);
        if done > self.report.time {
            self.busy.push((at..at + bytes, done));
        }
    }

    /// Counts an op.
    pub fn run(&mut self, cost: Cost) {
        self.run_products(cost, false);
    }

    /// Counts an op whose products are of floats, or of 8-bit integers: these take half the time.
    pub fn run_products(&mut self, cost: Cost, int8: bool) {
        self.report.cost += cost;
        self.report.ops += 1;
        let flops = cost.flops / if int8 { 2 } else { 1 };
        self.report.time += (flops / self.speed.flops).max(cost.bytes / self.speed.bytes);
    }

    /// Ops wait until then.
    pub fn wait(&mut self, until: u64) {
        let waits = until.saturating_sub(self.report.time);
        self.report.time += waits;
        self.report.waited += waits;
    }

    /// Waits until all copies are done.
    pub fn finish(&mut self) {
        self.wait(self.inward.max(self.outward));
    }

    /// Starts a copy from the host at `ready` or later; returns its end.
    pub fn copy_in(&mut self, bytes: usize, ready: u64) -> u64 {
        self.report.copied += bytes;
        self.inward = self.inward.max(self.report.time).max(ready) + bytes as u64 / self.speed.bus;
        self.inward
    }

    /// Starts a copy to the host; returns its end.
    pub fn copy_out(&mut self, bytes: usize) -> u64 {
        self.report.copied += bytes;
        self.outward = self.outward.max(self.report.time) + bytes as u64 / self.speed.bus;
        self.outward
    }

    /// Counts bytes of tensors in host memory.
    pub fn offload(&mut self, bytes: usize) {
        self.offloaded += bytes;
        self.report.offloaded = self.report.offloaded.max(self.offloaded);
    }
}

/// A range of the arena.
pub struct TracedBuffer {
    pub at: usize,
    pub bytes: usize,
    /// End of the copy that fills it.
    pub ready: u64,
    /// End of the copy that reads it.
    pub leaving: AtomicU64,
    pub state: Arc<Mutex<TraceState>>,
}

impl Drop for TracedBuffer {
    fn drop(&mut self) {
        let done = self.ready.max(self.leaving.load(Ordering::Relaxed));
        lock(&self.state).free(self.at, self.bytes, done);
    }
}

/// A tensor in host memory, complete at `ready`.
pub struct Offloaded {
    pub bytes: usize,
    /// Bytes that a prefetch copies from the host: repeated frames once.
    pub copied: usize,
    pub ready: u64,
    pub state: Arc<Mutex<TraceState>>,
}

impl Drop for Offloaded {
    fn drop(&mut self) {
        lock(&self.state).offloaded -= self.bytes;
    }
}

impl Storage for Offloaded {
    fn bytes(&self) -> usize {
        self.bytes
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Storage for TracedBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

pub fn lock(state: &Mutex<TraceState>) -> MutexGuard<'_, TraceState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
