//! Gives values the distribution of others: the i-th smallest becomes the i-th smallest of the target. Equal values rank
//! in the order of their pixels.
//!
//! Values are whole steps of 2⁻²⁴ of their range, which is less than rounding has left of them. Nothing is compared. A
//! chunk's values are dealt into buckets by the upper half of their bits; bucket by bucket, the lower halves are counted,
//! which says every value's rank; and a chunk takes its results back out of the buckets in the order in which it dealt. All
//! of this happens in a core's cache and gives the same for any number of threads.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;
use reseed_media::wide;

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
        // The larger of 0 and what is no number is 0.
        let steps = ((value - self.low) * self.scale).max(0.0);
        // SAFETY: a number between 0 and LAST. A checked conversion would be done value by value.
        unsafe { steps.min(LAST).to_int_unchecked::<i32>() as u32 }
    }

    #[inline(always)]
    fn value(self, key: u32) -> f32 {
        self.low + key as i32 as f32 / self.scale
    }
}

wide! {
    fn keys_of(values: &[f32], steps: Steps, keys: &mut [u32]) {
        keys.iter_mut().zip(values).for_each(|(key, value)| *key = steps.key(*value));
    }
}

wide! {
    /// Moves values `share` of the way to those of other keys.
    fn move_to(keys: &[u32], steps: Steps, share: f32, values: &mut [f32]) {
        for (value, key) in values.iter_mut().zip(keys) {
            *value = (1.0 - share) * *value + share * steps.value(*key);
        }
    }
}

/// A chunk's keys, bucket after bucket, within a bucket in the order of their pixels. Buckets are worked on by any thread,
/// each by one: atomics only let them write side by side.
#[derive(Default)]
struct Dealt {
    keys: Vec<AtomicU32>,
    starts: Vec<u32>,
}

impl Dealt {
    fn deal(&mut self, values: &[f32], steps: Steps, keys: &mut Vec<u32>) {
        keys.resize(values.len(), 0);
        keys_of(values, steps, keys);
        self.starts.clear();
        self.starts.resize(BUCKETS + 1, 0);
        keys.iter().for_each(|key| self.starts[(key >> HALF) as usize] += 1);
        // Where each bucket ends; dealt from its last to its first, it is left with where it starts.
        let mut end = 0;
        self.starts.iter_mut().for_each(|start| {
            end += *start;
            *start = end;
        });
        self.keys.resize_with(keys.len(), AtomicU32::default);
        for &key in keys.iter().rev() {
            let place = &mut self.starts[(key >> HALF) as usize];
            *place -= 1;
            self.keys[*place as usize].store(key, Relaxed);
        }
    }

    fn bucket(&self, bucket: usize) -> &[AtomicU32] {
        &self.keys[self.starts[bucket] as usize..self.starts[bucket + 1] as usize]
    }

