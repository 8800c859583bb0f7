//! Pinned host memory, which the GPU copies from and to at full bus speed while kernels run.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use reseed_ops::Result;

use crate::device_memory::DeviceMemory;
use crate::pages::Pages;
use crate::stream::Event;

/// Free pinned blocks by size, in the order in which they were freed. They are reused, since pinning memory takes
/// longer than copying it. The oldest is reused first: a block that was freed last may have a copy that is still
/// queued, and a copy in the other direction would wait for it.
#[derive(Default)]
pub struct PinnedPool {
    free: Mutex<HashMap<usize, VecDeque<Block>>>,
}

/// A piece of pinned memory, and the last copy that uses it.
struct Block {
    pages: Pages,
    size: usize,
    /// Every copy waits for the one before it, so that the last one stands for all.
    last: Mutex<Option<Arc<Event>>>,
}

/// A block that returns to its pool when it is dropped.
pub struct Pinned {
    block: Option<Block>,
    bytes: usize,
    memory: Arc<DeviceMemory>,
}

// SAFETY: a shared reference does not allow writing.
unsafe impl Sync for Pinned {}

/// Size of the block for so many bytes. Sizes are rounded up, so that a block can be reused.
fn block_size(bytes: usize) -> usize {
    const LARGE: usize = 1 << 20;
    if bytes < LARGE { bytes.max(4096).next_power_of_two() } else { bytes.next_multiple_of(LARGE) }
}

impl Pinned {
    /// `bytes` bytes, which a copy may still use: see [`Pinned::last`].
    pub fn new(memory: &Arc<DeviceMemory>, bytes: usize) -> Result<Pinned> {
        let size = block_size(bytes);
        let mut free = memory.pinned.free.lock().unwrap_or_else(PoisonError::into_inner);
        let found = free.get_mut(&size).and_then(VecDeque::pop_front);
        drop(free);
        let block = match found {
            Some(block) => block,
            None => Block { pages: Pages::pin(&memory.driver, size)?, size, last: Mutex::default() },
        };
        Ok(Pinned { block: Some(block), bytes, memory: memory.clone() })
    }

    fn block(&self) -> &Block {
        self.block.as_ref().expect("only drop removes the block")
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The last copy that uses the memory.
    pub fn last(&self) -> Option<Arc<Event>> {
        self.block().last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the last copy that uses the memory. It must wait for the previous one.
    pub fn used_by(&self, copy: Arc<Event>) {
        let mut last = self.block().last.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have queued a later copy on the same stream.
        if last.as_ref().is_none_or(|other| !copy.precedes(other)) {
            *last = Some(copy);
        }
    }

    /// Its address, for copies.
    pub fn as_ptr(&self) -> *mut c_void {
        self.block().pages.as_ptr()
    }

    /// The contents, after the last copy has ended.
    pub fn bytes(&self) -> Result<&[u8]> {
        self.last().map_or(Ok(()), |copy| copy.wait())?;
        // SAFETY: allocated in `new`, pinned until the pool is dropped, and no copy writes to it.
        Ok(unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.bytes) })
    }

    /// The same for writing.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.last().map_or(Ok(()), |copy| copy.wait())?;
        // SAFETY: as above, and borrowed exclusively.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.as_ptr().cast(), self.bytes) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let mut free = self.memory.pinned.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.entry(block.size).or_default().push_back(block);
        }
    }
}

impl PinnedPool {
    /// Frees all blocks. No queued copy may use them, and the context must be current.
    pub fn unpin(&self) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.drain().flat_map(|(_, blocks)| blocks).for_each(|block| block.pages.unpin());
    }
}
