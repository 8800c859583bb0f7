//! Device memory: one piece that tensors share, used again from op to op, and what weights take beside it.

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reseed_ops::{Arena, Result, Storage};

use crate::copies::Copies;
use crate::driver::{Driver, Ptr};
use crate::event::{Event, Lane};
use crate::pinned::{Pinned, Pins};

/// What is taken from the driver at the least where nothing was reserved.
const CHUNK: usize = 64 << 20;

/// One in so many of the bytes that may be taken makes a part a wide one: a frame or two of a layer next to the pictures, where
/// memory is short.
const WIDE: usize = 16;

/// Memory that goes back to the driver.
pub struct Memory {
    at: Ptr,
    bytes: usize,
    store: Arc<Store>,
}

impl Memory {
    /// Where it lies.
    pub fn ptr(&self) -> Ptr {
        self.at
    }

    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.store.shelf().weights -= self.bytes;
        self.store.driver.free(self.at);
    }
}

/// All memory of one card that is ours. A part may be lent while kernels of its last owner are still queued: those of the
/// next one come behind them.
pub struct Store {
    pub driver: Arc<Driver>,
    pub pins: Pins,
    pub copies: Copies,
    /// Bytes of the card that may be taken, where somebody has said.
    pub limit: Option<usize>,
    /// Parts of at least so many bytes lie at the end of a chunk.
    pub wide: usize,
    shelf: Mutex<BufferPool>,
}

#[derive(Default)]
struct BufferPool {
    chunks: Vec<Chunk>,
    weights: usize,
    peak: usize,
}

/// A piece of memory that tensors share.
struct Chunk {
    at: Ptr,
    bytes: usize,
    arena: Arena,
    /// Parts that were given back while a copy still used them.
    busy: Vec<(Range<usize>, Arc<Event>)>,
}

impl Store {
    /// Nothing taken yet.
    pub fn new(driver: Arc<Driver>, limit: Option<usize>) -> Arc<Store> {
        let (pins, copies, shelf) = Default::default();
        let wide = limit.unwrap_or(driver.info.memory) / WIDE;
        Arc::new(Store { driver, pins, copies, limit, wide, shelf })
    }

    fn shelf(&self) -> MutexGuard<'_, BufferPool> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes taken from the driver for tensors, and those for weights.
    pub fn taken(&self) -> (usize, usize) {
        let shelf = self.shelf();
        (shelf.tensors(), shelf.weights)
    }

    /// Most bytes that have been taken from the driver at once.
    pub fn peak(&self) -> usize {
        self.shelf().peak
    }

    /// Makes one piece of `bytes` bytes ready for tensors, in place of what waits; `false` when there is not that much.
    pub fn reserve(&self, bytes: usize) -> Result<bool> {
        self.driver.synchronize()?;
        let mut shelf = self.shelf();
        if shelf.chunks.iter().any(|chunk| chunk.bytes == bytes) {
            return Ok(true);
        }
        for chunk in shelf.chunks.extract_if(.., |chunk| chunk.arena.is_empty()) {
            chunk.busy.iter().try_for_each(|(_, copy)| copy.wait())?;
            self.driver.free(chunk.at);
        }
        shelf.grow(self, bytes)
    }

    /// Memory for a tensor, with anything in it, that `lane` writes first; `None` when there is not that much.
    pub fn take(self: &Arc<Self>, bytes: usize, lane: Lane) -> Result<Option<ArenaBuffer>> {
        let mut shelf = self.shelf();
        let found = match shelf.place(bytes) {
            Some(found) => Some(found),
            None if shelf.grow(self, Arena::size_for(bytes).next_multiple_of(CHUNK))? => shelf.place(bytes),
            None => None,
        };
        let Some((chunk, start)) = found else { return Ok(None) };
        let part = start..start + bytes;
        let chunk = &mut shelf.chunks[chunk];
        chunk.busy.retain(|(_, copy)| !copy.passed());
        let overlaps = |range: &Range<usize>| range.start < part.end && part.start < range.end;
        for (_, copy) in chunk.busy.iter().filter(|(range, _)| overlaps(range)) {
            match lane {
                Lane::Compute => self.copies.hold(&self.driver, copy)?,
                Lane::In | Lane::Out | Lane::Results => copy.hold(lane)?,
            }
        }
        let (base, at) = (chunk.at, chunk.at.plus(start));
        drop(shelf);
        Ok(Some(ArenaBuffer {
            store: self.clone(),
            base,
            at,
            bytes,
            ready: Mutex::default(),
            leaving: Mutex::default(),
        }))
    }

    /// Memory that tensors do not share, such as that of weights.
    pub fn keep(self: &Arc<Self>, bytes: usize) -> Result<Option<Memory>> {
        let Some(at) = self.driver.alloc(bytes)? else { return Ok(None) };
        let mut shelf = self.shelf();
        shelf.weights += bytes;
        shelf.note();
        drop(shelf);
        Ok(Some(Memory { at, bytes, store: self.clone() }))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // A card that fails now has nothing left that could be lost.
        let _ = self.driver.synchronize_all();
        self.pins.unpin();
        let shelf = self.shelf.get_mut().unwrap_or_else(PoisonError::into_inner);
        shelf.chunks.drain(..).for_each(|chunk| self.driver.free(chunk.at));
    }
}

