//! Packed inputs of a region, kept while its output frames read them.

use super::region::MOST_TAPS;
use crate::host::buffer::Floats;

/// Bytes of a core's second-level cache that all kept inputs may occupy. Larger inputs are packed for every output
/// frame.
const MOST_BYTES: usize = 512 << 10;

/// The frames that a region has read last. An output frame reads up to [`MOST_TAPS`] frames, and the next output frame
/// reads all of them but the oldest.
pub struct InputCache {
    /// Address of the frame whose packed values are in each slot.
    frames: [Option<usize>; MOST_TAPS],
    oldest: usize,
    values: Floats,
}

impl InputCache {
    /// An empty cache.
    pub fn empty() -> InputCache {
        InputCache { frames: [None; MOST_TAPS], oldest: 0, values: Floats::zeros(0) }
    }

    /// Forgets all frames. Must be called before another region, or other channels of it, are computed.
    pub fn clear(&mut self) {
        self.frames = [None; MOST_TAPS];
    }

    /// The packed values of a frame: `count` floats that `pack` writes unless they are kept from an earlier call.
    pub fn packed<E>(&mut self, frame: &[E], count: usize, pack: impl Fn(&[E], &mut [f32])) -> &[f32] {
        if MOST_TAPS * count * size_of::<f32>() > MOST_BYTES {
            return self.unkept(frame, count, pack);
        }
        let (values, [first, ..]) = self.packed_together(MOST_TAPS, [frame], count, pack);
        &values[first..first + count]
    }

    /// Values that are not kept.
    pub fn unkept<E>(&mut self, frame: &[E], count: usize, pack: impl Fn(&[E], &mut [f32])) -> &[f32] {
        self.clear();
        let values = self.values.at_least(count);
        pack(frame, values);
        values
    }

    /// The packed values of up to `slots` frames in one slice, and the offset of each frame. So many frames are kept.
    pub fn packed_together<'f, E: 'f>(
        &mut self,
        slots: usize,
        frames: impl IntoIterator<Item = &'f [E]> + Clone,
        count: usize,
        pack: impl Fn(&[E], &mut [f32]),
    ) -> (&[f32], [usize; MOST_TAPS]) {
        if self.values.len() < slots * count {
            self.clear();
        }
        let (values, mut offsets) = (self.values.at_least(slots * count), [0; MOST_TAPS]);
        let address = |frame: &[E]| frame.as_ptr() as usize;
        for (frame, offset) in frames.clone().into_iter().zip(&mut offsets) {
            let kept = self.frames.iter().position(|&kept| kept == Some(address(frame)));
            let i = kept.unwrap_or_else(|| {
                let is_read = |kept: usize| frames.clone().into_iter().any(|frame| address(frame) == kept);
                while self.frames[self.oldest % slots].is_some_and(is_read) {
                    self.oldest += 1;
                }
                let i = self.oldest % slots;
                self.oldest = i + 1;
                pack(frame, &mut values[i * count..][..count]);
                self.frames[i] = Some(address(frame));
                i
            });
            *offset = i * count;
        }
        (values, offsets)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn frames_are_packed_once_until_they_are_the_oldest() {
        let frames: Vec<[f32; 2]> = (0..5).map(|i| [i as f32; 2]).collect();
        let (mut cache, packs) = (InputCache::empty(), Cell::new(0));
        let pack = |frame: &[f32], to: &mut [f32]| {
            packs.set(packs.get() + 1);
            to.copy_from_slice(frame);
        };
        for t in 0..3 {
            for frame in &frames[t..t + 3] {
                assert_eq!(cache.packed(&frame[..], 2, pack), frame);
            }
        }
        assert_eq!(packs.get(), 5);
        cache.clear();
        cache.packed(&frames[4][..], 2, pack);
        assert_eq!(packs.get(), 6);
    }

    #[test]
    fn frames_that_are_read_together_are_kept_together() {
        let frames: Vec<[f32; 2]> = (0..5).map(|i| [i as f32; 2]).collect();
        let (mut cache, packs) = (InputCache::empty(), Cell::new(0));
        for (together, total) in [([0, 1, 2], 3), ([3, 1, 2], 4), ([3, 1, 4], 5), ([1, 4, 3], 5), ([0, 1, 2], 7)] {
            let (values, offsets) = cache.packed_together(
                3,
                together.map(|i: usize| &frames[i][..]),
                2,
                |frame: &[f32], to: &mut [f32]| {
                    packs.set(packs.get() + 1);
                    to.copy_from_slice(frame);
                },
            );
            assert_eq!(offsets.map(|offset| values[offset]), together.map(|i| i as f32));
            assert_eq!(packs.get(), total, "{together:?}");
        }
    }

    #[test]
    fn large_inputs_are_not_kept() {
        let (mut cache, packs, frame) = (InputCache::empty(), Cell::new(0), [0.0]);
        for _ in 0..2 {
            let pack = |_: &[f32], _: &mut [f32]| packs.set(packs.get() + 1);
            assert_eq!(cache.packed(&frame[..], MOST_BYTES, pack).len(), MOST_BYTES);
        }
        assert_eq!(packs.get(), 2);
    }
}
