//! Host memory of the CPU device: used again from op to op, refused with an error instead of an abort.

use std::alloc::Layout;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};

use bytemuck::Pod;
use half::{bf16, f16};
use memmap2::MmapMut;

use reseed_ops::pages;
use reseed_ops::{DType, Shape};
use reseed_ops::{Error, Result};
use reseed_ops::{Storage, Tensor};

/// Whole pages straight from the system, so that what it reports is what tensors take.
struct Block {
    pages: MmapMut,
    bytes: usize,
}

impl Block {
    /// Zeros, or `None` when the system has no room.
    fn zeroed(bytes: usize) -> Option<Block> {
        let pages = pages(bytes)?;
        Some(Block { pages, bytes })
    }

    fn bytes(&self) -> &[u8] {
        &self.pages[..self.bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.pages[..self.bytes]
    }
}

/// Blocks that tensors have given back. Fresh pages cost the system more than a norm costs us, so a block waits here for
/// the next tensor of its size; but tensors and waiting blocks together never exceed what tensors alone have needed at
/// some time, so that waiting costs no memory.
#[derive(Default)]
pub struct Pool(Mutex<FreeList>);

#[derive(Default)]
struct FreeList {
    waiting: Vec<Block>,
    live: usize,
    peak: usize,
}

impl Pool {
    fn shelf(&self) -> MutexGuard<'_, FreeList> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Memory with anything in it.
    fn take(self: &Arc<Self>, bytes: usize) -> Option<PooledBuffer> {
        let mut shelf = self.shelf();
        shelf.live += bytes;
        shelf.peak = shelf.peak.max(shelf.live);
        let found = shelf.waiting.iter().rposition(|block| block.bytes == bytes);
        let found = found.map(|i| shelf.waiting.remove(i));
        shelf.shrink();
        drop(shelf);
        let Some(block) = found.or_else(|| Block::zeroed(bytes)) else {
            self.shelf().live -= bytes;
            return None;
        };
        Some(PooledBuffer { block: Some(block), pool: self.clone() })
    }
}

impl FreeList {
    /// Gives the longest waiting blocks back to the system until the promise holds.
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
struct PooledBuffer {
    block: Option<Block>,
    pool: Arc<Pool>,
}

impl PooledBuffer {
    fn block(&self) -> &Block {
        self.block.as_ref().expect("a lent block is there until it is dropped")
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let mut shelf = self.pool.shelf();
            shelf.live -= block.bytes;
            shelf.waiting.push(block);
            shelf.shrink();
        }
    }
}

impl Storage for PooledBuffer {
    fn bytes(&self) -> usize {
        self.block().bytes
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// An element type that activations are stored in.
pub trait Element: Pod + Send + Sync {
    /// Its name in the contract.
    const DTYPE: DType;
    /// Exact.
    fn to_f32(self) -> f32;
    /// Rounds to nearest, ties to even.
    fn from_f32(value: f32) -> Self;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }
}

impl Element for f16 {
    const DTYPE: DType = DType::F16;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
    #[inline(always)]
    fn from_f32(value: f32) -> f16 {
        f16::from_f32(value)
    }
}

impl Element for bf16 {
    const DTYPE: DType = DType::Bf16;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn from_f32(value: f32) -> bf16 {
        // Branch-free except for NaN, so that loops over it vectorise.
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
        let quiet = (bits >> 16) | 0x40;
        bf16::from_bits(if value.is_nan() { quiet } else { rounded } as u16)
    }
}

/// Runs the body with `$e` standing for the element type of `$dtype`.
macro_rules! with_element {
    ($dtype:expr, $e:ident => $body:expr) => {
        match $dtype {
            reseed_ops::DType::F32 => {
                type $e = f32;
                $body
            }
            reseed_ops::DType::F16 => {
                type $e = half::f16;
                $body
            }
            reseed_ops::DType::Bf16 => {
                type $e = half::bf16;
                $body
            }
        }
    };
}
pub(crate) use with_element;

/// A tensor whose every element is yet to be written.
pub fn room(pool: &Arc<Pool>, op: &'static str, shape: Shape, dtype: DType) -> Result<Tensor> {
    let bytes = shape.count() * dtype.bytes();
    let refused = || Error::OutOfMemory { op, device: "cpu".into(), shape, bytes };
    Ok(Tensor::new(shape, dtype, Arc::new(pool.take(bytes).ok_or_else(refused)?)))
}

/// The elements of a CPU tensor.
pub fn elements<E: Element>(x: &Tensor) -> &[E] {
    assert_eq!(x.dtype(), E::DTYPE, "element type of {x:?}");
    &bytemuck::cast_slice(x.storage::<PooledBuffer>().block().bytes())[x.offset()..][..x.count()]
}

/// The elements of a CPU tensor that nothing else refers to.
pub fn elements_mut<E: Element>(x: &mut Tensor) -> &mut [E] {
    assert_eq!(x.dtype(), E::DTYPE, "element type of {x:?}");
    let (offset, count) = (x.offset(), x.count());
    let lent = x.storage_mut::<PooledBuffer>().expect("a tensor that is written has one owner");
    let block = lent.block.as_mut().expect("a lent block is there until it is dropped");
    &mut bytemuck::cast_slice_mut(block.bytes_mut())[offset..][..count]
}

/// A tensor with these values.
pub fn upload(pool: &Arc<Pool>, shape: Shape, dtype: DType, values: &[f32]) -> Result<Tensor> {
    assert_eq!(shape.count(), values.len(), "upload of {shape}");
    let mut x = room(pool, "upload", shape, dtype)?;
    with_element!(dtype, E => {
        for (to, &from) in elements_mut::<E>(&mut x).iter_mut().zip(values) {
            *to = E::from_f32(from);
        }
    });
    Ok(x)
}

/// The values of a tensor.
pub fn download(x: &Tensor) -> Vec<f32> {
    with_element!(x.dtype(), E => elements::<E>(x).iter().map(|v| v.to_f32()).collect())
}

/// `x` itself when its memory may be overwritten, else a copy.
pub fn writable(pool: &Arc<Pool>, op: &'static str, mut x: Tensor) -> Result<Tensor> {
    if x.is_unique() {
        return Ok(x);
    }
    let mut copy = room(pool, op, x.shape(), x.dtype())?;
    with_element!(x.dtype(), E => elements_mut::<E>(&mut copy).copy_from_slice(elements::<E>(&x)));
    Ok(copy)
}

/// Aligned floats that do not belong to a tensor: panels of a run and scratch.
pub struct Floats(Block);

impl Floats {
    /// Zeros; aborts like any collection when there is no memory.
    pub fn zeros(count: usize) -> Floats {
        Floats(block_of(count, DType::F32))
    }

