//! Memory of pictures and frames that are done with, for the next ones: the system would give out and clear the same pages
//! for every slice anew.

use std::sync::{Mutex, MutexGuard, PoisonError};

use reseed_media::{Depth, Samples};

/// Most buffers that wait: those of a batch of a common size, and of slices on their way.
const MOST: usize = 16;

/// Buffers that nobody uses.
pub struct Pool<T>(Mutex<Vec<T>>);

impl<T> Default for Pool<T> {
    fn default() -> Pool<T> {
        Pool(Mutex::default())
    }
}

impl<T> Pool<T> {
    /// A buffer that is done with.
    pub fn give(&self, buffer: T) {
        let mut idle = self.lock();
        if idle.len() < MOST {
            idle.push(buffer);
        }
    }

    /// Of the smallest buffers the one that came last, and may still be in a cache. Those without a size do not serve.
    fn smallest(&self, size: impl Fn(&T) -> Option<usize>) -> Option<T> {
        let mut idle = self.lock();
        let sizes = idle.iter().enumerate().rev().filter_map(|(i, buffer)| Some((size(buffer)?, i)));
        let (_, i) = sizes.min_by_key(|(size, _)| *size)?;
        Some(idle.remove(i))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool<Vec<f32>> {
    /// So many values, whatever they are: the smallest buffer that holds them, unless it is far too large, or a new one.
    pub fn take(&self, values: usize) -> Vec<f32> {
        let fits = |capacity: &usize| (values..=2 * values).contains(capacity);
        match self.smallest(|buffer| Some(buffer.capacity()).filter(fits)) {
            Some(mut buffer) => {
                buffer.resize(values, 0.0);
                buffer
            }
            None => vec![0.0; values],
        }
    }
}

impl Pool<Samples> {
    /// So many samples of this depth, whatever they are, if there are any.
    pub fn find(&self, depth: Depth, count: usize) -> Option<Samples> {
        self.smallest(|samples| (samples.depth() == depth && samples.len() == count).then_some(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_are_bounded() {
        let pool = Pool::<Vec<f32>>::default();
        let (small, large) = (pool.take(10), pool.take(1000));
        let (at_small, at_large) = (small.as_ptr(), large.as_ptr());
        pool.give(large);
        pool.give(small);
        let (again, more) = (pool.take(8), pool.take(900));
        assert_eq!((again.as_ptr(), again.len()), (at_small, 8));
        assert_eq!((more.as_ptr(), more.len()), (at_large, 900));
        (0..100).for_each(|_| pool.give(vec![0.0; 4]));
        assert_eq!(pool.lock().len(), MOST);
    }

    #[test]
    fn samples_come_back_in_their_depth_and_number() {
        let pool = Pool::<Samples>::default();
        pool.give(Samples::black(Depth::Eight, 6));
        pool.give(Samples::black(Depth::Sixteen, 6));
        assert_eq!(pool.find(Depth::Eight, 5), None);
        assert_eq!(pool.find(Depth::Sixteen, 6), Some(Samples::black(Depth::Sixteen, 6)));
        assert_eq!(pool.find(Depth::Sixteen, 6), None);
    }
}
