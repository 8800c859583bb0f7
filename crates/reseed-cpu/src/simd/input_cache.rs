//! Packed inputs of a region, kept while its output frames read them.

use super::region::MOST_TAPS;
use crate::host::buffer::Floats;

/// Bytes of a core's second-level cache that all kept inputs may occupy. Larger inputs are packed for every output
/// frame.
const MOST_BYTES: usize = 512 << 10;

/// The frames that a region has read last. An output frame reads up to [`MOST_TAPS`] frames, and the next output frame
/// reads all of them but the oldest.
pub struct InputCache {
    slots: [Slot; MOST_TAPS],
    oldest: usize,
}

struct Slot {
    /// Address of the frame whose packed values it holds.
    frame: Option<usize>,
    values: Floats,
}

impl InputCache {
    /// An empty cache.
    pub fn empty() -> InputCache {
        InputCache { slots: std::array::from_fn(|_| Slot { frame: None, values: Floats::zeros(0) }), oldest: 0 }
    }

    /// Forgets all frames. Must be called before another region is computed.
    pub fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.frame = None);
    }

    /// The packed values of a frame: `count` floats that `pack` writes unless they are kept from an earlier call.
    pub fn packed<E>(&mut self, frame: &[E], count: usize, pack: impl FnOnce(&mut [f32])) -> &[f32] {
        let address = frame.as_ptr() as usize;
        if MOST_TAPS * count * size_of::<f32>() > MOST_BYTES {
            return self.unkept(count, pack);
        }
        let kept = self.slots.iter().position(|slot| slot.frame == Some(address));
        let i = kept.unwrap_or_else(|| {
            let i = self.oldest;
            self.oldest = (i + 1) % MOST_TAPS;
            pack(self.slots[i].values.at_least(count));
            self.slots[i].frame = Some(address);
            i
        });
        &self.slots[i].values[..count]
    }

    /// Values that are not kept.
    pub fn unkept(&mut self, count: usize, pack: impl FnOnce(&mut [f32])) -> &[f32] {
        let Slot { frame, values } = &mut self.slots[0];
        *frame = None;
        let values = values.at_least(count);
        pack(values);
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_packed_once_until_they_are_the_oldest() {
        let frames: Vec<[f32; 2]> = (0..5).map(|i| [i as f32; 2]).collect();
        let (mut cache, mut packs) = (InputCache::empty(), 0);
        for t in 0..3 {
            for frame in &frames[t..t + 3] {
                let packed = cache.packed(frame, 2, |to| {
                    packs += 1;
                    to.copy_from_slice(frame);
                });
                assert_eq!(packed, frame);
            }
        }
        assert_eq!(packs, 5);
        cache.clear();
        cache.packed(&frames[4], 2, |_| packs += 1);
        assert_eq!(packs, 6);
    }

    #[test]
    fn large_inputs_are_not_kept() {
        let (mut cache, mut packs, frame) = (InputCache::empty(), 0, [0.0]);
        for _ in 0..2 {
            assert_eq!(cache.packed(&frame, MOST_BYTES, |_| packs += 1).len(), MOST_BYTES);
        }
        assert_eq!(packs, 2);
    }
}
