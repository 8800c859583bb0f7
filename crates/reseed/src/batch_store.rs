//! Stores computed batches until their frames are safe: while frames are cross-faded, corrected and encoded, the
//! networks already compute the next batch.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::mpsc::{SendError, SyncSender};

use crate::prepare::Slice;

/// The turn of a network over a window of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// The encoder's.
    Encode,
    /// The transformer's.
    Step,
}

/// A store that survives a crash.
pub trait BatchStore: Sync {
    /// Whether the batch in hand will be stored. If not, [`BatchStore::put`] needs no values.
    fn stores(&self) -> bool {
        true
    }

    /// Stores the next restored frames of a batch; `last` with its last ones.
    fn put(&self, batch: usize, pixels: &[f32], last: bool);

    /// Forgets the frames of the batch in hand, which begins again.
    fn restart(&self);

    /// All frames of a batch, if it is complete.
    fn get(&self, batch: usize) -> Option<Vec<f32>>;

    /// Stores the latent of a batch after a turn, until the turn of the next network.
    fn put_latent(&self, turn: Turn, batch: usize, latent: &[f32]);

    /// The stored latent.
    fn get_latent(&self, turn: Turn, batch: usize) -> Option<Vec<f32>>;
}

/// The batches after the first `done` that an earlier run computed.
pub fn computed(store: Option<&dyn BatchStore>, done: usize) -> VecDeque<Vec<f32>> {
    store.into_iter().flat_map(|store| (done..).map_while(|batch| store.get(batch))).collect()
}

/// Sends restored frames to post-processing. A batch is stored before the networks begin with the next.
pub struct FrameSender<'a> {
    to: SyncSender<Slice>,
    store: Option<&'a dyn BatchStore>,
    /// Batches that an earlier run finished.
    done: usize,
    /// Batches that it computed after those.
    computed: RefCell<VecDeque<Vec<f32>>>,
    /// The batch in hand.
    batch: Cell<usize>,
}

impl<'a> FrameSender<'a> {
    /// After `done` finished batches and some that are only `computed`.
    pub fn new(
        to: SyncSender<Slice>,
        store: Option<&'a dyn BatchStore>,
        done: usize,
        computed: VecDeque<Vec<f32>>,
    ) -> FrameSender<'a> {
        let batch = Cell::new(done + computed.len());
        FrameSender { to, store, done, computed: RefCell::new(computed), batch }
    }

    /// Whether the next slice is stored.
    pub fn stores(&self) -> bool {
        self.store.is_some_and(BatchStore::stores)
    }

    /// Sends a slice. A batch that an earlier run computed gets its stored frames.
    pub fn send(&self, mut slice: Slice) -> Result<(), SendError<Slice>> {
        let (number, batch) = (slice.batch.as_ref().map(|batch| batch.number), self.batch.get());
        if number.is_some_and(|number| (self.done..batch).contains(&number)) {
            slice.pixels = self.computed.borrow_mut().pop_front().unwrap_or(slice.pixels);
        } else if number.is_none_or(|number| number >= batch) {
            self.store.filter(|_| slice.restarts).inspect(|store| store.restart());
            self.store.inspect(|store| store.put(batch, &slice.pixels, number.is_some()));
            self.batch.set(batch + usize::from(number.is_some()));
        }
        self.to.send(slice)
    }
}
