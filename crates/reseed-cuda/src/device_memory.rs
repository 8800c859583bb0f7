//! Device memory: chunks that tensors share and reuse from op to op, and separate allocations for weights.

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reseed_ops::{Arena, Result, Storage};

use crate::copies::Copies;
use crate::driver::{Driver, Ptr};
use crate::pinned::{Pinned, PinnedPool};
use crate::stream::{Event, LastCopies, Pending, Stream};

/// Smallest chunk that is allocated where nothing was reserved.
const CHUNK: usize = 64 << 20;

/// Buffers of at least this fraction of the budget lie at the end of a chunk: a frame or two of a layer at full
/// resolution, where memory is short.
const WIDE: usize = 16;

/// Memory that is freed when it is dropped.
pub struct Allocation {
    at: Ptr,
    bytes: usize,
    memory: Arc<DeviceMemory>,
}

impl Allocation {
    /// Its address.
    pub fn ptr(&self) -> Ptr {
        self.at
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.memory.pool().weights -= self.bytes;
        // SAFETY: `allocate_alone` made the address, and nothing refers to it any more.
        unsafe { self.memory.driver.free(self.at) };
    }
}

/// All memory of one GPU that this program has allocated. A buffer may be reused while kernels of its last owner are
/// still queued: those of the next owner are queued after them.
pub struct DeviceMemory {
    pub driver: Arc<Driver>,
    pub pinned: PinnedPool,
    pub copies: Copies,
    /// Bytes of the GPU that this program may use, where the user has set a limit.
    pub limit: Option<usize>,
    /// Buffers of at least so many bytes lie at the end of a chunk.
    pub wide: usize,
    pool: Mutex<BufferPool>,
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
    /// Ranges that were freed while a copy still used them.
    busy: Vec<(Range<usize>, Arc<Event>)>,
}

impl DeviceMemory {
    /// Nothing allocated yet.
    pub fn new(driver: Arc<Driver>, limit: Option<usize>) -> Arc<DeviceMemory> {
        let (pinned, copies, pool) = Default::default();
        let wide = limit.unwrap_or(driver.info.memory) / WIDE;
        Arc::new(DeviceMemory { driver, pinned, copies, limit, wide, pool })
    }

    fn pool(&self) -> MutexGuard<'_, BufferPool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes allocated for tensors, and bytes allocated for weights.
    pub fn allocated(&self) -> (usize, usize) {
        let pool = self.pool();
        (pool.tensors(), pool.weights)
    }

    /// Most bytes that have been allocated at once.
    pub fn peak(&self) -> usize {
        self.pool().peak
    }

    /// Replaces free chunks by one of `bytes` bytes; `false` when there is not enough memory.
    pub fn reserve(&self, bytes: usize) -> Result<bool> {
        self.driver.synchronize()?;
        let mut pool = self.pool();
        if pool.chunks.iter().any(|chunk| chunk.bytes == bytes) {
            return Ok(true);
        }
        for chunk in pool.chunks.extract_if(.., |chunk| chunk.arena.is_empty()) {
            chunk.busy.iter().try_for_each(|(_, copy)| copy.wait())?;
            // SAFETY: `grow` made the address; kernels and copies that use it have ended.
            unsafe { self.driver.free(chunk.at) };
        }
        pool.grow(self, bytes)
    }

    /// Memory for a tensor with undefined contents, which `stream` writes first; `None` when there is not enough.
    pub fn allocate(self: &Arc<Self>, bytes: usize, stream: Stream) -> Result<Option<ArenaBuffer>> {
        let mut pool = self.pool();
        let found = match pool.place(bytes) {
            Some(found) => Some(found),
            None if pool.grow(self, Arena::size_for(bytes).next_multiple_of(CHUNK))? => pool.place(bytes),
            None => None,
        };
        let Some((chunk, start)) = found else { return Ok(None) };
        let chunk = &mut pool.chunks[chunk];
        for copy in chunk.copies_in(start..start + bytes) {
            match stream {
                Stream::Compute => self.copies.block_kernels(&self.driver, copy)?,
                _ => copy.block(stream)?,
            }
        }
        let (base, at) = (chunk.at, chunk.at.plus(start));
        drop(pool);
        let (ready, readers) = Default::default();
        Ok(Some(ArenaBuffer { memory: self.clone(), base, at, bytes, ready, readers }))
    }

    /// Memory that tensors do not share, such as that of weights.
    pub fn allocate_alone(self: &Arc<Self>, bytes: usize) -> Result<Option<Allocation>> {
        let Some(at) = self.driver.alloc(bytes)? else { return Ok(None) };
        let mut pool = self.pool();
        pool.weights += bytes;
        pool.update_peak();
        drop(pool);
        Ok(Some(Allocation { at, bytes, memory: self.clone() }))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // A GPU that fails now has no results left to lose.
        let _ = self.driver.synchronize_all();
        self.pinned.unpin();
        let pool = self.pool.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `grow` made the addresses; every buffer holds this value, so that none is left.
        pool.chunks.drain(..).for_each(|chunk| unsafe { self.driver.free(chunk.at) });
    }
}

impl Chunk {
    /// Copies that still use a range.
    fn copies_in(&mut self, range: Range<usize>) -> impl Iterator<Item = &Arc<Event>> {
        self.busy.retain(|(_, copy)| !copy.is_reached());
        let overlaps = move |other: &Range<usize>| other.start < range.end && range.start < other.end;
        self.busy.iter().filter(move |(other, _)| overlaps(other)).map(|(_, copy)| copy)
    }
}

