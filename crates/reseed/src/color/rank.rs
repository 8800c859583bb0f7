//! Exact histogram matching (rank matching): the i-th smallest value becomes the i-th smallest value of the target.
//! Equal values rank in pixel order.
//!
//! The sort is a radix sort without comparisons. Values are quantised to 24-bit keys, a step below the rounding error
//! that they carry. Each chunk is scattered into buckets by the upper 12 bits of its keys. In each bucket, a counting
//! sort of the lower 12 bits gives the rank of every key. A chunk then gathers its results in the order of the scatter.
//! The work stays in the cache of a core, and the result does not depend on the number of threads.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;
use reseed_media::wide;

/// Values per chunk: a chunk and its buckets fit into the L2 cache of a core.
pub const CHUNK: usize = 1 << 16;
/// Bits per radix digit.
const DIGIT_BITS: u32 = 12;
const BUCKETS: usize = 1 << DIGIT_BITS;
const MAX_KEY: f32 = ((1 << (2 * DIGIT_BITS)) - 1) as f32;
/// Buckets with fewer values than this use a comparison sort.
const SMALL_BUCKET: usize = 256;

/// Converts values of a range to 24-bit keys and back.
#[derive(Clone, Copy)]
pub struct Quantizer {
    low: f32,
    /// Keys per unit.
    scale: f32,
}

impl Quantizer {
    /// Quantisation of values from `low` to `high`.
    pub const fn new(low: f32, high: f32) -> Quantizer {
        Quantizer { low, scale: MAX_KEY / (high - low) }
    }

    #[inline(always)]
    fn key(self, value: f32) -> u32 {
        // f32::max returns 0 for NaN.
        let key = ((value - self.low) * self.scale).max(0.0);
        // SAFETY: the value is a number from 0 to MAX_KEY. A checked conversion would not vectorise.
        unsafe { key.min(MAX_KEY).to_int_unchecked::<i32>() as u32 }
    }

    #[inline(always)]
    fn value(self, key: u32) -> f32 {
        self.low + key as i32 as f32 / self.scale
    }
}

wide! {
    fn keys_of(values: &[f32], quantizer: Quantizer, keys: &mut [u32]) {
        keys.iter_mut().zip(values).for_each(|(key, value)| *key = quantizer.key(*value));
    }
}

wide! {
    /// value ← (1 - weight) · value + weight · value of the key.
    fn blend(keys: &[u32], quantizer: Quantizer, weight: f32, values: &mut [f32]) {
        for (value, key) in values.iter_mut().zip(keys) {
            *value = (1.0 - weight) * *value + weight * quantizer.value(*key);
        }
    }
}

/// The keys of a chunk grouped by bucket, in pixel order within a bucket. Different threads work on different buckets;
/// atomics allow them to write to one vector.
#[derive(Default)]
struct Bucketed {
    keys: Vec<AtomicU32>,
    starts: Vec<u32>,
}

impl Bucketed {
    /// Scatters the keys of `values` into buckets.
    fn scatter(&mut self, values: &[f32], quantizer: Quantizer, keys: &mut Vec<u32>) {
        keys.resize(values.len(), 0);
        keys_of(values, quantizer, keys);
        self.starts.clear();
        self.starts.resize(BUCKETS + 1, 0);
        keys.iter().for_each(|key| self.starts[(key >> DIGIT_BITS) as usize] += 1);
        // Prefix sums give the end of each bucket. The scatter runs backwards and decrements each end to the start.
        let mut end = 0;
        self.starts.iter_mut().for_each(|start| {
            end += *start;
            *start = end;
        });
        self.keys.resize_with(keys.len(), AtomicU32::default);
        for &key in keys.iter().rev() {
            let slot = &mut self.starts[(key >> DIGIT_BITS) as usize];
            *slot -= 1;
            self.keys[*slot as usize].store(key, Relaxed);
        }
    }

    fn bucket(&self, bucket: usize) -> &[AtomicU32] {
        &self.keys[self.starts[bucket] as usize..self.starts[bucket + 1] as usize]
    }

    /// Blends every value with the replaced key in its slot. Consumes the bucket starts.
    fn gather(&mut self, values: &mut [f32], quantizer: Quantizer, weight: f32, keys: &mut Vec<u32>) {
        keys.resize(values.len(), 0);
        keys_of(values, quantizer, keys);
        for key in keys.iter_mut() {
            let slot = &mut self.starts[(*key >> DIGIT_BITS) as usize];
            *key = self.keys[*slot as usize].load(Relaxed);
            *slot += 1;
        }
        blend(keys, quantizer, weight, values);
    }
}

/// The rank of the first key of every bucket, followed by the number of all keys.
fn bucket_ranks(chunks: &[Bucketed]) -> Vec<usize> {
    let mut ranks = vec![0; BUCKETS + 1];
    for chunk in chunks {
        ranks.iter_mut().zip(&chunk.starts).for_each(|(rank, start)| *rank += *start as usize);
    }
    ranks
}

fn lower_digit(key: &AtomicU32) -> usize {
    key.load(Relaxed) as usize % BUCKETS
}