impl BufferPool {
    fn tensors(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes).sum()
    }

    fn note(&mut self) {
        self.peak = self.peak.max(self.tensors() + self.weights);
    }

    fn place(&mut self, bytes: usize) -> Option<(usize, usize)> {
        let chunks = self.chunks.iter_mut().enumerate();
        chunks.into_iter().find_map(|(i, chunk)| Some((i, chunk.arena.allocate(bytes)?)))
    }

    fn grow(&mut self, store: &Store, bytes: usize) -> Result<bool> {
        let Some(at) = store.driver.alloc(bytes)? else { return Ok(false) };
        self.chunks.push(Chunk { at, bytes, arena: Arena::new(bytes, store.wide), busy: Vec::new() });
        self.note();
        Ok(true)
    }
}

/// A part that goes back to its store.
pub struct ArenaBuffer {
    store: Arc<Store>,
    base: Ptr,
    at: Ptr,
    bytes: usize,
    /// The copy that is filling it.
    ready: Mutex<Option<Arc<Event>>>,
    /// The copy that is reading it.
    leaving: Mutex<Option<Arc<Event>>>,
}

impl ArenaBuffer {
    /// Where it lies. Kernels that are queued from now on find in it what was copied there.
    pub fn ptr(&self) -> Ptr {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(copy) = ready {
            // An error now is one of the context, which the next call that can return it will meet again.
            let _ = self.store.copies.hold(&self.store.driver, &copy);
        }
        self.at
    }

    /// Says which copy reads it, so that the next owner waits for that.
    pub fn read_by(&self, copy: Arc<Event>) {
        *self.leaving.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
    }
}

impl Drop for ArenaBuffer {
    fn drop(&mut self) {
        let start = (self.at.0 - self.base.0) as usize;
        let take = |slot: &mut Mutex<Option<Arc<Event>>>| slot.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let copies = [take(&mut self.ready), take(&mut self.leaving)];
        let mut shelf = self.store.shelf();
        let chunk = shelf.chunks.iter_mut().find(|chunk| chunk.at == self.base).expect("a chunk outlives its parts");
        chunk.arena.free(start, self.bytes);
        let busy = copies.into_iter().flatten().filter(|copy| !copy.passed());
        chunk.busy.extend(busy.map(|copy| (start..start + self.bytes, copy)));
    }
}

impl Storage for ArenaBuffer {
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

impl Store {
    /// Makes `lane` wait until kernels queued so far are done and the pinned memory's last copy is.
    fn turn_of(&self, lane: Lane, pinned: &Pinned) -> Result<()> {
        Event::record(&self.driver, Lane::Compute)?.hold(lane)?;
        pinned.last().map_or(Ok(()), |copy| copy.hold(lane))
    }

    /// Queues a copy of `bytes` pinned bytes from `start` on to byte `at` of lent memory, beside the kernels. Whoever uses
    /// either next waits for it.
    pub fn bring(&self, to: &ArenaBuffer, at: usize, pinned: &Pinned, start: usize, bytes: usize) -> Result<()> {
        assert!(
            at + bytes <= to.bytes && start + bytes <= pinned.len(),
            "{bytes} bytes of {} to {}",
            pinned.len(),
            to.bytes
        );
        self.turn_of(Lane::In, pinned)?;
        let from = pinned.at().wrapping_byte_add(start);
        // SAFETY: both hold these bytes, as was just seen.
        let copy =
            self.copies.run(&self.driver, Lane::In, || unsafe { self.driver.bring(to.at.plus(at), from, bytes) })?;
        pinned.used_by(copy.clone());
        *to.ready.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
        Ok(())
    }

    /// Queues a copy of `bytes` bytes from byte `from` on to byte `at` of the same memory, behind those that brought them.
    pub fn repeat(&self, to: &ArenaBuffer, at: usize, from: usize, bytes: usize) -> Result<()> {
        assert!(from + bytes <= at && at + bytes <= to.bytes, "{bytes} bytes at {from} to {at} of {}", to.bytes);
        // SAFETY: both are in this memory and apart, as was just seen.
        unsafe { self.driver.copy(Lane::In, to.at.plus(at), to.at.plus(from), bytes) }?;
        *to.ready.lock().unwrap_or_else(PoisonError::into_inner) = Some(Event::record(&self.driver, Lane::In)?);
        Ok(())
    }

    /// Queues a copy of `bytes` bytes of device memory to pinned memory on `lane`, beside the kernels. Whoever uses that next
    /// waits for it; for whoever uses the device memory next, see [`ArenaBuffer::read_by`].
    ///
    /// # Safety
    /// `from` holds that many bytes.
    pub unsafe fn leave(self: &Arc<Self>, lane: Lane, from: Ptr, bytes: usize) -> Result<(Pinned, Arc<Event>)> {
        let pinned = Pinned::new(self, bytes)?;
        self.turn_of(lane, &pinned)?;
        // SAFETY: the caller's promise; the pinned memory was made for these bytes.
        let copy =
            self.copies.run(&self.driver, lane, || unsafe { self.driver.prefetch(lane, pinned.at(), from, bytes) })?;
        pinned.used_by(copy.clone());
        Ok((pinned, copy))
    }
}
