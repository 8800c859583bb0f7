//! Addresses of buffers in one range of memory, as integers. A device and the planner run the same code, so that the
//! peak of a plan is the peak of the run.

use std::collections::BTreeMap;

/// Alignment of addresses: what copy engines and wide loads require.
const ALIGN: usize = 512;

/// Buffers of at most this size have their own region, so that they do not split the gaps of larger ones.
const SMALL: usize = 64 << 10;
const SMALL_REGION: usize = 8 << 20;

/// Allocates buffers from one range of memory. Large buffers are placed at its end and all others at its start: the gap
/// of a freed large buffer is not split by others.
#[derive(Debug)]
pub struct Arena {
    end: usize,
    large: usize,
    small: Region,
    low: Region,
    /// Its addresses count backwards from the end.
    high: Region,
    size: usize,
}

impl Arena {
    /// An arena of `bytes` bytes; buffers of at least `large` bytes are placed at its end.
    pub fn new(bytes: usize, large: usize) -> Arena {
        let [small, low, high] = Default::default();
        Arena { end: bytes / ALIGN * ALIGN, large, small, low, high, size: SMALL_REGION }
    }

    /// Bytes of an arena that can hold one buffer of `bytes` bytes.
    pub fn size_for(bytes: usize) -> usize {
        SMALL_REGION + aligned(bytes)
    }

    /// Bytes that an arena needs for all allocations so far.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether nothing is allocated.
    pub fn is_empty(&self) -> bool {
        [&self.small, &self.low, &self.high].iter().all(|region| region.top == 0)
    }

    /// The address of a new buffer, or `None` if it does not fit. The size of the arena does not influence the address.
    pub fn allocate(&mut self, bytes: usize) -> Option<usize> {
        let (large, bytes) = (bytes >= self.large, aligned(bytes));
        let small = if bytes <= SMALL { self.small.allocate(bytes, SMALL_REGION.min(self.end)) } else { None };
        small.or_else(|| {
            let (end, Arena { low, high, .. }) = (self.end, &mut *self);
            let from_start = |at: usize| SMALL_REGION + at;
            let from_end = |at: usize| end - at - bytes;
            let left = end.checked_sub(SMALL_REGION + low.top + high.top)?;
            let address = match large {
                false => low.best_gap(bytes).map(from_start).or_else(|| high.best_gap(bytes).map(from_end)),
                true => high.best_gap(bytes).map(from_end).or_else(|| low.best_gap(bytes).map(from_start)),
            };
            let address = address.or_else(|| match large {
                false => low.grow(bytes, left).map(from_start),
                true => high.grow(bytes, left).map(from_end),
            });
            self.size = self.size.max(SMALL_REGION + self.low.top + self.high.top);
            address
        })
    }

    /// Frees the buffer of `bytes` bytes at `start`.
    pub fn free(&mut self, start: usize, bytes: usize) {
        let bytes = aligned(bytes);
        if start < SMALL_REGION {
            self.small.free(start, bytes);
        } else if start >= self.end - self.high.top {
            self.high.free(self.end - start - bytes, bytes);
        } else {
            self.low.free(start - SMALL_REGION, bytes);
        }
    }
}

fn aligned(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(ALIGN)
}

/// A part of an arena that grows in one direction.
#[derive(Debug, Default)]
struct Region {
    /// Gaps between buffers: start and end.
    gaps: BTreeMap<usize, usize>,
    /// Everything from here on is free.
    top: usize,
}

impl Region {
    /// An address for `bytes` bytes that end at or before `capacity`.
    fn allocate(&mut self, bytes: usize, capacity: usize) -> Option<usize> {
        self.best_gap(bytes).or_else(|| self.grow(bytes, capacity.checked_sub(self.top)?))
    }

    /// Allocates from the smallest gap that holds `bytes` bytes.
    fn best_gap(&mut self, bytes: usize) -> Option<usize> {
        let fits = |(&start, &end): (&usize, &usize)| (end - start >= bytes).then_some((end - start, start, end));
        let (_, start, end) = self.gaps.iter().filter_map(fits).min()?;
        self.gaps.remove(&start);
        if end - start > bytes {
            self.gaps.insert(start + bytes, end);
        }
        Some(start)
    }

    /// Allocates at the top, where `left` bytes are free.
    fn grow(&mut self, bytes: usize, left: usize) -> Option<usize> {
        let start = self.top;
        self.top += if bytes <= left { bytes } else { return None };
        Some(start)
    }

