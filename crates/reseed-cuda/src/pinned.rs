//! Host memory that the card copies from and to at the bus's speed, by itself, while kernels run.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use reseed_ops::Result;

use crate::event::Event;
use crate::pages::Pages;
use crate::store::Store;

/// Pinned blocks that wait for the next owner; to pin memory takes longer than to copy it.
#[derive(Default)]
pub struct Pins {
    waiting: Mutex<HashMap<usize, Vec<Block>>>,
}

/// A piece of pinned memory, and the copy that used it last.
struct Block {
    pages: Pages,
    room: usize,
    last: Mutex<Option<Arc<Event>>>,
}

/// A block that goes back to where it came from.
pub struct Pinned {
    block: Option<Block>,
    bytes: usize,
    store: Arc<Store>,
}

// SAFETY: a shared reference gives no way to write.
unsafe impl Sync for Pinned {}

/// Sizes are rounded up, so that a block finds its next owner.
fn room(bytes: usize) -> usize {
    const LARGE: usize = 1 << 20;
    if bytes < LARGE { bytes.max(4096).next_power_of_two() } else { bytes.next_multiple_of(LARGE) }
}

impl Pinned {
    /// `bytes` bytes that a copy may still use: see [`Pinned::last`].
    pub fn new(store: &Arc<Store>, bytes: usize) -> Result<Pinned> {
        let room = room(bytes);
        let mut waiting = store.pins.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let found = waiting.get_mut(&room).and_then(Vec::pop);
        drop(waiting);
        let block = match found {
            Some(block) => block,
            None => Block { pages: Pages::pin(&store.driver, room)?, room, last: Mutex::default() },
        };
        Ok(Pinned { block: Some(block), bytes, store: store.clone() })
    }

    fn block(&self) -> &Block {
        self.block.as_ref().expect("a block is there until it is dropped")
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The copy that used the memory last.
    pub fn last(&self) -> Option<Arc<Event>> {
        self.block().last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says which copy uses the memory now.
    pub fn used_by(&self, copy: Arc<Event>) {
        *self.block().last.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
    }

    /// Where it lies, for copies.
    pub fn at(&self) -> *mut c_void {
        self.block().pages.at()
    }

    /// The memory, once no copy uses it any more.
    pub fn bytes(&self) -> Result<&[u8]> {
        self.last().map_or(Ok(()), |copy| copy.wait())?;
        // SAFETY: allocated in `new`, pinned until the store goes, and no copy writes to it.
        Ok(unsafe { std::slice::from_raw_parts(self.at().cast(), self.bytes) })
    }

    /// The same for writing.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.last().map_or(Ok(()), |copy| copy.wait())?;
        // SAFETY: as above, and borrowed exclusively.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.at().cast(), self.bytes) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let mut waiting = self.store.pins.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.entry(block.room).or_default().push(block);
        }
    }
}

impl Pins {
    /// Gives all memory back; nothing queued may use it. The context must be current.
    pub fn unpin(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.drain().flat_map(|(_, blocks)| blocks).for_each(|block| block.pages.unpin());
    }
}
