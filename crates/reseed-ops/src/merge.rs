//! Merges the convolutions of an upsampler. `upscale_conv` (1x1x1), the shuffle and `conv` (3x3x3) are linear, so that
//! each output phase is one small convolution on the low-resolution grid. Along a doubled axis the three
//! high-resolution taps of a phase read two low-resolution positions; the kernels of taps that read the same position
//! are summed once, at load.

use rayon::prelude::*;

use crate::weights::{BORDER_CLASSES, ConvData, Merged, UpsampleData, UpsampleSpec};

/// The low-resolution tap and the sub-position within that pixel that a high-resolution tap of an output phase reads.
/// `tap` counts from -1 in space; `phase + tap` is the high-resolution position, in pixels of the doubled axis.
fn low_tap(phase: usize, tap: isize) -> (usize, usize) {
    let high = phase as isize + tap;
    ((high.div_euclid(2) + 1) as usize - phase, high.rem_euclid(2) as usize)
}

/// The same in time, where a kernel ends at the current frame: taps 0, 1, 2 read frames -2, -1, 0.
fn low_frame_tap(spec: &UpsampleSpec, phase: usize, tap: usize) -> (usize, usize) {
    if !spec.time {
        return (tap, 0);
    }
    let high = (phase + tap) as isize - 2;
    ((high.div_euclid(2) + 1) as usize, high.rem_euclid(2) as usize)
}

/// One product of the merge: kernel tap `tap` after sub-position `sub` goes to `to` of phase `phase`.
pub struct Term {
    /// Output phase, (time, row, column).
    pub phase: usize,
    /// Tap of the 3x3x3 kernel.
    pub tap: usize,
    /// Sub-position in the output of `upscale_conv`: (row, column, time), in the order of the checkpoint.
    pub sub: usize,
    /// The sub-position if the previous frame is the clip's first, which has only one high-resolution frame.
    pub sub_after_first: usize,
    /// Low-resolution tap.
    pub to: usize,
}

/// Every product of a merge.
pub fn terms(spec: &UpsampleSpec) -> Vec<Term> {
    let z_count = spec.frames();
    let mut all = Vec::new();
    for phase in 0..spec.phases() {
        let (pz, py, px) = (phase / 4, phase / 2 % 2, phase % 2);
        for tap in 0..27 {
            let (dt, dy, dx) = (tap / 9, tap / 3 % 3, tap % 3);
            let (tt, sz) = low_frame_tap(spec, pz, dt);
            let (ty, sy) = low_tap(py, dy as isize - 1);
            let (tx, sx) = low_tap(px, dx as isize - 1);
            let sub = |sz| (sy * 2 + sx) * z_count + sz;
            let first = if spec.time && tt == 0 { 0 } else { sz };
            let to = (tt * 2 + ty) * 2 + tx;
            all.push(Term { phase, tap, sub: sub(sz), sub_after_first: sub(first), to });
        }
    }
    all
}

/// A `[m, k]` times B `[k, n]` in f32 on the host; the last argument is n.
pub type HostMatmul = fn(&[f32], &[f32], usize) -> Vec<f32>;

/// Merges the two convolutions of an upsampler, in f32.
pub fn merge(spec: &UpsampleSpec, data: &UpsampleData, matmul: HostMatmul) -> Merged {
    check(spec, data);
    let (c, subs, taps) = (spec.channels, spec.phases(), spec.taps_t() * 4);
    let mut kernels = vec![0.0; subs * c * c * taps];
    let mut after_first = vec![0.0; if spec.time { subs * c * c * 4 } else { 0 }];
    let terms = terms(spec);
    for tap in 0..27 {
        let kernel = kernel_of(tap, data);
        // (c_out, c_mid) x (sub, c_mid, c_in) -> (sub, c_out, c_in)
        let products: Vec<Vec<f32>> = data.upscale.weight.chunks_exact(c * c).map(|u| matmul(&kernel, u, c)).collect();
        for term in terms.iter().filter(|term| term.tap == tap) {
            let size = c * c * taps;
            add_strided(&mut kernels[term.phase * size..][..size], taps, term.to, &products[term.sub]);
            if spec.time && term.to < 4 {
                let size = c * c * 4;
                let to = &mut after_first[term.phase * size..][..size];
                add_strided(to, 4, term.to, &products[term.sub_after_first]);
            }
        }
    }
    Merged { kernels, after_first, bias: bias(spec, data, matmul) }
}

