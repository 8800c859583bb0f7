//! What a traced run has taken: where its tensors would lie, and when its kernels and copies would be done.

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
    /// Bytes of one piece of memory that holds them all, gaps between them included.
    pub arena: usize,
    /// Most bytes offloaded in the host's memory at once.
    pub offloaded: usize,
    /// Bytes copied to be offloaded and prefetched.
    pub copied: usize,
    /// Bytes of weights on the device.
    pub weights: usize,
    /// Bytes of weights in the host's memory.
    pub hosted: usize,
    /// Arithmetic and traffic so far.
    pub cost: Cost,
    /// Ops so far.
    pub ops: usize,
    /// Nanoseconds that they take.
    pub time: u64,
    /// Nanoseconds of these that kernels wait for copies.
    pub waited: u64,
}

/// What a device does in a nanosecond.
#[derive(Clone, Copy, Debug)]
pub struct SpeedModel {
    /// Multiplications and additions.
    pub flops: u64,
    /// Bytes that its kernels read and write.
    pub bytes: u64,
    /// Bytes that are copied from the host, and as many to it.
    pub bus: u64,
}

impl Default for SpeedModel {
    /// A large card of today.
    fn default() -> SpeedModel {
        SpeedModel { flops: 650_000, bytes: 2_700, bus: 45 }
    }
}

/// The report, where tensors would lie, and how far each lane of the device has come.
pub struct TraceState {
    pub report: TraceReport,
    pub speed: SpeedModel,
    arena: Arena,
    offloaded: usize,
    /// Bytes of the place for weights that are rearranged, part of those of the weights.
    room: usize,
    /// When the last copy from the host is done.
    inward: u64,
    /// When the last copy to the host is done.
    outward: u64,
    /// Parts that were given back before a copy had done with them, and when it will have.
    busy: Vec<(Range<usize>, u64)>,
}

impl TraceState {
    pub fn new(speed: SpeedModel) -> TraceState {
        let (report, arena) = (TraceReport::default(), Arena::new(usize::MAX, usize::MAX));
        TraceState { report, speed, arena, offloaded: 0, room: 0, inward: 0, outward: 0, busy: Vec::new() }
    }

    /// Lays parts of at least so many bytes at the other end of the memory, of which nothing is taken yet.
    pub fn lay_apart(&mut self, wide: usize) {
        self.arena = Arena::new(usize::MAX, wide);
    }

    /// Counts the place where one layer's weights are rearranged at a time.
    pub fn rearranged(&mut self, bytes: usize) {
        let room = self.room.max(bytes);
        self.report.weights += room - self.room;
        self.room = room;
    }

    pub fn take(&mut self, bytes: usize) -> usize {
        let (at, done) = self.place(bytes);
        self.wait(done);
        at
    }

    /// A place, and when copies that use it will be done.
    pub fn place(&mut self, bytes: usize) -> (usize, u64) {
        let report = &mut self.report;
        report.live += bytes;
        report.peak = report.peak.max(report.live);
        let at = self.arena.take(bytes).expect("an arena without end");
        report.arena = self.arena.high();
        self.busy.retain(|&(_, done)| done > self.report.time);
        let overlaps = |part: &Range<usize>| part.start < at + bytes && at < part.end;
        let done = self.busy.iter().filter(|(part, _)| overlaps(part)).map(|&(_, done)| done).max();
        (at, done.unwrap_or(0))
    }

    /// Gives back a part that copies use until `done`.
    pub fn give(&mut self, at: usize, bytes: usize, done: u64) {
        self.report.live -= bytes;
        self.arena.give(at, bytes);
        if done > self.report.time {
            self.busy.push((at..at + bytes, done));
        }
    }

    /// Counts an op.
    pub fn run(&mut self, cost: Cost) {
        self.report.cost += cost;
        self.report.ops += 1;
        self.report.time += (cost.flops / self.speed.flops).max(cost.bytes / self.speed.bytes);
    }

    /// Kernels wait until then.
    pub fn wait(&mut self, until: u64) {
        let waits = until.saturating_sub(self.report.time);
        self.report.time += waits;
        self.report.waited += waits;
    }

    /// Waits until all copies are done.
    pub fn finish(&mut self) {
        self.wait(self.inward.max(self.outward));
    }

    /// Starts a copy from the host of what is there at `ready`; returns when it is done.
    pub fn bring(&mut self, bytes: usize, ready: u64) -> u64 {
        self.report.copied += bytes;
        self.inward = self.inward.max(self.report.time).max(ready) + bytes as u64 / self.speed.bus;
        self.inward
    }

    /// Starts a copy to the host; returns when it is done.
    pub fn leave(&mut self, bytes: usize) -> u64 {
        self.report.copied += bytes;
        self.outward = self.outward.max(self.report.time) + bytes as u64 / self.speed.bus;
        self.outward
    }

    /// Counts bytes of the host's memory.
    pub fn offload(&mut self, bytes: usize) {
        self.offloaded += bytes;
        self.report.offloaded = self.report.offloaded.max(self.offloaded);
    }
}

/// A tensor's place.
pub struct TracedBuffer {
    pub at: usize,
    pub bytes: usize,
    /// When the copy that fills it is done.
    pub ready: u64,
    /// When the copy that reads it is done.
    pub leaving: AtomicU64,
    pub state: Arc<Mutex<TraceState>>,
}

impl Drop for TracedBuffer {
    fn drop(&mut self) {
        let done = self.ready.max(self.leaving.load(Ordering::Relaxed));
        lock(&self.state).give(self.at, self.bytes, done);
    }
}

/// A tensor in the host's memory, there from `ready` on.
pub struct Offloaded {
    pub bytes: usize,
    /// Bytes that are copied to bring it: frames that are the same come once.
    pub comes: usize,
    pub ready: u64,
    pub state: Arc<Mutex<TraceState>>,
}

impl Drop for Offloaded {
    fn drop(&mut self) {
        lock(&self.state).offloaded -= self.bytes;
    }
}

impl Storage for Offloaded {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Storage for TracedBuffer {
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
