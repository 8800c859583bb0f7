//! The tensors of the CPU device. Their memory is reused from op to op. An allocation that fails is an error, not an
//! abort.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};

use super::buffer::Block;
use super::element::{Element, with_element};
use reseed_ops::{DType, Error, Result, Shape, Storage, Tensor};

/// Least bytes of a block that is resized for another tensor. Smaller ones are mapped as fast.
const RESIZED: usize = 1 << 20;
/// Free blocks are cut to a multiple of this.
const PAGE: usize = 4096;
/// Most ratio between the old and the new size of a block.
const MOST_RATIO: usize = 4;

/// Blocks of dropped tensors, for reuse. Mapping fresh pages takes longer than a norm, so a free block is kept for the
/// next tensor of its size, or resized for one of a similar size. Live tensors and free blocks together never exceed
/// the peak of the live tensors, so that the pool does not raise the peak.
#[derive(Default)]
pub struct Pool(Mutex<FreeList>);

#[derive(Default)]
struct FreeList {
    blocks: Vec<Block>,
    live: usize,
    peak: usize,
}

impl Pool {
    fn free_list(&self) -> MutexGuard<'_, FreeList> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Memory with unspecified contents, or `None` when the system is out of memory.
    fn take(self: &Arc<Self>, bytes: usize) -> Option<PooledBuffer> {
        let mut free = self.free_list();
        free.live += bytes;
        free.peak = free.peak.max(free.live);
        let found = free.remove_nearest(bytes);
        free.shrink();
        drop(free);
        let found = found.and_then(|block| if block.size() == bytes { Some(block) } else { block.resized(bytes) });
        let Some(block) = found.or_else(|| Block::zeroed(bytes)) else {
            self.free_list().live -= bytes;
            return None;
        };
        Some(PooledBuffer { block: Some(block), pool: self.clone() })
    }
}

impl FreeList {
    /// Removes the latest free block of the size, or the one of the nearest size that is worth resizing.
    fn remove_nearest(&mut self, bytes: usize) -> Option<Block> {
        let near = |size: usize| {
            let (less, more) = (size.min(bytes), size.max(bytes));
            less == more || Block::RESIZES && less >= RESIZED && more <= MOST_RATIO * less
        };
        let sizes = self.blocks.iter().map(Block::size).enumerate().rev();
        let (nearest, _) = sizes.filter(|&(_, size)| near(size)).min_by_key(|&(_, size)| size.abs_diff(bytes))?;
        Some(self.blocks.remove(nearest))
    }

    /// Unmaps the oldest free blocks, and the end of the last of these, until the pool is within the peak.
    fn shrink(&mut self) {
        let mut total: usize = self.blocks.iter().map(|block| block.size()).sum();
        let allowed = self.peak - self.live;
        while total > allowed {
            let oldest = self.blocks.remove(0);
            let (size, excess) = (oldest.size(), total - allowed);
            total -= size;
            let left = size.saturating_sub(excess) / PAGE * PAGE;
            if Block::RESIZES && left >= RESIZED {
                let Some(block) = oldest.resized(left) else { continue };
                self.blocks.insert(0, block);
                total += left;
            }
        }
    }
}

/// A block that returns to its pool when it is dropped.
struct PooledBuffer {
    block: Option<Block>,
    pool: Arc<Pool>,
}

impl PooledBuffer {
    fn block(&self) -> &Block {
        self.block.as_ref().expect("a buffer has its block until it is dropped")
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            let mut free = self.pool.free_list();
            free.live -= block.size();
            free.blocks.push(block);
            free.shrink();
        }
    }
}