/// Only the merged bias.
pub fn bias(spec: &UpsampleSpec, data: &UpsampleData, matmul: HostMatmul) -> Vec<f32> {
    let (mut bias, c) = (Bias::new(spec, &data.conv), spec.channels);
    // (c_mid, sub), for one product per tap.
    let inner: Vec<f32> = (0..c).flat_map(|i| data.upscale.bias.iter().skip(i).step_by(c)).copied().collect();
    for tap in 0..27 {
        bias.add(tap, &matmul(&kernel_of(tap, data), &inner, spec.phases()));
    }
    bias.values
}

/// Panics if the sizes of the data do not match the layer.
pub fn check(spec: &UpsampleSpec, data: &UpsampleData) {
    let (c, subs) = (spec.channels, spec.phases());
    let sizes = |data: &ConvData| (data.weight.len(), data.bias.len());
    assert_eq!(sizes(&data.upscale), (subs * c * c, subs * c), "upscale of an upsampler");
    assert_eq!(sizes(&data.conv), (27 * c * c, c), "convolution of an upsampler");
}

/// One tap of the 3x3x3 kernel, (c_out, c_mid).
fn kernel_of(tap: usize, data: &UpsampleData) -> Vec<f32> {
    data.conv.weight.iter().skip(tap).step_by(27).copied().collect()
}

/// to[i · step + at] += from[i]
fn add_strided(to: &mut [f32], step: usize, at: usize, from: &[f32]) {
    to.par_chunks_exact_mut(step).zip(from).for_each(|(to, from)| to[at] += from);
}

/// The bias of each kind of output pixel. The zero padding has no bias of `upscale_conv`, so that pixels at the border,
/// whose kernels reach the padding, have a smaller sum.
struct Bias<'a> {
    spec: &'a UpsampleSpec,
    values: Vec<f32>,
}

