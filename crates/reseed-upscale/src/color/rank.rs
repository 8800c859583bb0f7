//! Gives values the distribution of others: the i-th smallest becomes the i-th smallest of the target. Equal values rank
//! in the order of their pixels.

use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;

/// Bits that sort as unsigned integers the way their values sort.
fn ordered(value: f32) -> u32 {
    let bits = (value + 0.0).to_bits(); // -0 equals 0
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

fn value(ordered: u32) -> f32 {
    f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
}

/// A value to be ranked and the number of its pixel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranked(u64);

impl Ranked {
    pub fn new(value: f32, pixel: usize) -> Ranked {
        debug_assert!(u32::try_from(pixel).is_ok(), "a slice has fewer than 2³² pixels");
        Ranked(u64::from(ordered(value)) << 32 | pixel as u64)
    }

    fn pixel(self) -> usize {
        self.0 as u32 as usize
    }
}

/// A value of the target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted(u32);

impl Wanted {
    pub fn new(value: f32) -> Wanted {
        Wanted(ordered(value))
    }
}

/// One number per pixel of a slice, written in any order by any thread.
pub struct Values(Vec<AtomicU32>);

impl Values {
    /// A number for each of `count` pixels.
    pub fn new(count: usize, value: impl Fn(usize) -> f32 + Sync) -> Values {
        Values((0..count).into_par_iter().map(|i| AtomicU32::new(value(i).to_bits())).collect())
    }

    /// The number of a pixel.
    pub fn get(&self, pixel: usize) -> f32 {
        f32::from_bits(self.0[pixel].load(Ordering::Relaxed))
    }

    /// Writes, for every value, the one of its rank in `target`; where their numbers n and m differ, value i of n gets
    /// the one of rank floor(i (m-1) / (n-1)).
    pub fn match_ranks(&self, mut values: Vec<Ranked>, mut target: Vec<Wanted>) {
        rayon::join(|| values.par_sort_unstable(), || target.par_sort_unstable());
        let (last, last_wanted) = ((values.len() - 1).max(1) as u64, target.len() as u64 - 1);
        values.par_iter().enumerate().for_each(|(i, ranked)| {
            let rank = (i as u64 * last_wanted / last) as usize;
            self.0[ranked.pixel()].store(value(target[rank].0).to_bits(), Ordering::Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(values: &[f32], target: &[f32]) -> Vec<f32> {
        let result = Values::new(values.len(), |i| values[i]);
        let ranked = values.iter().enumerate().map(|(i, v)| Ranked::new(*v, i)).collect();
        result.match_ranks(ranked, target.iter().map(|v| Wanted::new(*v)).collect());
        (0..values.len()).map(|i| result.get(i)).collect()
    }

    #[test]
    fn equal_values_rank_in_their_order() {
        assert_eq!(matched(&[0.5, -0.0, 0.5, -3.0, 0.0], &[1.0, 5.0, 3.0, 2.0, 4.0]), [4.0, 2.0, 5.0, 1.0, 3.0]);
    }

    #[test]
    fn other_numbers_of_values_share_ranks() {
        assert_eq!(matched(&[4.0, 3.0, 2.0, 1.0, 0.0], &[-1.0, 0.0, 7.0]), [7.0, 0.0, 0.0, -1.0, -1.0]);
        assert_eq!(matched(&[9.0], &[3.0, 2.0]), [2.0]);
    }

    #[test]
    fn values_survive_their_order() {
        for v in [-f32::MAX, -1.5, -f32::MIN_POSITIVE, 0.0, 1e-30, 7.25, f32::MAX] {
            assert_eq!(value(ordered(v)), v);
        }
        assert!(ordered(-2.0) < ordered(-1.0) && ordered(-1.0) < ordered(0.0) && ordered(0.0) < ordered(1e-9));
    }
}
