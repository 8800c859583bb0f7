//! The results of the last batches.

use std::collections::VecDeque;
use std::ops::Range;

/// Keeps the frames of the batches that were used last.
pub struct BatchCache<F> {
    /// Batches that are kept.
    limit: usize,
    /// Ranges of frames, the one used last at the end.
    batches: VecDeque<(Range<usize>, Vec<F>)>,
}

impl<F: Clone> BatchCache<F> {
    /// A cache of so many batches.
    pub fn new(limit: usize) -> BatchCache<F> {
        BatchCache { limit, batches: VecDeque::new() }
    }

    /// A frame, if its batch is kept.
    pub fn get(&mut self, n: usize) -> Option<F> {
        let at = self.batches.iter().position(|(range, _)| range.contains(&n))?;
        let (range, frames) = self.batches.remove(at)?;
        let frame = frames[n - range.start].clone();
        self.batches.push_back((range, frames));
        Some(frame)
    }

    /// Adds the frames of a batch, and drops the batch that was not used for longest where there are too many.
    pub fn put(&mut self, range: Range<usize>, frames: Vec<F>) {
        self.batches.push_back((range, frames));
        while self.batches.len() > self.limit {
            self.batches.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_that_was_not_used_for_longest_is_dropped() {
        let mut cache = BatchCache::new(2);
        cache.put(0..2, vec!['a', 'b']);
        cache.put(2..3, vec!['c']);
        assert_eq!([cache.get(1), cache.get(3)], [Some('b'), None]);
        cache.put(3..5, vec!['d', 'e']);
        assert_eq!([cache.get(2), cache.get(0), cache.get(4)], [None, Some('a'), Some('e')]);
    }
}
