//! Places of tensors in one piece of memory, as integers. The device that hands them out and the one that only plans run
//! the same code, so that a plan's peak is the run's.

use std::collections::BTreeMap;

/// Places start on multiples of this: what copying units and wide loads want.
const ALIGN: usize = 512;

/// Parts of at most this size have a region of their own, so that they do not break the holes of large ones.
const SMALL: usize = 64 << 10;
const SMALL_REGION: usize = 8 << 20;

/// One piece of memory, of which parts are taken and given back.
#[derive(Debug, Default)]
pub struct Arena {
    small: Region,
    large: Region,
}

impl Arena {
    /// Bytes of a piece of memory that has room for a part of `bytes`.
    pub fn around(bytes: usize) -> usize {
        SMALL_REGION + bytes.next_multiple_of(ALIGN)
    }

    /// Bytes that have been needed so far.
    pub fn high(&self) -> usize {
        SMALL_REGION + self.large.high
    }

    /// Whether nothing is taken.
    pub fn is_empty(&self) -> bool {
        self.small.top == 0 && self.large.top == 0
    }

    /// A place for `bytes` bytes that ends at or before `capacity`.
    pub fn take(&mut self, bytes: usize, capacity: usize) -> Option<usize> {
        let small = if bytes <= SMALL { self.small.take(bytes, SMALL_REGION.min(capacity)) } else { None };
        small.or_else(|| Some(SMALL_REGION + self.large.take(bytes, capacity.checked_sub(SMALL_REGION)?)?))
    }

    /// Gives back what `take` returned for as many bytes.
    pub fn give(&mut self, start: usize, bytes: usize) {
        match start.checked_sub(SMALL_REGION) {
            Some(start) => self.large.give(start, bytes),
            None => self.small.give(start, bytes),
        }
    }
}

/// Part of a piece of memory.
#[derive(Debug, Default)]
struct Region {
    /// Holes between parts: start and end.
    holes: BTreeMap<usize, usize>,
    /// All behind this is free.
    top: usize,
    high: usize,
}

impl Region {
    /// A place for `bytes` bytes that ends at or before `capacity`: the smallest hole that holds them, else behind all.
    fn take(&mut self, bytes: usize, capacity: usize) -> Option<usize> {
        let bytes = bytes.max(1).next_multiple_of(ALIGN);
        let fits = |(&start, &end): (&usize, &usize)| (end - start >= bytes).then_some((end - start, start, end));
        if let Some((_, start, end)) = self.holes.iter().filter_map(fits).min() {
            self.holes.remove(&start);
            if end - start > bytes {
                self.holes.insert(start + bytes, end);
            }
            return Some(start);
        }
        let start = self.top;
        let end = start.checked_add(bytes).filter(|&end| end <= capacity)?;
        (self.top, self.high) = (end, self.high.max(end));
        Some(start)
    }

    /// Gives back what `take` returned for as many bytes.
    fn give(&mut self, start: usize, bytes: usize) {
        let (mut start, mut end) = (start, start + bytes.max(1).next_multiple_of(ALIGN));
        if let Some((&before, &its_end)) = self.holes.range(..start).next_back()
            && its_end == start
        {
            self.holes.remove(&before);
            start = before;
        }
        if let Some(its_end) = self.holes.remove(&end) {
            end = its_end;
        }
        match end == self.top {
            true => self.top = start,
            false => drop(self.holes.insert(start, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = usize::MAX;

    #[test]
    fn the_smallest_hole_that_fits_is_taken() {
        let mut arena = Region::default();
        let [a, b, c, d] = [2048, 512, 1024, 512].map(|bytes| arena.take(bytes, ALL).unwrap());
        assert_eq!([a, b, c, d], [0, 2048, 2560, 3584]);
        arena.give(a, 2048);
        arena.give(c, 1024);
        assert_eq!(arena.take(700, ALL), Some(c));
        assert_eq!(arena.take(2000, ALL), Some(a));
        assert_eq!(arena.high, 4096);
    }

    #[test]
    fn a_piece_around_a_part_has_room_for_it() {
        for bytes in [1, SMALL, SMALL + 1, 317 << 20] {
            assert!(Arena::default().take(bytes, Arena::around(bytes)).is_some(), "{bytes}");
        }
    }

    #[test]
    fn neighbouring_holes_become_one_and_the_top_sinks() {
        let mut arena = Region::default();
        let parts = [600, 600, 600].map(|bytes| arena.take(bytes, ALL).unwrap());
        arena.give(parts[0], 600);
        arena.give(parts[1], 600);
        assert_eq!(arena.take(2048, ALL), Some(0));
        arena.give(0, 2048);
        arena.give(parts[2], 600);
        assert!(arena.top == 0 && arena.holes.is_empty());
        assert_eq!(arena.high, 3072);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut arena = Region::default();
        assert_eq!(arena.take(4096, 4000), None);
        assert_eq!(arena.take(3584, 4000), Some(0));
        assert_eq!(arena.take(1, 4000), None);
        assert_eq!(arena.high, 3584);
    }

    #[test]
    fn small_parts_do_not_break_the_holes_of_large_ones() {
        let mut arena = Arena::default();
        let large = arena.take(1 << 20, ALL).unwrap();
        arena.give(large, 1 << 20);
        let small = arena.take(512, ALL).unwrap();
        assert_eq!(arena.take(1 << 20, ALL), Some(large));
        assert_eq!(arena.high(), SMALL_REGION + (1 << 20));
        arena.give(small, 512);
        arena.give(large, 1 << 20);
        assert!(arena.is_empty());
    }
}