impl BufferPool {
    fn tensors(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes).sum()
    }

    fn update_peak(&mut self) {
        self.peak = self.peak.max(self.tensors() + self.weights);
    }

    fn place(&mut self, bytes: usize) -> Option<(usize, usize)> {
        let chunks = self.chunks.iter_mut().enumerate();
        chunks.into_iter().find_map(|(i, chunk)| Some((i, chunk.arena.allocate(bytes)?)))
    }

    fn grow(&mut self, memory: &DeviceMemory, bytes: usize) -> Result<bool> {
        let Some(at) = memory.driver.alloc(bytes)? else { return Ok(false) };
        self.chunks.push(Chunk { at, bytes, arena: Arena::new(bytes, memory.wide), busy: Vec::new() });
        self.update_peak();
        Ok(true)
    }
}

/// A part of a chunk, which returns to its arena when it is dropped.
pub struct ArenaBuffer {
    memory: Arc<DeviceMemory>,
    base: Ptr,
    at: Ptr,
    bytes: usize,
    /// The last copy that writes to it, until kernels wait for it.
    ready: Pending<Arc<Event>>,
    /// Copies that read it.
    readers: LastCopies,
}

impl ArenaBuffer {
    /// Its address. Kernels that are queued from now on wait for the copies that write to it.
    pub fn ptr(&self) -> Ptr {
        // An error here is one of the context, which the next call that returns errors reports.
        self.ready.settle(|copy| drop(self.memory.copies.block_kernels(&self.memory.driver, &copy)));
        self.at
    }

    /// Adds a copy that reads it. The next owner of the memory waits for all of them.
    pub fn read_by(&self, copy: Arc<Event>) {
        self.readers.add(copy);
    }

    /// Makes kernels that are queued from now on wait for the copies that read it, so that they may overwrite it.
    pub fn wait_for_readers(&self) -> Result<()> {
        self.readers.take().try_for_each(|copy| self.memory.copies.block_kernels(&self.memory.driver, &copy))
    }

    fn written_by(&self, copy: Arc<Event>) {
        self.ready.set(copy);
    }
}

impl Drop for ArenaBuffer {
    fn drop(&mut self) {
        let start = (self.at.0 - self.base.0) as usize;
        let copies = self.ready.take().into_iter().chain(self.readers.take());
        let mut pool = self.memory.pool();
        let chunk = pool.chunks.iter_mut().find(|chunk| chunk.at == self.base).expect("a chunk outlives its buffers");
        chunk.arena.free(start, self.bytes);
        let busy = copies.filter(|copy| !copy.is_reached());
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

/// Copies between pinned memory and buffers, which overlap with kernels.
impl DeviceMemory {
    /// Makes `stream` wait for the kernels queued so far and for the last copy that uses the pinned memory.
    fn order_after(&self, stream: Stream, pinned: &Pinned) -> Result<()> {
        Event::record(&self.driver, Stream::Compute)?.block(stream)?;
        pinned.last().map_or(Ok(()), |copy| copy.block(stream))
    }

    /// Queues a copy of `bytes` pinned bytes from `start` on to byte `at` of a buffer. Later users of both wait for it.
    pub fn upload(&self, to: &ArenaBuffer, at: usize, pinned: &Pinned, start: usize, bytes: usize) -> Result<()> {
        let (size, length) = (to.bytes, pinned.len());
        assert!(at + bytes <= size && start + bytes <= length, "upload of {bytes} bytes: {length} to {size}");
        self.order_after(Stream::Upload, pinned)?;
        let from = pinned.as_ptr().wrapping_byte_add(start);
        // SAFETY: both hold these bytes, as the assertion has checked; `used_by` keeps the pinned bytes unchanged.
        let queue = || unsafe { self.driver.upload(Stream::Upload, to.at.plus(at), from, bytes) };
        let copy = self.copies.run(&self.driver, Stream::Upload, queue)?;
        pinned.used_by(copy.clone());
        to.written_by(copy);
        Ok(())
    }

    /// Queues a copy of `bytes` bytes from byte `from` on to byte `at` of a buffer, after the uploads of them.
    pub fn copy_within(&self, to: &ArenaBuffer, at: usize, from: usize, bytes: usize) -> Result<()> {
        assert!(from + bytes <= at && at + bytes <= to.bytes, "{bytes} bytes at {from} to {at} of {}", to.bytes);
        // SAFETY: both ranges are in this buffer and disjoint, as the assertion has checked.
        unsafe { self.driver.copy(Stream::Upload, to.at.plus(at), to.at.plus(from), bytes) }?;
        to.written_by(Event::record(&self.driver, Stream::Upload)?);
        Ok(())
    }

    /// Queues a copy of `bytes` bytes of device memory to pinned memory on `stream`. The next user of the pinned memory
    /// waits for it. The caller passes the copy to [`ArenaBuffer::read_by`].
    ///
    /// # Safety
    /// `from` holds `bytes` bytes until the copy has ended.
    pub unsafe fn download(self: &Arc<Self>, stream: Stream, from: Ptr, bytes: usize) -> Result<(Pinned, Arc<Event>)> {
        let pinned = Pinned::new(self, bytes)?;
        self.order_after(stream, &pinned)?;
        // SAFETY: the caller's promise; the pinned memory was allocated for these bytes, and `used_by` protects it.
        let queue = || unsafe { self.driver.download(stream, pinned.as_ptr(), from, bytes) };
        let copy = self.copies.run(&self.driver, stream, queue)?;
        pinned.used_by(copy.clone());
        Ok((pinned, copy))
    }
}
