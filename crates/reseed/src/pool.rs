//! Pools of frame buffers for reuse. Without them, the operating system would allocate and clear the same pages for
//! every slice.

use std::sync::{Mutex, MutexGuard, PoisonError};

use reseed_media::{Depth, Samples};

/// Largest number of free buffers: enough for a batch of common size and the slices between the stages.
const MAX_FREE: usize = 16;

/// Free buffers.
pub struct FramePool<T>(Mutex<Vec<T>>);

impl<T> Default for FramePool<T> {
    fn default() -> FramePool<T> {
        FramePool(Mutex::default())
    }
}

impl<T> FramePool<T> {
    /// Returns a buffer to the pool; drops it when the pool is full.
    pub fn recycle(&self, buffer: T) {
        let mut free = self.lock();
        if free.len() < MAX_FREE {
            free.push(buffer);
        }
    }

    /// Removes the smallest suitable buffer. Among equal sizes this is the last one recycled, which may still be in the
    /// CPU cache. `size` returns `None` for unsuitable buffers.
    fn smallest(&self, size: impl Fn(&T) -> Option<usize>) -> Option<T> {
        let mut free = self.lock();
        let sizes = free.iter().enumerate().rev().filter_map(|(i, buffer)| Some((size(buffer)?, i)));
        let (_, i) = sizes.min_by_key(|(size, _)| *size)?;
        Some(free.remove(i))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FramePool<Vec<f32>> {
    /// A buffer of `values` values with unspecified contents: the smallest free one with up to twice the capacity
    /// needed, or a new one.
    pub fn take(&self, values: usize) -> Vec<f32> {
        let fits = |capacity: &usize| (values..=2 * values).contains(capacity);
        match self.smallest(|buffer| Some(buffer.capacity()).filter(fits)) {
            Some(mut buffer) => {
                buffer.resize(values, 0.0);
                buffer
            }
            None => allocated(values),
        }
    }
}

/// Zeros. Where the host has no memory for them, the stage ends with a [`HostMemory`] as the reason of its panic, and
/// the job with an error.
fn allocated(values: usize) -> Vec<f32> {
    let mut buffer = Vec::new();
    if buffer.try_reserve_exact(values).is_err() {
        let bytes = values.saturating_mul(size_of::<f32>());
        // Unlike a panic this prints nothing.
        std::panic::resume_unwind(Box::new(HostMemory { bytes }));
    }
    buffer.resize(values, 0.0);
    buffer
}

/// The reason of a panic: the host has no memory left.
pub struct HostMemory {
    pub bytes: usize,
}

impl FramePool<Samples> {
    /// A free buffer of `count` samples of this depth with unspecified contents, if the pool has one.
    pub fn find(&self, depth: Depth, count: usize) -> Option<Samples> {
        self.smallest(|samples| (samples.depth() == depth && samples.len() == count).then_some(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_does_not_fit_is_no_abort() {
        let taken = std::panic::catch_unwind(|| FramePool::<Vec<f32>>::default().take(usize::MAX / 16).len());
        assert_eq!(taken.unwrap_err().downcast::<HostMemory>().unwrap().bytes, usize::MAX / 16 * 4);
    }

    #[test]
    fn buffers_are_reused_and_the_pool_is_bounded() {
        let pool = FramePool::<Vec<f32>>::default();
        let (small, large) = (pool.take(10), pool.take(1000));
        let (at_small, at_large) = (small.as_ptr(), large.as_ptr());
        pool.recycle(large);
        pool.recycle(small);
        let (small, large) = (pool.take(8), pool.take(900));
        assert_eq!((small.as_ptr(), small.len()), (at_small, 8));
        assert_eq!((large.as_ptr(), large.len()), (at_large, 900));
        (0..100).for_each(|_| pool.recycle(vec![0.0; 4]));
        assert_eq!(pool.lock().len(), MAX_FREE);
    }

    #[test]
    fn samples_are_reused_for_the_same_depth_and_count_only() {
        let pool = FramePool::<Samples>::default();
        pool.recycle(Samples::black(Depth::Eight, 6));
        pool.recycle(Samples::black(Depth::Sixteen, 6));
        assert_eq!(pool.find(Depth::Eight, 5), None);
        assert_eq!(pool.find(Depth::Sixteen, 6), Some(Samples::black(Depth::Sixteen, 6)));
        assert_eq!(pool.find(Depth::Sixteen, 6), None);
    }
}
