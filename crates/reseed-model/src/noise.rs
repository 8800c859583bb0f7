//! Seeded noise, generated on the host so that every device uses identical numbers.

use std::f64::consts::TAU;

use rayon::prelude::*;

/// Philox 4x32 with ten rounds: four random words from a counter and a key.
fn philox(mut counter: [u32; 4], key: u64) -> [u32; 4] {
    let (mut k0, mut k1) = (key as u32, (key >> 32) as u32);
    for _ in 0..10 {
        let a = u64::from(counter[0]) * 0xD251_1F53;
        let b = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [(b >> 32) as u32 ^ counter[1] ^ k0, b as u32, (a >> 32) as u32 ^ counter[3] ^ k1, a as u32];
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    counter
}

/// `count` standard normal numbers. Number `i` depends only on the seed and `i`: it is the first number that thread `i`
/// of PyTorch's CUDA generator draws.
pub fn normal(seed: u64, count: usize) -> Vec<f32> {
    let number = |i: usize| {
        let words = philox([0, 0, i as u32, (i as u64 >> 32) as u32], seed);
        let unit = |word: u32| (f64::from(word) + 0.5) / 4_294_967_296.0;
        ((-2.0 * unit(words[0]).ln()).sqrt() * (TAU * unit(words[1])).sin()) as f32
    };
    (0..count).into_par_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_the_generator_of_pytorch_on_cuda() {
        let close = |got: &[f32], want: &[f32]| got.iter().zip(want).all(|(g, w)| (g - w).abs() < 2e-6);
        assert!(close(&normal(42, 4), &[0.19401887, 2.161374, -0.17205061, 0.84906006]));
        assert!(close(&normal(0, 4), &[-0.9246624, -0.42534393, -2.6438458, 0.14518386]));
    }

    #[test]
    fn numbers_do_not_depend_on_the_count() {
        assert_eq!(normal(7, 1000)[..10], normal(7, 10)[..]);
    }

    #[test]
    fn the_moments_are_those_of_a_standard_normal() {
        let n = 100_000;
        let values = normal(3, n);
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n as f64;
        let variance = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / n as f64;
        // Five standard errors: 1/√n for the mean, √(2/n) for the variance.
        assert!(mean.abs() < 5.0 / (n as f64).sqrt(), "mean {mean}");
        assert!((variance - 1.0).abs() < 5.0 * (2.0 / n as f64).sqrt(), "variance {variance}");
    }
}
