//! Gives values the distribution of others: the i-th smallest becomes the i-th smallest of the target. Equal values rank
//! in the order of their pixels.
//!
//! Values are whole steps of 2⁻²⁴ of their range, which is less than rounding has left of them. Nothing is compared. A
//! chunk's values are dealt into buckets by the upper half of their bits; bucket by bucket, the lower halves are counted,
//! which says every value's rank; and a chunk takes its results back out of the buckets in the order in which it dealt. All
//! of this happens in a core's cache and gives the same for any number of threads.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

use crate::wide::wide;

/// Values of a chunk: it and its buckets fit into a core's second-level cache.
pub const CHUNK: usize = 1 << 16;
const HALF: u32 = 12;
const BUCKETS: usize = 1 << HALF;
const LAST: f32 = ((1 << (2 * HALF)) - 1) as f32;
/// Buckets with fewer values than this are sorted rather than counted.
const FEW: usize = 256;

/// A range that values lie in, as whole numbers.
#[derive(Clone, Copy)]
pub struct Steps {
    low: f32,
    /// Steps of one.
    scale: f32,
}

impl Steps {
    /// From `low` to `high`.
    pub const fn new(low: f32, high: f32) -> Steps {
        Steps { low, scale: LAST / (high - low) }
    }

    #[inline(always)]
    fn key(self, value: f32) -> u32 {
        ((value - self.low) * self.scale + 0.5).clamp(0.0, LAST) as i32 as u32
    }

    #[inline(always)]
    fn value(self, key: u32) -> f32 {
        self.low + key as i32 as f32 / self.scale
    }
}

/// A chunk's keys, bucket after bucket, within a bucket in the order of their pixels. Buckets are worked on by any thread,
/// each by one: atomics only let them write side by side.
struct Dealt {
    keys: Vec<AtomicU32>,
    starts: Vec<u32>,
}

impl Dealt {
    fn new(values: &[f32], steps: Steps) -> Dealt {
        let mut keys = vec![0; values.len()];
        wide(|| keys.iter_mut().zip(values).for_each(|(key, value)| *key = steps.key(*value)));
        let mut starts = vec![0; BUCKETS + 1];
        keys.iter().for_each(|key| starts[(key >> HALF) as usize] += 1);
        let mut next = 0;
        starts.iter_mut().for_each(|start| next += std::mem::replace(start, next));
        let mut places = starts.clone();
        let dealt: Vec<AtomicU32> = keys.iter().map(|_| AtomicU32::new(0)).collect();
        for key in keys {
            let place = &mut places[(key >> HALF) as usize];
            dealt[*place as usize].store(key, Relaxed);
            *place += 1;
        }
        Dealt { keys: dealt, starts }
    }

    fn bucket(&self, bucket: usize) -> &[AtomicU32] {
        &self.keys[self.starts[bucket] as usize..self.starts[bucket + 1] as usize]
    }

    /// Moves every value `share` of the way to what stands at its key's place.
    fn take_back(mut self, values: &mut [f32], steps: Steps, share: f32) {
        let mut matched: Vec<u32> = vec![0; values.len()];
        wide(|| matched.iter_mut().zip(&*values).for_each(|(key, value)| *key = steps.key(*value)));
        for key in &mut matched {
            let place = &mut self.starts[(*key >> HALF) as usize];
            *key = self.keys[*place as usize].load(Relaxed);
            *place += 1;
        }
        wide(|| {
            for (value, key) in values.iter_mut().zip(matched) {
                *value = (1.0 - share) * *value + share * steps.value(key);
            }
        });
    }
}

/// For every bucket, how many keys lie in those before it; one more at the end.
fn ranks(chunks: &[Dealt]) -> Vec<usize> {
    let mut ranks = vec![0; BUCKETS + 1];
    for chunk in chunks {
        ranks.iter_mut().zip(&chunk.starts).for_each(|(rank, start)| *rank += *start as usize);
    }
    ranks
}

fn lower(key: u32) -> usize {
    key as usize % BUCKETS
}

fn keys(chunks: &[Dealt], bucket: usize) -> impl Iterator<Item = &AtomicU32> {
    chunks.iter().flat_map(move |chunk| chunk.bucket(bucket))
}