impl Storage for PooledBuffer {
    fn bytes(&self) -> usize {
        self.block().size()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A tensor with unspecified values.
pub fn allocate(pool: &Arc<Pool>, op: &'static str, shape: Shape, dtype: DType) -> Result<Tensor> {
    let bytes = shape.count() * dtype.bytes();
    let failed = || Error::OutOfMemory { op, device: "cpu".into(), shape, bytes };
    Ok(Tensor::new(shape, dtype, Arc::new(pool.take(bytes).ok_or_else(failed)?)))
}

/// The elements of a CPU tensor.
pub fn elements<E: Element>(x: &Tensor) -> &[E] {
    assert_eq!(x.dtype(), E::DTYPE, "element type of {x:?}");
    &bytemuck::cast_slice(x.storage::<PooledBuffer>().block().bytes())[x.offset()..][..x.count()]
}

/// The elements of a CPU tensor, to be written. Panics where another tensor shares its memory.
pub fn elements_mut<E: Element>(x: &mut Tensor) -> &mut [E] {
    assert_eq!(x.dtype(), E::DTYPE, "element type of {x:?}");
    let (offset, count) = (x.offset(), x.count());
    let buffer = x.storage_mut::<PooledBuffer>().expect("a tensor to be written has one owner");
    let block = buffer.block.as_mut().expect("a buffer has its block until it is dropped");
    &mut bytemuck::cast_slice_mut(block.bytes_mut())[offset..][..count]
}

/// A tensor with these values.
pub fn upload(pool: &Arc<Pool>, shape: Shape, dtype: DType, values: &[f32]) -> Result<Tensor> {
    assert_eq!(shape.count(), values.len(), "upload of {shape}");
    let mut x = allocate(pool, "upload", shape, dtype)?;
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

/// `x` itself where nothing else shares its memory, otherwise a copy.
pub fn writable(pool: &Arc<Pool>, op: &'static str, mut x: Tensor) -> Result<Tensor> {
    if x.is_unique() {
        return Ok(x);
    }
    let mut copy = allocate(pool, op, x.shape(), x.dtype())?;
    with_element!(x.dtype(), E => elements_mut::<E>(&mut copy).copy_from_slice(elements::<E>(&x)));
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(pool: &Arc<Pool>, bytes: usize) -> Tensor {
        allocate(pool, "test", Shape::from([bytes / 4]), DType::F32).unwrap()
    }

    #[test]
    fn a_block_is_reused_for_the_next_tensor_of_its_size() {
        let pool = Arc::new(Pool::default());
        let first = elements::<f32>(&tensor(&pool, 4096)).as_ptr();
        assert_eq!(elements::<f32>(&tensor(&pool, 4096)).as_ptr(), first);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_block_is_resized_for_a_tensor_of_a_similar_size() {
        let pool = Arc::new(Pool::default());
        let mut first = tensor(&pool, 4 * RESIZED);
        elements_mut::<f32>(&mut first).fill(3.0);
        drop(first);
        for bytes in [2 * RESIZED, 3 * RESIZED + 4096] {
            let other = tensor(&pool, bytes);
            let values = elements::<f32>(&other);
            assert_eq!((values.len(), values[0]), (bytes / 4, 3.0), "contents show that the pages are the same");
            assert_eq!(pool.free_list().live, bytes);
        }
        assert_eq!(elements::<f32>(&tensor(&pool, 32 * RESIZED))[0], 0.0, "too large for it");
    }

    #[test]
    fn free_blocks_never_raise_the_peak_of_the_tensors() {
        let pool = Arc::new(Pool::default());
        let live = tensor(&pool, 4000);
        drop(tensor(&pool, 8000));
        drop(tensor(&pool, 12_000));
        let (large, small) = (tensor(&pool, 10_000), tensor(&pool, 1000));
        let free = pool.free_list();
        let unused: usize = free.blocks.iter().map(|b| b.size()).sum();
        assert_eq!((free.live, free.peak), (15_000, 16_000));
        assert!(free.live + unused <= free.peak);
        drop(free);
        drop((live, large, small));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn free_blocks_are_unmapped_only_as_far_as_the_peak_requires() {
        let pool = Arc::new(Pool::default());
        drop(tensor(&pool, 8 * RESIZED));
        let small = tensor(&pool, RESIZED / 2);
        let sizes = |pool: &Pool| pool.free_list().blocks.iter().map(Block::size).collect::<Vec<_>>();
        assert_eq!(sizes(&pool), [8 * RESIZED - RESIZED / 2]);
        drop(small);
        assert_eq!(sizes(&pool), [8 * RESIZED - RESIZED / 2, RESIZED / 2]);
    }

    #[test]
    fn an_allocation_that_fails_is_an_error() {
        let pool = Arc::new(Pool::default());
        let error = allocate(&pool, "conv", Shape::from([1 << 45]), DType::F32).unwrap_err().to_string();
        assert!(error.starts_with("cpu: out of memory: conv needs 134217728 MiB for [35184372088832]"), "{error}");
        assert_eq!(pool.free_list().live, 0);
    }
}