    /// Makes room for `count` floats; what they hold is left open.
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

/// Aligned values of any type that do not belong to a tensor: packed weights.
pub struct Values {
    block: Block,
    dtype: DType,
}

impl Values {
    /// Zeros; aborts like any collection when there is no memory.
    pub fn zeros(count: usize, dtype: DType) -> Values {
        Values { block: block_of(count, dtype), dtype }
    }

    /// Makes room for `count` values of their type; what they hold is left open.
    pub fn at_least<E: Element>(&mut self, count: usize) -> &mut [E] {
        if self.elements::<E>().len() < count {
            *self = Values::zeros(count, self.dtype);
        }
        &mut self.elements_mut()[..count]
    }

    /// Their type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The values, of their own type.
    pub fn elements<E: Element>(&self) -> &[E] {
        assert_eq!(self.dtype, E::DTYPE, "type of packed weights");
        bytemuck::cast_slice(self.block.bytes())
    }

    /// The values, to be written.
    pub fn elements_mut<E: Element>(&mut self) -> &mut [E] {
        assert_eq!(self.dtype, E::DTYPE, "type of packed weights");
        bytemuck::cast_slice_mut(self.block.bytes_mut())
    }

    /// The values, if they are floats.
    pub fn floats(&self) -> Option<&[f32]> {
        (self.dtype == DType::F32).then(|| self.elements())
    }
}

impl From<Floats> for Values {
    fn from(floats: Floats) -> Values {
        Values { block: floats.0, dtype: DType::F32 }
    }
}

fn block_of(count: usize, dtype: DType) -> Block {
    let bytes = count.checked_mul(dtype.bytes()).and_then(|bytes| Layout::array::<u8>(bytes).ok());
    let layout = bytes.expect("a size that fits the address space");
    Block::zeroed(layout.size()).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(pool: &Arc<Pool>, bytes: usize) -> Tensor {
        room(pool, "test", Shape::from([bytes / 4]), DType::F32).unwrap()
    }

    #[test]
    fn a_block_is_used_again_for_the_next_tensor_of_its_size() {
        let pool = Arc::new(Pool::default());
        let first = elements::<f32>(&tensor(&pool, 4096)).as_ptr();
        assert_eq!(elements::<f32>(&tensor(&pool, 4096)).as_ptr(), first);
    }

    #[test]
    fn waiting_blocks_never_exceed_what_tensors_have_needed() {
        let pool = Arc::new(Pool::default());
        let kept = tensor(&pool, 4000);
        drop(tensor(&pool, 8000));
        drop(tensor(&pool, 12_000));
        let (large, small) = (tensor(&pool, 10_000), tensor(&pool, 1000));
        let shelf = pool.shelf();
        let waiting: usize = shelf.waiting.iter().map(|b| b.bytes).sum();
        assert_eq!((shelf.live, shelf.peak), (15_000, 16_000));
        assert!(shelf.live + waiting <= shelf.peak);
        drop(shelf);
        drop((kept, large, small));
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let pool = Arc::new(Pool::default());
        let error = room(&pool, "conv", Shape::from([1 << 45]), DType::F32).unwrap_err().to_string();
        assert!(error.starts_with("cpu: conv needs 134217728 MiB for [35184372088832]"), "{error}");
        assert_eq!(pool.shelf().live, 0);
    }
}