    /// Moves every value `share` of the way to what stands at its key's place. The buckets are spent.
    fn take_back(&mut self, values: &mut [f32], steps: Steps, share: f32, keys: &mut Vec<u32>) {
        keys.resize(values.len(), 0);
        keys_of(values, steps, keys);
        for key in keys.iter_mut() {
            let place = &mut self.starts[(*key >> HALF) as usize];
            *key = self.keys[*place as usize].load(Relaxed);
            *place += 1;
        }
        move_to(keys, steps, share, values);
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

fn lower(key: &AtomicU32) -> usize {
    key.load(Relaxed) as usize % BUCKETS
}

/// Adds up how often each lower half stands in a bucket.
fn count(chunks: &[Dealt], bucket: usize, counts: &mut [u32]) {
    for chunk in chunks {
        chunk.bucket(bucket).iter().for_each(|key| counts[lower(key)] += 1);
    }
}

/// All keys in their order.
fn sort(chunks: &[Dealt], all: &mut Vec<u32>) {
    let ranks = ranks(chunks);
    all.resize(ranks[BUCKETS], 0);
    let (mut rest, mut buckets) = (&mut all[..], Vec::new());
    for (bucket, count) in ranks.windows(2).map(|pair| pair[1] - pair[0]).enumerate().filter(|(_, count)| *count > 0) {
        let (keys, more) = rest.split_at_mut(count);
        buckets.push((bucket, keys));
        rest = more;
    }
    let sort = |counts: &mut Vec<u32>, (bucket, out): (usize, &mut [u32])| {
        if out.len() < FEW {
            let keys = chunks.iter().flat_map(|chunk| chunk.bucket(bucket));
            out.iter_mut().zip(keys).for_each(|(to, key)| *to = key.load(Relaxed));
            return out.sort_unstable();
        }
        count(chunks, bucket, counts);
        let mut out = out.iter_mut();
        for (low, count) in counts.iter_mut().enumerate() {
            for to in out.by_ref().take(std::mem::take(count) as usize) {
                *to = (bucket * BUCKETS + low) as u32;
            }
        }
    };
    buckets.into_par_iter().for_each_init(|| vec![0; BUCKETS], sort);
}

/// Replaces every key by that of its rank in `target`.
fn replace(chunks: &[Dealt], target: &[u32]) {
    let ranks = ranks(chunks);
    let (last, last_wanted) = ((ranks[BUCKETS] - 1).max(1) as u64, target.len() as u64 - 1);
    let wanted = |rank: usize| if last == last_wanted { rank } else { (rank as u64 * last_wanted / last) as usize };
    let replace = |places: &mut Vec<u32>, bucket: usize| {
        count(chunks, bucket, places);
        let mut next = 0;
        places.iter_mut().for_each(|place| next += std::mem::replace(place, next));
        for chunk in chunks {
            for key in chunk.bucket(bucket) {
                let place = &mut places[lower(key)];
                key.store(target[wanted(ranks[bucket] + *place as usize)], Relaxed);
                *place += 1;
            }
        }
        places.fill(0);
    };
    let filled = (0..BUCKETS).into_par_iter().filter(|&bucket| ranks[bucket] < ranks[bucket + 1]);
    filled.for_each_init(|| vec![0; BUCKETS], replace);
}

/// Matches ranks, time after time in the same memory.
#[derive(Default)]
pub struct Matcher {
    values: Vec<Dealt>,
    target: Vec<Dealt>,
    sorted: Vec<u32>,
}

impl Matcher {
    /// Moves every value `share` of the way to the one of its rank in the target; where their numbers n and m differ, value
    /// i of n has the rank floor(i (m-1) / (n-1)). Both come in chunks of at most [`CHUNK`], in the order of their pixels.
    pub fn run(&mut self, values: Vec<&mut [f32]>, target: &[&[f32]], steps: Steps, share: f32) {
        self.target.resize_with(target.len(), Dealt::default);
        let pairs = self.target.par_iter_mut().zip(target);
        pairs.for_each_init(Vec::new, |keys, (dealt, chunk)| dealt.deal(chunk, steps, keys));
        sort(&self.target, &mut self.sorted);
        self.values.resize_with(values.len(), Dealt::default);
        let pairs = self.values.par_iter_mut().zip(&values);
        pairs.for_each_init(Vec::new, |keys, (dealt, chunk)| dealt.deal(chunk, steps, keys));
        replace(&self.values, &self.sorted);
        let pairs = self.values.par_iter_mut().zip(values);
        pairs.for_each_init(Vec::new, |keys, (dealt, chunk)| dealt.take_back(chunk, steps, share, keys));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(values: &[f32], target: &[f32]) -> Vec<f32> {
        let mut matched = values.to_vec();
        // Steps of an eighth.
        let steps = Steps::new(-1_048_576.0, LAST / 8.0 - 1_048_576.0);
        let target: Vec<&[f32]> = target.chunks(CHUNK).collect();
        Matcher::default().run(matched.chunks_mut(CHUNK).collect(), &target, steps, 1.0);
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