/// All keys in their order.
fn sorted(chunks: &[Dealt]) -> Vec<u32> {
    let ranks = ranks(chunks);
    let mut all = vec![0; ranks[BUCKETS]];
    let (mut rest, mut buckets) = (&mut all[..], Vec::new());
    for (bucket, count) in ranks.windows(2).map(|pair| pair[1] - pair[0]).enumerate().filter(|(_, count)| *count > 0) {
        let (keys, more) = rest.split_at_mut(count);
        buckets.push((bucket, keys));
        rest = more;
    }
    let sort = |counts: &mut Vec<u32>, (bucket, out): (usize, &mut [u32])| {
        if out.len() < FEW {
            out.iter_mut().zip(keys(chunks, bucket)).for_each(|(to, key)| *to = key.load(Relaxed));
            return out.sort_unstable();
        }
        keys(chunks, bucket).for_each(|key| counts[lower(key.load(Relaxed))] += 1);
        let mut at = 0;
        for (low, count) in counts.iter_mut().enumerate() {
            let count = std::mem::take(count) as usize;
            out[at..at + count].fill((bucket * BUCKETS + low) as u32);
            at += count;
        }
    };
    buckets.into_par_iter().for_each_init(|| vec![0; BUCKETS], sort);
    all
}

/// Replaces every key by that of its rank in `target`.
fn replace(chunks: &[Dealt], target: &[u32]) {
    let ranks = ranks(chunks);
    let (last, last_wanted) = ((ranks[BUCKETS] - 1).max(1) as u64, target.len() as u64 - 1);
    let wanted = |rank: usize| if last == last_wanted { rank } else { (rank as u64 * last_wanted / last) as usize };
    let replace = |places: &mut Vec<usize>, bucket: usize| {
        keys(chunks, bucket).for_each(|key| places[lower(key.load(Relaxed))] += 1);
        let mut next = ranks[bucket];
        places.iter_mut().for_each(|place| next += std::mem::replace(place, next));
        for key in keys(chunks, bucket) {
            let place = &mut places[lower(key.load(Relaxed))];
            key.store(target[wanted(*place)], Relaxed);
            *place += 1;
        }
        places.fill(0);
    };
    let filled = (0..BUCKETS).into_par_iter().filter(|&bucket| ranks[bucket] < ranks[bucket + 1]);
    filled.for_each_init(|| vec![0; BUCKETS], replace);
}

/// Moves every value `share` of the way to the one of its rank in the target; where their numbers n and m differ, value i
/// of n has the rank floor(i (m-1) / (n-1)). Both come in chunks of at most [`CHUNK`], in the order of their pixels.
pub fn match_ranks(values: Vec<&mut [f32]>, target: &[&[f32]], steps: Steps, share: f32) {
    let target: Vec<Dealt> = target.par_iter().map(|chunk| Dealt::new(chunk, steps)).collect();
    let target = sorted(&target);
    let chunks: Vec<Dealt> = values.par_iter().map(|chunk| Dealt::new(chunk, steps)).collect();
    replace(&chunks, &target);
    values.into_par_iter().zip(chunks).for_each(|(values, chunk)| chunk.take_back(values, steps, share));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(values: &[f32], target: &[f32]) -> Vec<f32> {
        let mut matched = values.to_vec();
        // Steps of an eighth.
        let (steps, target): (_, Vec<&[f32]>) = (Steps::new(-LAST / 16.0, LAST / 16.0), target.chunks(CHUNK).collect());
        match_ranks(matched.chunks_mut(CHUNK).collect(), &target, steps, 1.0);
        matched
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
    fn many_chunks_rank_like_one_sort() {
        let scattered = |factor: usize| move |i: usize| ((i * factor % 100_003) as f32 - 50_000.0) / 8.0;
        let values: Vec<f32> = (0..2 * CHUNK + 77).map(scattered(7919)).collect();
        let target: Vec<f32> = (0..2 * CHUNK + 77).map(scattered(104_729)).map(|v| 3.0 * v).collect();
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        let mut wanted = target.clone();
        wanted.sort_by(f32::total_cmp);
        let got = matched(&values, &target);
        assert!(order.into_iter().zip(wanted).all(|(pixel, wanted)| got[pixel] == wanted));
    }

    #[test]
    fn the_ends_of_a_range_stay_what_they_are() {
        let steps = Steps::new(0.0, 1.0);
        assert_eq!([0.0, 1.0].map(|v| steps.value(steps.key(v))), [0.0, 1.0]);
        let off = |v: f32| (steps.value(steps.key(v)) - v).abs();
        assert!((0..1000).all(|i| off(i as f32 / 999.0) <= 1.5 / LAST));
    }
}
