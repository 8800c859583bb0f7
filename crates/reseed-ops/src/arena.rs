//! Places of tensors in one piece of memory, as integers. The device that hands them out and the one that only plans run
//! the same code, so that a plan's peak is the run's.

use std::collections::BTreeMap;
use std::iter;
use std::mem::replace;
use std::ops::Range;

/// Places start on multiples of this: what copying units and wide loads want.
const ALIGN: usize = 512;

/// Parts of at most this size have a region of their own, so that they do not break the holes of large ones.
const SMALL: usize = 64 << 10;
const SMALL_REGION: usize = 8 << 20;

/// A part is small beside all others when so many of it make up the whole: it need not wait for a copy, since there is
/// another place. Large ones would break the holes of others instead.
const FEW: usize = 32;

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

    /// Gives back what `take` returned for as many bytes. A copy that may still read them is the `copy`th of all.
    pub fn give(&mut self, start: usize, bytes: usize, copy: Option<u64>) {
        match start.checked_sub(SMALL_REGION) {
            Some(start) => self.large.give(start, bytes, copy),
            None => self.small.give(start, bytes, copy),
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
    /// Free parts that copies may still read: start, end, and which copy reads it.
    read: BTreeMap<usize, (usize, u64)>,
}

impl Region {
    /// A place for `bytes` bytes that ends at or before `capacity`: the smallest hole that holds them, else behind all. Where
    /// they are few, what copies read is no part of a hole if there is another.
    fn take(&mut self, bytes: usize, capacity: usize) -> Option<usize> {
        let bytes = bytes.max(1).next_multiple_of(ALIGN);
        let smallest = |places: &mut dyn Iterator<Item = Range<usize>>| {
            places.filter(|place| place.len() >= bytes).min_by_key(|place| (place.len(), place.start))
        };
        let holes = || self.holes.iter().map(|(&start, &end)| start..end);
        let patient = bytes > self.high / FEW;
        let clean = smallest(&mut holes().filter(|_| !patient).flat_map(|hole| self.between(hole)));
        let place = clean.or_else(|| smallest(&mut holes()));
        let start = match place {
            Some(place) => self.fill(place.start, bytes),
            None => {
                let end = self.top.checked_add(bytes).filter(|&end| end <= capacity)?;
                self.high = self.high.max(end);
                replace(&mut self.top, end)
            }
        };
        self.read_until(start..start + bytes);
        Some(start)
    }

    /// What of a hole no copy reads.
    fn between(&self, hole: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let read = || self.read.range(hole.clone());
        let starts = iter::once(hole.start).chain(read().map(|(_, &(end, _))| end));
        let ends = read().map(|(&start, _)| start).chain(iter::once(hole.end));
        starts.zip(ends).map(|(start, end)| start..end)
    }

    /// Takes `bytes` bytes from `start` on out of the hole around them.
    fn fill(&mut self, start: usize, bytes: usize) -> usize {
        let (&hole, &end) = self.holes.range(..=start).next_back().expect("a hole around a place in it");
        self.holes.remove(&hole);
        for (start, end) in [(hole, start), (start + bytes, end)].into_iter().filter(|(start, end)| start < end) {
            self.holes.insert(start, end);
        }
        start
    }

    /// Whoever takes this part waits for the copies that read it, and copies end in their order.
    fn read_until(&mut self, part: Range<usize>) {
        let overlapping = self.read.range(..part.end).filter(|(_, (end, _))| *end > part.start);
        if let Some(done) = overlapping.map(|(_, &(_, copy))| copy).max() {
            self.read.retain(|_, &mut (_, copy)| copy > done);
        }
    }

    /// Gives back what `take` returned for as many bytes.
    fn give(&mut self, start: usize, bytes: usize, copy: Option<u64>) {
        let (mut start, mut end) = (start, start + bytes.max(1).next_multiple_of(ALIGN));
        self.read.extend(copy.map(|copy| (start, (end, copy))));
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
        arena.give(a, 2048, None);
        arena.give(c, 1024, None);
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
        arena.give(parts[0], 600, None);
        arena.give(parts[1], 600, None);
        assert_eq!(arena.take(2048, ALL), Some(0));
        arena.give(0, 2048, None);
        arena.give(parts[2], 600, None);
        assert!(arena.top == 0 && arena.holes.is_empty());
        assert_eq!(arena.high, 3072);
    }

    #[test]
    fn a_small_part_waits_for_no_copy_and_a_large_one_breaks_no_hole() {
        let mut arena = Region::default();
        let [a, b, c, _] = [4096, 40_960, 8192, 512].map(|bytes| arena.take(bytes, ALL).unwrap());
        arena.give(a, 4096, Some(7));
        arena.give(c, 8192, None);
        assert_eq!(arena.take(512, ALL), Some(c));
        assert_eq!(arena.take(4096, ALL), Some(a));
        arena.give(a, 4096, Some(8));
        arena.give(b, 40_960, Some(9));
        // Whoever takes `b` waits for the ninth copy, and so for the eighth.
        assert_eq!(arena.take(40_960, ALL), Some(a));
        arena.give(a, 40_960, None);
        assert_eq!(arena.take(512, ALL), Some(c + 512));
        assert!(arena.read.is_empty());
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
        arena.give(large, 1 << 20, None);
        let small = arena.take(512, ALL).unwrap();
        assert_eq!(arena.take(1 << 20, ALL), Some(large));
        assert_eq!(arena.high(), SMALL_REGION + (1 << 20));
        arena.give(small, 512, None);
        arena.give(large, 1 << 20, None);
        assert!(arena.is_empty());
    }
}
