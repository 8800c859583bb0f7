//! Device memory, used again from op to op.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reseed_ops::{Result, Storage};

use crate::driver::Ptr;

/// Where memory comes from.
pub trait Source: Send + Sync {
    /// Memory with anything in it, or `None` when there is not that much.
    fn alloc(&self, bytes: usize) -> Result<Option<Ptr>>;
    /// Takes back what `alloc` gave, once nothing queued uses it.
    fn free(&self, at: Ptr);
}

/// Memory that goes back to where it came from.
pub struct Memory {
    at: Ptr,
    bytes: usize,
    source: Arc<dyn Source>,
}

impl Memory {
    /// Where it lies.
    pub fn ptr(&self) -> Ptr {
        self.at
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.source.free(self.at);
    }
}

/// Blocks that tensors have given back. Getting memory from the driver costs more than most ops, so a block waits here
/// for the next tensor of its size; but tensors and waiting blocks together never exceed what tensors alone have needed
/// at some time, so that waiting costs no memory. A block may be lent while kernels of its last owner are still
/// queued: those of the next one come behind them.
pub struct Pool {
    source: Arc<dyn Source>,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    waiting: Vec<Memory>,
    live: usize,
    peak: usize,
}

impl Pool {
    /// An empty pool.
    pub fn new(source: Arc<dyn Source>) -> Arc<Pool> {
        Arc::new(Pool { source, shelf: Mutex::default() })
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most bytes that have been lent at once.
    pub fn peak(&self) -> usize {
        self.shelf().peak
    }

    /// Memory for a tensor, with anything in it; `None` when there is not that much.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<Option<Lent>> {
        let mut shelf = self.shelf();
        let found = shelf.waiting.iter().rposition(|block| block.bytes == bytes);
        let found = found.map(|i| shelf.waiting.remove(i));
        let peak = shelf.peak;
        shelf.live += bytes;
        shelf.peak = peak.max(shelf.live);
        shelf.shrink();
        let block = match found {
            Some(block) => Ok(Some(block)),
            None => self.fresh(&mut shelf, bytes),
        };
        if !matches!(block, Ok(Some(_))) {
            shelf.live -= bytes;
            shelf.peak = peak;
        }
        Ok(block?.map(|block| Lent { block: Some(block), pool: self.clone() }))
    }

    /// Memory that is not the pool's to count, such as weights.
    pub fn keep(&self, bytes: usize) -> Result<Option<Memory>> {
        self.fresh(&mut self.shelf(), bytes)
    }

    /// From the source; what is waiting makes room when there is none.
    fn fresh(&self, shelf: &mut Shelf, bytes: usize) -> Result<Option<Memory>> {
        let mut at = self.source.alloc(bytes)?;
        if at.is_none() && !shelf.waiting.is_empty() {
            shelf.waiting.clear();
            at = self.source.alloc(bytes)?;
        }
        Ok(at.map(|at| Memory { at, bytes, source: self.source.clone() }))
    }
}

impl Shelf {
    /// Gives the longest waiting blocks back until the promise holds.
    fn shrink(&mut self) {
        let mut waiting: usize = self.waiting.iter().map(|block| block.bytes).sum();
        let room = self.peak - self.live;
        let mut gone = 0;
        while waiting > room {
            waiting -= self.waiting[gone].bytes;
            gone += 1;
        }
        self.waiting.drain(..gone);
    }
}

/// A block that goes back to its pool.
pub struct Lent {
    block: Option<Memory>,
    pool: Arc<Pool>,
}

impl Lent {
    /// Where it lies.
    pub fn ptr(&self) -> Ptr {
        self.block.as_ref().expect("a lent block is there until it is dropped").at
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let mut shelf = self.pool.shelf();
            shelf.live -= block.bytes;
            shelf.waiting.push(block);
            shelf.shrink();
        }
    }
}

impl Storage for Lent {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A card of `room` bytes.
    struct Fake {
        room: usize,
        blocks: Mutex<Vec<(u64, usize)>>,
    }

    impl Source for Fake {
        fn alloc(&self, bytes: usize) -> Result<Option<Ptr>> {
            let mut blocks = self.blocks.lock().unwrap();
            let used: usize = blocks.iter().map(|block| block.1).sum();
            if used + bytes > self.room {
                return Ok(None);
            }
            let at = 1 + blocks.iter().map(|block| block.0).max().unwrap_or(0);
            blocks.push((at, bytes));
            Ok(Some(Ptr(at)))
        }
        fn free(&self, at: Ptr) {
            self.blocks.lock().unwrap().retain(|block| block.0 != at.0);
        }
    }

    fn pool(room: usize) -> (Arc<Fake>, Arc<Pool>) {
        let fake = Arc::new(Fake { room, blocks: Mutex::default() });
        (fake.clone(), Pool::new(fake))
    }

    fn take(pool: &Arc<Pool>, bytes: usize) -> Lent {
        pool.take(bytes).unwrap().unwrap()
    }

    #[test]
    fn a_block_is_used_again_for_the_next_tensor_of_its_size() {
        let (_, pool) = pool(1 << 20);
        let first = take(&pool, 4096).ptr();
        assert_eq!(take(&pool, 4096).ptr(), first);
    }

    #[test]
    fn waiting_blocks_never_exceed_what_tensors_have_needed() {
        let (fake, pool) = pool(1 << 20);
        let kept = take(&pool, 4000);
        drop(take(&pool, 8000));
        drop(take(&pool, 12_000));
        let (large, small) = (take(&pool, 10_000), take(&pool, 1000));
        assert_eq!(pool.peak(), 16_000);
        assert!(fake.blocks.lock().unwrap().iter().map(|block| block.1).sum::<usize>() <= 16_000);
        drop((kept, large, small));
        drop(pool);
        assert!(fake.blocks.lock().unwrap().is_empty());
    }

    #[test]
    fn what_waits_makes_room_for_weights_and_a_refusal_changes_nothing() {
        let (_, pool) = pool(10_000);
        drop(take(&pool, 8000));
        let weights = pool.keep(6000).unwrap();
        assert!(weights.is_some());
        assert!(pool.take(9000).unwrap().is_none());
        assert_eq!((pool.peak(), pool.shelf().live), (8000, 0));
        assert!(pool.take(4000).unwrap().is_some());
    }
}
