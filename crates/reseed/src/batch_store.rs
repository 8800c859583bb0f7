//! What the networks made of a batch, kept until its frames are safe: frames are joined, corrected and encoded behind the
//! networks, which are at the next batch by then.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::mpsc::{SendError, SyncSender};

use crate::prepare::Slice;

/// A network's turn over a window of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// The encoder's.
    Encode,
    /// The transformer's.
    Step,
}

/// A place that outlives a crash.
pub trait BatchStore: Sync {
    /// Takes the next pictures that the networks made of a batch, `last` with the batch's last.
    fn put(&self, batch: usize, pictures: &[f32], last: bool);

    /// All pictures of a batch, if they were put to the last.
    fn get(&self, batch: usize) -> Option<Vec<f32>>;

    /// Takes the latent that a turn left of a batch, which waits until the turn of the next network.
    fn put_latent(&self, turn: Turn, batch: usize, latent: &[f32]);

    /// The latent that was put.
    fn get_latent(&self, turn: Turn, batch: usize) -> Option<Vec<f32>>;
}

/// The batches behind the first `done` that an earlier run's networks finished.
pub fn made(keep: Option<&dyn BatchStore>, done: usize) -> VecDeque<Vec<f32>> {
    keep.into_iter().flat_map(|keep| (done..).map_while(|batch| keep.get(batch))).collect()
}

/// The way behind the networks. What they made is kept before they can begin with the next batch.
pub struct FrameSender<'a> {
    to: SyncSender<Slice>,
    keep: Option<&'a dyn BatchStore>,
    /// Batches that were done before the job went on, and what was made of those behind them.
    done: usize,
    made: RefCell<VecDeque<Vec<f32>>>,
    /// The batch in hand.
    batch: Cell<usize>,
}

impl<'a> FrameSender<'a> {
    /// Behind `done` batches, and `made` that were computed but not done.
    pub fn new(
        to: SyncSender<Slice>,
        keep: Option<&'a dyn BatchStore>,
        done: usize,
        made: VecDeque<Vec<f32>>,
    ) -> FrameSender<'a> {
        let batch = Cell::new(done + made.len());
        FrameSender { to, keep, done, made: RefCell::new(made), batch }
    }

    /// Sends a slice on. A batch that was computed before comes without pictures and is given them.
    pub fn send(&self, mut slice: Slice) -> Result<(), SendError<Slice>> {
        let (number, batch) = (slice.batch.as_ref().map(|batch| batch.number), self.batch.get());
        if number.is_some_and(|number| (self.done..batch).contains(&number)) {
            slice.pixels = self.made.borrow_mut().pop_front().unwrap_or(slice.pixels);
        } else if number.is_none_or(|number| number >= batch) {
            self.keep.inspect(|keep| keep.put(batch, &slice.pixels, number.is_some()));
            self.batch.set(batch + usize::from(number.is_some()));
        }
        self.to.send(slice)
    }
}
