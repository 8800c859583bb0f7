//! Page-aligned memory.

use std::alloc::Layout;

use memmap2::MmapMut;

use super::element::Element;
use reseed_ops::DType;
use reseed_ops::pages;

/// Whole pages from the operating system, so that the memory it reports is the memory that tensors use.
pub struct Block {
    pages: MmapMut,
    size: usize,
}

impl Block {
    /// Whether the system resizes blocks.
    pub const RESIZES: bool = cfg!(target_os = "linux");

    /// `size` zero bytes, or `None` when the system is out of memory.
    pub fn zeroed(size: usize) -> Option<Block> {
        Some(Block { pages: pages(size)?, size })
    }

    /// The same block with another size: pages that it already has keep their contents, and the system need not clear
    /// them. `None` where the system cannot resize it.
    #[cfg(target_os = "linux")]
    pub fn resized(mut self, size: usize) -> Option<Block> {
        let options = memmap2::RemapOptions::new().may_move(true);
        // SAFETY: the mapping is anonymous, and no slice of it exists because `self` is owned here.
        unsafe { self.pages.remap(size.max(1), options) }.ok()?;
        Some(Block { size, ..self })
    }

    /// `None`: the system does not resize blocks.
    #[cfg(not(target_os = "linux"))]
    pub fn resized(self, _: usize) -> Option<Block> {
        None
    }

    /// Number of bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.pages[..self.size]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.pages[..self.size]
    }
}

/// Aligned f32 values that do not belong to a tensor: temporary panels and scratch.
pub struct Floats(Block);

impl Floats {
    /// Zeros. Aborts when the system is out of memory, as the collections of the standard library do.
    pub fn zeros(count: usize) -> Floats {
        Floats(block_of(count, DType::F32))
    }

    /// The first `count` values. Grows the buffer where it is shorter, which loses its values.
    pub fn at_least(&mut self, count: usize) -> &mut [f32] {
        if self.len() < count {
            *self = Floats::zeros(count);
        }
        &mut self[..count]
    }
}

impl std::ops::Deref for Floats {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(self.0.bytes())
    }
}

impl std::ops::DerefMut for Floats {
    fn deref_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(self.0.bytes_mut())
    }
}

/// Aligned values of any element type that do not belong to a tensor: packed weights and scratch.
pub struct Values {
    block: Block,
    dtype: DType,
}

impl Values {
    /// Zeros. Aborts when the system is out of memory, as the collections of the standard library do.
    pub fn zeros(count: usize, dtype: DType) -> Values {
        Values { block: block_of(count, dtype), dtype }
    }

    /// The first `count` values. Grows the buffer where it is shorter, which loses its values.
    pub fn at_least<E: Element>(&mut self, count: usize) -> &mut [E] {
        if self.elements::<E>().len() < count {
            *self = Values::zeros(count, self.dtype);
        }
        &mut self.elements_mut()[..count]
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The values. Panics where `E` is not the element type.
    pub fn elements<E: Element>(&self) -> &[E] {
        assert_eq!(self.dtype, E::DTYPE, "element type of a buffer");
        bytemuck::cast_slice(self.block.bytes())
    }

    /// The values, to be written. Panics where `E` is not the element type.
    pub fn elements_mut<E: Element>(&mut self) -> &mut [E] {
        assert_eq!(self.dtype, E::DTYPE, "element type of a buffer");
        bytemuck::cast_slice_mut(self.block.bytes_mut())
    }

    /// The values where their type is f32.
    pub fn floats(&self) -> Option<&[f32]> {
        (self.dtype == DType::F32).then(|| self.elements())
    }
}

impl From<Floats> for Values {
    fn from(floats: Floats) -> Values {
        Values { block: floats.0, dtype: DType::F32 }
    }
}

/// Bytes that an allocator never takes from its heap.
const LARGE_REQUEST: usize = 64 << 20;

fn block_of(count: usize, dtype: DType) -> Block {
    let bytes = count.checked_mul(dtype.bytes()).and_then(|bytes| Layout::array::<u8>(bytes).ok());
    let layout = bytes.expect("the size fits the address space");
    // The program's allocator decides what happens when the memory is exhausted. It may find a free block of the heap,
    // or memory that another thread has just returned; a large request needs new pages as `Block` does.
    let retry = || {
        [0, LARGE_REQUEST].iter().find_map(|more| {
            drop(std::hint::black_box(Vec::<u8>::with_capacity(layout.size() + more)));
            Block::zeroed(layout.size())
        })
    };
    Block::zeroed(layout.size()).or_else(retry).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}
