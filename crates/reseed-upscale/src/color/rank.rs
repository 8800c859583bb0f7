//! Gives values the distribution of others: the i-th smallest becomes the i-th smallest of the target. Equal values rank
//! in the order of their pixels.
//!
//! Sorting is by counting, eleven bits at a time from the lowest up, in chunks that run in parallel. Every chunk knows
//! where its items go, so that the result does not depend on threads; atomics only let them write side by side.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

const DIGIT_BITS: u32 = 11;
const DIGITS: usize = 1 << DIGIT_BITS;
/// Items that a thread counts at a time, at least.
const CHUNK: usize = 1 << 15;

/// Bits that sort as unsigned integers the way their values sort.
fn ordered(value: f32) -> u32 {
    let bits = (value + 0.0).to_bits(); // -0 equals 0
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

fn value(ordered: u32) -> f32 {
    f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
}

/// Something to be sorted, in memory that threads share.
pub trait Item: Default + Send + Sync {
    /// What it is sorted by.
    fn key(&self) -> u32;
    /// Makes it a copy of another.
    fn set(&self, other: &Self);
}

/// A value to be ranked and the number of its pixel.
#[derive(Default)]
pub struct Ranked(AtomicU64);

impl Ranked {
    /// The value of a pixel.
    pub fn new(value: f32, pixel: usize) -> Ranked {
        debug_assert!(u32::try_from(pixel).is_ok(), "a slice has fewer than 2³² pixels");
        Ranked(AtomicU64::new(u64::from(ordered(value)) << 32 | pixel as u64))
    }

    fn pixel(&self) -> usize {
        self.0.load(Relaxed) as u32 as usize
    }
}

impl Item for Ranked {
    fn key(&self) -> u32 {
        (self.0.load(Relaxed) >> 32) as u32
    }

    fn set(&self, other: &Ranked) {
        self.0.store(other.0.load(Relaxed), Relaxed);
    }
}

/// A value of the target.
#[derive(Default)]
pub struct Wanted(AtomicU32);

impl Wanted {
    /// A value.
    pub fn new(value: f32) -> Wanted {
        Wanted(AtomicU32::new(ordered(value)))
    }
}

impl Item for Wanted {
    fn key(&self) -> u32 {
        self.0.load(Relaxed)
    }

    fn set(&self, other: &Wanted) {
        self.0.store(other.key(), Relaxed);
    }
}

/// The items by their keys; those with equal keys stay in their order.
fn sorted<T: Item>(mut items: Vec<T>) -> Vec<T> {
    let chunk = items.len().div_ceil(4 * rayon::current_num_threads()).max(CHUNK);
    let mut other: Vec<T> = items.par_iter().map(|_| T::default()).collect();
    for shift in (0..u32::BITS).step_by(DIGIT_BITS as usize) {
        let digit = |item: &T| (item.key() >> shift) as usize % DIGITS;
        let count = |chunk: &[T]| {
            let mut counts = vec![0; DIGITS];
            chunk.iter().for_each(|item| counts[digit(item)] += 1);
            counts
        };
        let mut places: Vec<Vec<usize>> = items.par_chunks(chunk).map(count).collect();
        let mut next = 0;
        for digit in 0..DIGITS {
            for counts in &mut places {
                next += std::mem::replace(&mut counts[digit], next);
            }
        }
        items.par_chunks(chunk).zip(&mut places).for_each(|(chunk, places)| {
            for item in chunk {
                let place = &mut places[digit(item)];
                other[*place].set(item);
                *place += 1;
            }
        });
        std::mem::swap(&mut items, &mut other);
    }
    items
}

/// One number per pixel of a slice, written in any order by any thread.
pub struct Values(Vec<AtomicU32>);

impl Values {
    /// A number for each pixel.
    pub fn new(values: &[f32]) -> Values {
        Values(values.par_iter().map(|value| AtomicU32::new(value.to_bits())).collect())
    }

    /// Nought for each of `count` pixels.
    pub fn zeros(count: usize) -> Values {
        Values((0..count).into_par_iter().map(|_| AtomicU32::new(0)).collect())
    }

    /// The number of a pixel.
    pub fn get(&self, pixel: usize) -> f32 {
        f32::from_bits(self.0[pixel].load(Relaxed))
    }

    /// Writes, for every value, the one of its rank in `target`; where their numbers n and m differ, value i of n gets
    /// the one of rank floor(i (m-1) / (n-1)). Values come in the order of their pixels.
    pub fn match_ranks(&self, values: Vec<Ranked>, target: Vec<Wanted>) {
        let (values, target) = rayon::join(|| sorted(values), || sorted(target));
        let (last, last_wanted) = ((values.len() - 1).max(1) as u64, target.len() as u64 - 1);
        let rank = |i: usize| if last == last_wanted { i } else { (i as u64 * last_wanted / last) as usize };
        values.par_iter().enumerate().for_each(|(i, ranked)| {
            self.0[ranked.pixel()].store(value(target[rank(i)].key()).to_bits(), Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(values: &[f32], target: &[f32]) -> Vec<f32> {
        let result = Values::new(values);
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
    fn many_chunks_sort_like_one() {
        let values: Vec<f32> = (0..5 * CHUNK + 77).map(|i| ((i * 7919 % 10007) as f32 - 5000.0) / 64.0).collect();
        let items = sorted(values.iter().enumerate().map(|(i, v)| Ranked::new(*v, i)).collect());
        let mut want: Vec<usize> = (0..values.len()).collect();
        want.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        assert!(items.iter().map(Ranked::pixel).eq(want));
    }

    #[test]
    fn values_survive_their_order() {
        for v in [-f32::MAX, -1.5, -f32::MIN_POSITIVE, 0.0, 1e-30, 7.25, f32::MAX] {
            assert_eq!(value(ordered(v)), v);
        }
        assert!(ordered(-2.0) < ordered(-1.0) && ordered(-1.0) < ordered(0.0) && ordered(0.0) < ordered(1e-9));
    }
}