impl<'a> Bias<'a> {
    fn new(spec: &'a UpsampleSpec, conv: &ConvData) -> Bias<'a> {
        let moments = if spec.time { 3 } else { 1 };
        let kinds = moments * spec.frames() * BORDER_CLASSES * BORDER_CLASSES;
        Bias { spec, values: conv.bias.repeat(kinds) }
    }

    /// Adds the product of kernel tap `tap` and the bias of each sub-position: (c_out, sub).
    fn add(&mut self, tap: usize, shifts: &[f32]) {
        let (spec, c) = (self.spec, self.spec.channels);
        let (dt, dy, dx) = (tap / 9, tap / 3 % 3, tap % 3);
        for (kind, to) in self.values.chunks_exact_mut(c).enumerate() {
            let (column, row) = (kind % BORDER_CLASSES, kind / BORDER_CLASSES % BORDER_CLASSES);
            let (z, moment) = (
                kind / (BORDER_CLASSES * BORDER_CLASSES) % spec.frames(),
                kind / (BORDER_CLASSES * BORDER_CLASSES) / spec.frames(),
            );
            let (Some(sy), Some(sx)) = (sub_of_class(row, dy), sub_of_class(column, dx)) else { continue };
            let (tt, sz) = low_frame_tap(spec, z, dt);
            let sz = if moment > 0 && tt == 0 { 0 } else { sz };
            let shift = shifts[(sy * 2 + sx) * spec.frames() + sz..].iter().step_by(spec.phases());
            to.iter_mut().zip(shift).for_each(|(to, shift)| *to += shift);
        }
    }
}

/// Sub-position that tap 0, 1 or 2 of a border class reads, or `None` outside the plane.
fn sub_of_class(class: usize, tap: usize) -> Option<usize> {
    let phase = class / 2;
    let outside = (class == 0 && tap == 0) || (class == 3 && tap == 2);
    (!outside).then(|| low_tap(phase, tap as isize - 1).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Values;
    use crate::reference::{self, Clip, UpsampleWeights, taps_first};
    use crate::{ConvSpec, Thw};

    /// An upsampler as the checkpoint holds it.
    struct Plain {
        spec: UpsampleSpec,
        data: UpsampleData,
    }

    impl Plain {
        fn new(channels: usize, time: bool, mut numbers: impl FnMut(usize) -> Vec<f32>) -> Plain {
            let (spec, c) = (UpsampleSpec { channels, time }, channels);
            let wide = spec.phases() * c;
            let upscale = ConvData { weight: numbers(wide * c), bias: numbers(wide) };
            let conv = ConvData { weight: numbers(c * c * 27), bias: numbers(c) };
            Plain { spec, data: UpsampleData { upscale, conv } }
        }

        /// The definition, over a whole clip: 1x1x1, shuffle, all but one of the first frame's copies dropped, 3x3x3.
        fn run(&self, x: &Clip) -> Clip {
            let (c, z_count) = (self.spec.channels, self.spec.frames());
            let wide = convolve(x, &self.data.upscale, ConvSpec::same(c, self.spec.phases() * c, Thw::new(1, 1, 1)));
            let Thw { t, h, w } = x.thw;
            let mut high = Clip::zeros(Thw::new(t * z_count, 2 * h, 2 * w), c);
            for (at, to) in high.data.chunks_exact_mut(c).enumerate() {
                let (x, y, f) = (at % (2 * w), at / (2 * w) % (2 * h), at / (4 * h * w));
                let from = wide.pixel(f / z_count, (y / 2) as isize, (x / 2) as isize).unwrap();
                let packed = (y % 2 * 2 + x % 2) * z_count + f % z_count;
                to.copy_from_slice(&from[packed * c..][..c]);
            }
            let kept = (0..t * z_count).filter(|&f| !(self.spec.time && f == 1));
            convolve(&frames(&high, kept), &self.data.conv, ConvSpec::same(c, c, Thw::new(3, 3, 3)))
        }

        /// The merge in double precision.
        fn assemble(&self) -> UpsampleWeights {
            let (spec, c) = (&self.spec, self.spec.channels);
            let mut kernels = vec![vec![0.0; spec.taps_t() * 4 * c * c]; spec.phases()];
            let mut after_first = vec![vec![0.0; 4 * c * c]; if spec.time { spec.phases() } else { 0 }];
            let kernel = |tap: usize, o: usize, m: usize| f64::from(self.data.conv.weight[(o * c + m) * 27 + tap]);
            let upscale = |sub: usize, m: usize, i: usize| f64::from(self.data.upscale.weight[(sub * c + m) * c + i]);
            let add = |to: &mut [f64], term: &Term, sub: usize| {
                for (at, to) in to[term.to * c * c..][..c * c].iter_mut().enumerate() {
                    let (i, o) = (at / c, at % c);
                    *to += (0..c).map(|m| kernel(term.tap, o, m) * upscale(sub, m, i)).sum::<f64>();
                }
            };
            for term in terms(spec) {
                add(&mut kernels[term.phase], &term, term.sub);
                if spec.time && term.to < 4 {
                    add(&mut after_first[term.phase], &term, term.sub_after_first);
                }
            }
            let mut bias = Vec::new();
            let moments = if spec.time { 3 } else { 1 };
            for kind in 0..moments * spec.frames() * BORDER_CLASSES * BORDER_CLASSES {
                let (column, row) = (kind % BORDER_CLASSES, kind / BORDER_CLASSES % BORDER_CLASSES);
                let frame = kind / (BORDER_CLASSES * BORDER_CLASSES);
                let (z, moment) = (frame % spec.frames(), frame / spec.frames());
                let shift = |tap: usize, o: usize| {
                    let (sy, sx) = (sub_of_class(row, tap / 3 % 3)?, sub_of_class(column, tap % 3)?);
                    let (tt, sz) = low_frame_tap(spec, z, tap / 9);
                    let sub = (sy * 2 + sx) * spec.frames() + if moment > 0 && tt == 0 { 0 } else { sz };
                    Some(
                        (0..c).map(|m| kernel(tap, o, m) * f64::from(self.data.upscale.bias[sub * c + m])).sum::<f64>(),
                    )
                };
                let value =
                    |o: usize| f64::from(self.data.conv.bias[o]) + (0..27).filter_map(|t| shift(t, o)).sum::<f64>();
                bias.extend((0..c).map(value));
            }
            UpsampleWeights { kernels, after_first, bias }
        }

        /// The same with every number's size.
        fn sizes(&self) -> Plain {
            let sizes = |values: &[f32]| values.iter().map(|v| v.abs()).collect();
            let of = |data: &ConvData| ConvData { weight: sizes(&data.weight), bias: sizes(&data.bias) };
            Plain { spec: self.spec, data: UpsampleData { upscale: of(&self.data.upscale), conv: of(&self.data.conv) } }
        }

        /// What [`merge`] makes of it.
        fn merged(&self) -> UpsampleWeights {
            let (spec, c) = (&self.spec, self.spec.channels);
            let Merged { kernels, after_first, bias } = merge(spec, &self.data, plain_matmul);
            let split = |all: &[f32], taps| all.chunks_exact(taps * c * c).map(|w| taps_first(w, c, c)).collect();
            UpsampleWeights {
                kernels: split(&kernels, 4 * spec.taps_t()),
                after_first: split(&after_first, 4),
                bias: bias.into_iter().map(f64::from).collect(),
            }
        }
    }

    fn plain_matmul(a: &[f32], b: &[f32], n: usize) -> Vec<f32> {
        let k = b.len() / n;
        let value = |i: usize| (0..k).map(|j| a[i / n * k + j] * b[j * n + i % n]).sum();
        (0..a.len() / k * n).map(value).collect()
    }

    fn convolve(x: &Clip, data: &ConvData, spec: ConvSpec) -> Clip {
        let bias: Vec<f64> = data.bias.iter().map(|&b| f64::from(b)).collect();
        reference::conv(None, x, &spec, &taps_first(&data.weight, spec.c_in, spec.c_out), &bias)
    }

    fn frames(x: &Clip, wanted: impl Iterator<Item = usize>) -> Clip {
        let size = x.data.len() / x.thw.t;
        let data: Vec<f64> = wanted.flat_map(|t| x.data[t * size..][..size].to_vec()).collect();
        Clip { thw: Thw { t: data.len() / size, ..x.thw }, channels: x.channels, data }
    }

    /// Composite upsampling, slice by slice.
    fn composite(spec: &UpsampleSpec, weights: &UpsampleWeights, x: &Clip, slices: &[usize]) -> Vec<f64> {
        let (mut seen, mut out) = (0, Vec::new());
        for &count in slices {
            let cache = (seen > 0)
                .then(|| frames(x, (0..spec.cached_frames()).map(|i| (seen + i).saturating_sub(spec.cached_frames()))));
            let slice = frames(x, seen..seen + count);
            out.extend(reference::upsample(cache.as_ref(), seen == 1, &slice, spec, weights).data);
            seen += count;
        }
        out
    }

    /// Runs `check` for both kinds of upsampler, odd planes, and slices that start everywhere in a clip.
    fn everywhere(numbers: impl Fn(u64, usize) -> Vec<f32>, check: impl Fn(&Plain, &Clip, &[usize])) {
        for time in [true, false] {
            let mut seed = 0;
            let mut next = |count| {
                seed += 1;
                numbers(seed, count)
            };
            let plain = Plain::new(3, time, &mut next);
            for (h, w) in [(1, 1), (1, 2), (3, 5)] {
                let mut x = Clip::zeros(Thw::new(4, h, w), 3);
                x.data = next(x.data.len()).into_iter().map(f64::from).collect();
                for slices in [&[4][..], &[1, 1, 1, 1], &[1, 3], &[2, 2], &[3, 1]] {
                    check(&plain, &x, slices);
                }
            }
        }
    }

    fn fractions(seed: u64, count: usize) -> Vec<f32> {
        Values::new(seed).take(count)
    }

    /// Whole numbers from -3 to 3: their products and sums here stay far below 2^24, so that f32 holds them exactly.
    fn integers(seed: u64, count: usize) -> Vec<f32> {
        Values::new(seed).take(count).into_iter().map(|v| (3.5 * v).round_ties_even().clamp(-3.0, 3.0)).collect()
    }

    #[test]
    fn the_composite_is_the_plain_form() {
        everywhere(fractions, |plain, x, slices| {
            let (want, got) = (plain.run(x).data, composite(&plain.spec, &plain.assemble(), x, slices));
            assert_eq!(got.len(), want.len());
            let largest = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            let error = want.iter().zip(&got).fold(0.0f64, |m, (a, b)| m.max((a - b).abs())) / largest;
            assert!(error <= 1e-12, "{:?}, {} in slices {slices:?}: {error:e}", plain.spec, x.thw);
        });
    }

    #[test]
    fn merging_whole_numbers_is_exact() {
        everywhere(integers, |plain, x, slices| {
            let got = composite(&plain.spec, &plain.merged(), x, slices);
            assert_eq!(got, plain.run(x).data, "{:?}, {} in slices {slices:?}", plain.spec, x.thw);
        });
    }

    // A sum of n products in f32 is off by at most n roundings of the sum of their sizes, whatever the order.
    #[test]
    fn merging_rounds_no_more_than_its_sums_do() {
        const CHANNELS: usize = 35; // more than a panel of the matrix product
        for time in [true, false] {
            let mut seed = 0;
            let plain = Plain::new(CHANNELS, time, |count| {
                seed += 1;
                fractions(seed, count)
            });
            let sizes = plain.sizes();
            let flat = |w: UpsampleWeights| [w.kernels.concat(), w.after_first.concat(), w.bias].concat();
            let roundings = (CHANNELS + 27 + 1) as f64; // of a product, of adding up to 27 of them, of the bias
            let allowed = roundings * f64::from(f32::EPSILON) / 2.0;
            let (got, want, size) = (flat(plain.merged()), flat(plain.assemble()), flat(sizes.assemble()));
            assert!(got.len() == want.len() && got != want);
            for ((got, want), size) in got.iter().zip(&want).zip(&size) {
                assert!((got - want).abs() <= allowed * size, "{got} for {want}, a sum of size {size}");
            }
        }
    }
}
