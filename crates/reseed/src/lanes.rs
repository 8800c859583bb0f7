//! Several devices that compute the batches of one job: each lane takes whole batches, and results leave in order.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::batch_store::FrameSender;
use crate::compute::Compute;
use crate::error::{Error, Kind, Result};
use crate::observer::{Event, Warning};
use crate::phase_times::PhaseTimes;
use crate::prepare::Slice;
use crate::slice_ends::{SliceInput, SliceOutput};

/// Longest wait between two questions whether the job was stopped.
const PATIENCE: Duration = Duration::from_millis(50);

/// Windows of batches per lane that may be in work or wait for their turn to leave.
pub const WINDOWS_AHEAD: usize = 2;

/// The slices of one batch.
type Slices = Vec<Slice>;

/// The batches of a job on their way through several lanes.
pub struct Lanes<'a> {
    input: Mutex<Receiver<Slice>>,
    state: Mutex<State>,
    changed: Condvar,
    /// Sends batches in order.
    output: Mutex<FrameSender<'a>>,
    stop: &'a AtomicBool,
    /// Most batches that are in work or wait.
    limit: usize,
}

struct State {
    /// The next batch that leaves.
    next: usize,
    /// Batches in work, with their lane and their input without pixels.
    taken: BTreeMap<usize, (usize, Slices)>,
    /// Batches whose lane is lost.
    returned: BTreeMap<usize, Slices>,
    /// Computed batches that wait for earlier ones.
    computed: BTreeMap<usize, Slices>,
    /// Lanes that still compute.
    alive: usize,
    /// Whether all batches are read.
    ended: bool,
}

impl<'a> Lanes<'a> {
    /// For lanes with windows of up to `window` batches, from batch `first` on.
    pub fn new(
        (input, output): (Receiver<Slice>, FrameSender<'a>),
        first: usize,
        (alive, window): (usize, usize),
        stop: &'a AtomicBool,
    ) -> Lanes<'a> {
        let (taken, returned, computed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let state = Mutex::new(State { next: first, taken, returned, computed, alive, ended: false });
        let (input, output, changed) = (Mutex::new(input), Mutex::new(output), Condvar::new());
        Lanes { input, state, changed, output, stop, limit: WINDOWS_AHEAD * alive * window }
    }

    /// Runs a lane until there are no more batches. The batches of a lane whose device fails return to the others.
    pub fn run(&self, number: usize, mut compute: Compute) -> Result<PhaseTimes> {
        let lane = Lane { lanes: self, number, slices: RefCell::default(), restored: RefCell::default() };
        let mut times = PhaseTimes::default();
        while self.has_work() {
            match compute.run(&lane, &lane) {
                Ok(more) => times += more,
                Err(error) if is_lost_device(&error) && self.leave(number) => {
                    let (device, reason) = (compute.ops.name(), error.to_string());
                    compute.events.push(Event::Warning(Warning::LostDevice { device, reason }));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(times)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner).0
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits until there is a batch to compute; `false` when none can come any more. Batches can return as long as any
    /// is in work.
    fn has_work(&self) -> bool {
        let mut state = self.lock();
        while state.ended && state.returned.is_empty() && !self.stopped() {
            if state.taken.is_empty() {
                return false;
            }
            state = self.wait(state);
        }
        !self.stopped()
    }

    /// The next batch for a lane; `None` where the lane must do with those that it has.
    fn take(&self, lane: usize) -> Option<Slices> {
        let mut state = self.lock();
        loop {
            if self.stopped() {
                return None;
            }
            if let Some((number, slices)) = state.returned.pop_first() {
                state.taken.insert(number, (lane, without_pixels(&slices)));
                return Some(slices);
            }
            if state.ended {
                return None;
            }
            // The lane with the first batch never waits: it fills its window.
            let first = state.taken.first_key_value().is_none_or(|(_, (owner, _))| *owner == lane);
            if first || state.taken.len() + state.computed.len() < self.limit {
                break;
            }
            state = self.wait(state);
        }
        drop(state);
        let input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slices = Slices::new();
        while slices.last().is_none_or(|slice: &Slice| slice.batch.is_none()) {
            let Ok(slice) = input.recv() else {
                self.lock().ended = true;
                return None;
            };
            slices.push(slice);
        }
        self.lock().taken.insert(number(&slices), (lane, without_pixels(&slices)));
        Some(slices)
    }

    /// Takes a computed batch and sends all that are next; `false` when the receiver is gone.
    fn put(&self, slices: Slices) -> bool {
        let mut state = self.lock();
        state.taken.remove(&number(&slices));
        state.computed.insert(number(&slices), slices);
        drop(state);
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(slices) = self.next_computed() {
            self.changed.notify_all();
            if !slices.into_iter().all(|slice| output.send(slice).is_ok()) {
                return false;
            }
        }
        self.changed.notify_all();
        true
    }

    fn next_computed(&self) -> Option<Slices> {
        let mut state = self.lock();
        let next = state.next;
        let slices = state.computed.remove(&next)?;
        state.next += 1;
        Some(slices)
    }

    /// Returns the batches of a lane to the others; `false` where it is the last lane.
    fn leave(&self, lane: usize) -> bool {
        let mut state = self.lock();
        let lost: Vec<usize> = state.taken.iter().filter(|(_, (owner, _))| *owner == lane).map(|(n, _)| *n).collect();
        for number in lost {
            if let Some((_, slices)) = state.taken.remove(&number) {
                state.returned.insert(number, slices);
            }
        }
        state.alive -= 1;
        self.changed.notify_all();
        state.alive > 0
    }
}

/// Whether an error is one of the device, which other devices may not have.
fn is_lost_device(error: &Error) -> bool {
    !error.is_out_of_range() && matches!(error.kind(), Kind::Device | Kind::Memory)
}

fn number(slices: &[Slice]) -> usize {
    slices.last().and_then(|slice| slice.batch.as_ref()).expect("the last slice has the batch").number
}

/// The same slices, whose pixels are made again from their frames.
fn without_pixels(slices: &[Slice]) -> Slices {
    let copy = |slice: &Slice| {
        let (frames, batch) = (slice.frames.clone(), slice.batch.clone());
        Slice { frames, batch, ..Slice::default() }
    };
    slices.iter().map(copy).collect()
}

/// The ends of a lane.
struct Lane<'a, 'b> {
    lanes: &'a Lanes<'b>,
    number: usize,
    /// Slices of the batch in hand that are still to be computed, the next one last.
    slices: RefCell<Slices>,
    /// Slices of the batch in hand that are computed.
    restored: RefCell<Slices>,
}

impl SliceInput for Lane<'_, '_> {
    fn next(&self) -> Option<Slice> {
        let mut slices = self.slices.borrow_mut();
        if slices.is_empty() {
            *slices = self.lanes.take(self.number)?;
            slices.reverse();
        }
        slices.pop()
    }
}

impl SliceOutput for Lane<'_, '_> {
    fn send(&self, mut slice: Slice) -> bool {
        let complete = slice.batch.is_some();
        // Nothing of the batch has left the lane yet.
        if std::mem::take(&mut slice.restarts) {
            self.restored.borrow_mut().clear();
        }
        self.restored.borrow_mut().push(slice);
        !complete || self.lanes.put(self.restored.take())
    }
}
