//! Memory of pictures that are done with, for the next ones: the system would give out and clear the same pages for every
//! slice anew.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Buffers that nobody uses.
#[derive(Default)]
pub struct Pool(Mutex<Vec<Vec<f32>>>);

impl Pool {
    /// Most buffers that wait: those of a batch of a common size, and of slices on their way.
    const MOST: usize = 16;

    /// So many values, whatever they are: the smallest buffer that holds them, unless it is far too large, or a new one.
    pub fn take(&self, values: usize) -> Vec<f32> {
        let mut idle = self.lock();
        let fits = |buffer: &Vec<f32>| (values..=2 * values).contains(&buffer.capacity());
        let fitting = idle.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        let smallest = fitting.min_by_key(|(_, buffer)| buffer.capacity()).map(|(i, _)| i);
        let buffer = smallest.map(|i| idle.swap_remove(i));
        drop(idle);
        match buffer {
            Some(mut buffer) => {
                buffer.resize(values, 0.0);
                buffer
            }
            None => vec![0.0; values],
        }
    }

    /// A buffer that is done with.
    pub fn give(&self, buffer: Vec<f32>) {
        let mut idle = self.lock();
        if idle.len() < Pool::MOST {
            idle.push(buffer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<f32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_are_bounded() {
        let pool = Pool::default();
        let (small, large) = (pool.take(10), pool.take(1000));
        let (at_small, at_large) = (small.as_ptr(), large.as_ptr());
        pool.give(large);
        pool.give(small);
        let (again, more) = (pool.take(8), pool.take(900));
        assert_eq!((again.as_ptr(), again.len()), (at_small, 8));
        assert_eq!((more.as_ptr(), more.len()), (at_large, 900));
        (0..100).for_each(|_| pool.give(vec![0.0; 4]));
        assert_eq!(pool.lock().len(), Pool::MOST);
    }
}
