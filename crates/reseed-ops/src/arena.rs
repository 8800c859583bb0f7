//! Places of tensors in one piece of memory, as integers. The device that hands them out and the one that only plans run
//! the same code, so that a plan's peak is the run's.

use std::collections::BTreeMap;

/// Places start on multiples of this: what copying units and wide loads want.
const ALIGN: usize = 512;

/// Parts of at most this size have a region of their own, so that they do not break the holes of large ones.
const SMALL: usize = 64 << 10;
const SMALL_REGION: usize = 8 << 20;

/// One piece of memory, of which parts are taken and given back. Wide parts lie at its end and all others at its start: a wide
/// one that is gone leaves no hole that others break, nor do others lie between two of them.
#[derive(Debug)]
pub struct Arena {
    end: usize,
    wide: usize,
    small: Region,
    near: Region,
    /// Its places count backwards from the end.
    far: Region,
    high: usize,
}

impl Arena {
    /// A piece of `bytes` bytes, of which parts of at least `wide` bytes lie at its end.
    pub fn new(bytes: usize, wide: usize) -> Arena {
        let [small, near, far] = Default::default();
        Arena { end: bytes / ALIGN * ALIGN, wide, small, near, far, high: SMALL_REGION }
    }

    /// Bytes of a piece of memory that has room for a part of `bytes`.
    pub fn around(bytes: usize) -> usize {
        SMALL_REGION + aligned(bytes)
    }

    /// Bytes that have been needed so far.
    pub fn high(&self) -> usize {
        self.high
    }

    /// Whether nothing is taken.
    pub fn is_empty(&self) -> bool {
        [&self.small, &self.near, &self.far].iter().all(|region| region.top == 0)
    }

    /// A place for `bytes` bytes. The choice does not depend on the size of the piece, only that there is one does.
    pub fn take(&mut self, bytes: usize) -> Option<usize> {
        let (wide, bytes) = (bytes >= self.wide, aligned(bytes));
        let small = if bytes <= SMALL { self.small.take(bytes, SMALL_REGION.min(self.end)) } else { None };
        small.or_else(|| {
            let (end, Arena { near, far, .. }) = (self.end, &mut *self);
            let low = |at: usize| SMALL_REGION + at;
            let high = |at: usize| end - at - bytes;
            let left = end.checked_sub(SMALL_REGION + near.top + far.top)?;
            let place = match wide {
                false => near.hole(bytes).map(low).or_else(|| far.hole(bytes).map(high)),
                true => far.hole(bytes).map(high).or_else(|| near.hole(bytes).map(low)),
            };
            let place = place.or_else(|| match wide {
                false => near.grow(bytes, left).map(low),
                true => far.grow(bytes, left).map(high),
            });
            self.high = self.high.max(SMALL_REGION + self.near.top + self.far.top);
            place
        })
    }

    /// Gives back what `take` returned for as many bytes.
    pub fn give(&mut self, start: usize, bytes: usize) {
        let bytes = aligned(bytes);
        if start < SMALL_REGION {
            self.small.give(start, bytes);
        } else if start >= self.end - self.far.top {
            self.far.give(self.end - start - bytes, bytes);
        } else {
            self.near.give(start - SMALL_REGION, bytes);
        }
    }
}

fn aligned(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(ALIGN)
}

/// Part of a piece of memory.
#[derive(Debug, Default)]
struct Region {
    /// Holes between parts: start and end.
    holes: BTreeMap<usize, usize>,
    /// All behind this is free.
    top: usize,
}

impl Region {
    /// A place for `bytes` bytes that ends at or before `capacity`.
    fn take(&mut self, bytes: usize, capacity: usize) -> Option<usize> {
        self.hole(bytes).or_else(|| self.grow(bytes, capacity.checked_sub(self.top)?))
    }

    /// The smallest hole that holds `bytes` bytes.
    fn hole(&mut self, bytes: usize) -> Option<usize> {
        let fits = |(&start, &end): (&usize, &usize)| (end - start >= bytes).then_some((end - start, start, end));
        let (_, start, end) = self.holes.iter().filter_map(fits).min()?;
        self.holes.remove(&start);
        if end - start > bytes {
            self.holes.insert(start + bytes, end);
        }
        Some(start)
    }