    /// Frees `bytes` bytes and merges neighbouring gaps.
    fn free(&mut self, mut start: usize, bytes: usize) {
        let mut end = start + bytes;
        if let Some((&before, &its_end)) = self.gaps.range(..start).next_back()
            && its_end == start
        {
            self.gaps.remove(&before);
            start = before;
        }
        if let Some(its_end) = self.gaps.remove(&end) {
            end = its_end;
        }
        match end == self.top {
            true => self.top = start,
            false => drop(self.gaps.insert(start, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = usize::MAX;

    /// Allocates in KiB; returns the address in KiB after the region of small buffers.
    fn arena(bytes: usize, large: usize) -> (Arena, impl Fn(&mut Arena, usize) -> Option<usize>) {
        let allocate = |arena: &mut Arena, kib: usize| Some((arena.allocate(kib << 10)? - SMALL_REGION) >> 10);
        (Arena::new(bytes, large), allocate)
    }

    #[test]
    fn the_smallest_gap_that_fits_is_used() {
        let (mut arena, allocate) = arena(ALL, ALL);
        let [a, b, c, d] = [400, 100, 200, 100].map(|kib| allocate(&mut arena, kib).unwrap());
        assert_eq!([a, b, c, d], [0, 400, 500, 700]);
        arena.free(SMALL_REGION, 400 << 10);
        arena.free(SMALL_REGION + (c << 10), 200 << 10);
        assert_eq!(allocate(&mut arena, 150), Some(c));
        assert_eq!(allocate(&mut arena, 390), Some(a));
        assert_eq!(arena.size(), SMALL_REGION + (800 << 10));
    }

    #[test]
    fn an_arena_of_the_size_for_a_buffer_holds_it() {
        for (bytes, large) in [1, SMALL, SMALL + 1, 317 << 20].into_iter().flat_map(|bytes| [(bytes, 1), (bytes, ALL)])
        {
            assert!(Arena::new(Arena::size_for(bytes), large).allocate(bytes).is_some(), "{bytes}");
        }
    }

    #[test]
    fn neighbouring_gaps_merge_and_the_top_sinks() {
        let (mut arena, allocate) = arena(ALL, ALL);
        let buffers = [100, 100, 100].map(|kib| allocate(&mut arena, kib).unwrap());
        let free = |arena: &mut Arena, at: usize, kib: usize| arena.free(SMALL_REGION + (at << 10), kib << 10);
        free(&mut arena, buffers[0], 100);
        free(&mut arena, buffers[1], 100);
        assert_eq!(allocate(&mut arena, 200), Some(0));
        free(&mut arena, 0, 200);
        free(&mut arena, buffers[2], 100);
        assert!(arena.is_empty() && arena.low.gaps.is_empty());
        assert_eq!(arena.size(), SMALL_REGION + (300 << 10));
    }

    #[test]
    fn a_buffer_that_does_not_fit_is_refused_and_changes_nothing() {
        for large in [1, ALL] {
            let (mut arena, allocate) = arena(SMALL_REGION + (400 << 10), large);
            assert_eq!(allocate(&mut arena, 401), None);
            assert_eq!(allocate(&mut arena, 400), Some(0));
            assert_eq!(allocate(&mut arena, 65), None);
            assert_eq!(arena.size(), SMALL_REGION + (400 << 10));
        }
    }

    #[test]
    fn large_buffers_are_at_the_end_and_others_do_not_come_between_them() {
        let (mut arena, allocate) = arena(SMALL_REGION + (1000 << 10), 300 << 10);
        assert_eq!([100, 300, 100, 400].map(|kib| allocate(&mut arena, kib)), [0, 700, 100, 300].map(Some));
        assert_eq!(allocate(&mut arena, 101), None);
        arena.free(SMALL_REGION + (700 << 10), 300 << 10);
        assert_eq!(allocate(&mut arena, 250), Some(750), "all buffers may use a gap of the large ones");
        arena.free(SMALL_REGION + (750 << 10), 250 << 10);
        arena.free(SMALL_REGION + (300 << 10), 400 << 10);
        assert_eq!(allocate(&mut arena, 800), Some(200));
        assert_eq!(arena.size(), SMALL_REGION + (1000 << 10));
    }

    #[test]
    fn small_buffers_do_not_split_the_gaps_of_larger_ones() {
        let mut arena = Arena::new(ALL, ALL);
        let large = arena.allocate(1 << 20).unwrap();
        arena.free(large, 1 << 20);
        let small = arena.allocate(512).unwrap();
        assert_eq!(arena.allocate(1 << 20), Some(large));
        assert_eq!(arena.size(), SMALL_REGION + (1 << 20));
        arena.free(small, 512);
        arena.free(large, 1 << 20);
        assert!(arena.is_empty());
    }
}