/// Adds the histogram of the lower digits of a bucket to `counts`.
fn count(chunks: &[Bucketed], bucket: usize, counts: &mut [u32]) {
    for chunk in chunks {
        chunk.bucket(bucket).iter().for_each(|key| counts[lower_digit(key)] += 1);
    }
}

/// Sorts all keys into `all`.
fn sort(chunks: &[Bucketed], all: &mut Vec<u32>) {
    let ranks = bucket_ranks(chunks);
    all.resize(ranks[BUCKETS], 0);
    let (mut rest, mut buckets) = (&mut all[..], Vec::new());
    for (bucket, count) in ranks.windows(2).map(|pair| pair[1] - pair[0]).enumerate().filter(|(_, count)| *count > 0) {
        let (keys, more) = rest.split_at_mut(count);
        buckets.push((bucket, keys));
        rest = more;
    }
    let sort = |counts: &mut Vec<u32>, (bucket, out): (usize, &mut [u32])| {
        if out.len() < SMALL_BUCKET {
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

/// Replaces every key by the key of the same rank in the sorted `target`.
fn replace(chunks: &[Bucketed], target: &[u32]) {
    let ranks = bucket_ranks(chunks);
    let (last, last_target) = ((ranks[BUCKETS] - 1).max(1) as u64, target.len() as u64 - 1);
    let target_rank =
        |rank: usize| if last == last_target { rank } else { (rank as u64 * last_target / last) as usize };
    let replace = |offsets: &mut Vec<u32>, bucket: usize| {
        count(chunks, bucket, offsets);
        let mut next = 0;
        offsets.iter_mut().for_each(|offset| next += std::mem::replace(offset, next));
        for chunk in chunks {
            for key in chunk.bucket(bucket) {
                let offset = &mut offsets[lower_digit(key)];
                key.store(target[target_rank(ranks[bucket] + *offset as usize)], Relaxed);
                *offset += 1;
            }
        }
        offsets.fill(0);
    };
    let filled = (0..BUCKETS).into_par_iter().filter(|&bucket| ranks[bucket] < ranks[bucket + 1]);
    filled.for_each_init(|| vec![0; BUCKETS], replace);
}

/// Rank matching with buffers that are reused from call to call.
#[derive(Default)]
pub struct Matcher {
    values: Vec<Bucketed>,
    target: Vec<Bucketed>,
    sorted: Vec<u32>,
}

impl Matcher {
    /// value ← (1 - weight) · value + weight · target value of the same rank. With n values and m target values, rank i
    /// of n maps to rank floor(i (m-1) / (n-1)). Both arguments are chunks of at most [`CHUNK`] values in pixel order.
    pub fn run(&mut self, values: Vec<&mut [f32]>, target: &[&[f32]], quantizer: Quantizer, weight: f32) {
        self.target.resize_with(target.len(), Bucketed::default);
        let chunks = self.target.par_iter_mut().zip(target);
        chunks.for_each_init(Vec::new, |keys, (bucketed, chunk)| bucketed.scatter(chunk, quantizer, keys));
        sort(&self.target, &mut self.sorted);
        self.values.resize_with(values.len(), Bucketed::default);
        let chunks = self.values.par_iter_mut().zip(&values);
        chunks.for_each_init(Vec::new, |keys, (bucketed, chunk)| bucketed.scatter(chunk, quantizer, keys));
        replace(&self.values, &self.sorted);
        let chunks = self.values.par_iter_mut().zip(values);
        chunks.for_each_init(Vec::new, |keys, (bucketed, chunk)| bucketed.gather(chunk, quantizer, weight, keys));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(values: &[f32], target: &[f32]) -> Vec<f32> {
        let mut matched = values.to_vec();
        // Eight keys per unit.
        let quantizer = Quantizer::new(-1_048_576.0, MAX_KEY / 8.0 - 1_048_576.0);
        let target: Vec<&[f32]> = target.chunks(CHUNK).collect();
        Matcher::default().run(matched.chunks_mut(CHUNK).collect(), &target, quantizer, 1.0);
        matched
    }

    #[test]
    fn equal_values_rank_in_pixel_order() {
        assert_eq!(matched(&[0.5, -0.0, 0.5, -3.0, 0.0], &[1.0, 5.0, 3.0, 2.0, 4.0]), [4.0, 2.0, 5.0, 1.0, 3.0]);
    }

    #[test]
    fn ranks_are_scaled_when_the_counts_differ() {
        assert_eq!(matched(&[4.0, 3.0, 2.0, 1.0, 0.0], &[-1.0, 0.0, 7.0]), [7.0, 0.0, 0.0, -1.0, -1.0]);
        assert_eq!(matched(&[9.0], &[3.0, 2.0]), [2.0]);
    }

    #[test]
    fn several_chunks_match_one_comparison_sort() {
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
    fn quantization_is_exact_at_the_ends_of_the_range() {
        let quantizer = Quantizer::new(0.0, 1.0);
        assert_eq!([0.0, 1.0].map(|v| quantizer.value(quantizer.key(v))), [0.0, 1.0]);
        let error = |v: f32| (quantizer.value(quantizer.key(v)) - v).abs();
        assert!((0..1000).all(|i| error(i as f32 / 999.0) <= 1.5 / MAX_KEY));
    }
}