    /// A place behind all, where `left` bytes are.
    fn grow(&mut self, bytes: usize, left: usize) -> Option<usize> {
        let start = self.top;
        self.top += if bytes <= left { bytes } else { return None };
        Some(start)
    }

    /// Gives back a place of `bytes` bytes.
    fn give(&mut self, mut start: usize, bytes: usize) {
        let mut end = start + bytes;
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

    /// Offsets behind the region of small parts, of parts that are not small.
    fn arena(bytes: usize, wide: usize) -> (Arena, impl Fn(&mut Arena, usize) -> Option<usize>) {
        let take = |arena: &mut Arena, kib: usize| Some((arena.take(kib << 10)? - SMALL_REGION) >> 10);
        (Arena::new(bytes, wide), take)
    }

    #[test]
    fn the_smallest_hole_that_fits_is_taken() {
        let (mut arena, take) = arena(ALL, ALL);
        let [a, b, c, d] = [400, 100, 200, 100].map(|kib| take(&mut arena, kib).unwrap());
        assert_eq!([a, b, c, d], [0, 400, 500, 700]);
        arena.give(SMALL_REGION, 400 << 10);
        arena.give(SMALL_REGION + (c << 10), 200 << 10);
        assert_eq!(take(&mut arena, 150), Some(c));
        assert_eq!(take(&mut arena, 390), Some(a));
        assert_eq!(arena.high(), SMALL_REGION + (800 << 10));
    }

    #[test]
    fn a_piece_around_a_part_has_room_for_it() {
        for (bytes, wide) in [1, SMALL, SMALL + 1, 317 << 20].into_iter().flat_map(|bytes| [(bytes, 1), (bytes, ALL)]) {
            assert!(Arena::new(Arena::around(bytes), wide).take(bytes).is_some(), "{bytes}");
        }
    }

    #[test]
    fn neighbouring_holes_become_one_and_the_top_sinks() {
        let (mut arena, take) = arena(ALL, ALL);
        let parts = [100, 100, 100].map(|kib| take(&mut arena, kib).unwrap());
        let give = |arena: &mut Arena, at: usize, kib: usize| arena.give(SMALL_REGION + (at << 10), kib << 10);
        give(&mut arena, parts[0], 100);
        give(&mut arena, parts[1], 100);
        assert_eq!(take(&mut arena, 200), Some(0));
        give(&mut arena, 0, 200);
        give(&mut arena, parts[2], 100);
        assert!(arena.is_empty() && arena.near.holes.is_empty());
        assert_eq!(arena.high(), SMALL_REGION + (300 << 10));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        for wide in [1, ALL] {
            let (mut arena, take) = arena(SMALL_REGION + (400 << 10), wide);
            assert_eq!(take(&mut arena, 401), None);
            assert_eq!(take(&mut arena, 400), Some(0));
            assert_eq!(take(&mut arena, 65), None);
            assert_eq!(arena.high(), SMALL_REGION + (400 << 10));
        }
    }

    #[test]
    fn wide_parts_lie_at_the_end_and_others_do_not_come_between_them() {
        let (mut arena, take) = arena(SMALL_REGION + (1000 << 10), 300 << 10);
        assert_eq!([100, 300, 100, 400].map(|kib| take(&mut arena, kib)), [0, 700, 100, 300].map(Some));
        assert_eq!(take(&mut arena, 101), None);
        arena.give(SMALL_REGION + (700 << 10), 300 << 10);
        assert_eq!(take(&mut arena, 250), Some(750), "a hole of theirs is for all");
        arena.give(SMALL_REGION + (750 << 10), 250 << 10);
        arena.give(SMALL_REGION + (300 << 10), 400 << 10);
        assert_eq!(take(&mut arena, 800), Some(200));
        assert_eq!(arena.high(), SMALL_REGION + (1000 << 10));
    }

    #[test]
    fn small_parts_do_not_break_the_holes_of_large_ones() {
        let mut arena = Arena::new(ALL, ALL);
        let large = arena.take(1 << 20).unwrap();
        arena.give(large, 1 << 20);
        let small = arena.take(512).unwrap();
        assert_eq!(arena.take(1 << 20), Some(large));
        assert_eq!(arena.high(), SMALL_REGION + (1 << 20));
        arena.give(small, 512);
        arena.give(large, 1 << 20);
        assert!(arena.is_empty());
    }
}
