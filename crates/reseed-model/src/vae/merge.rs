//! `upscale_conv` (1x1x1), the shuffle and `conv` (3x3x3) are linear in a row, so each output phase is one small
//! convolution on the low-resolution grid. Along a doubled axis the three high-resolution taps of a phase fall on two
//! low-resolution positions; the products of kernels that meet at one position are summed, once, at load.

use rayon::prelude::*;
use reseed_ops::{BORDER_CLASSES, ConvData, UpsampleData, UpsampleSpec, matmul};

/// Where a high-resolution tap of an output phase reads: low-resolution tap and sub-position within that pixel.
/// `tap` counts from -1 in space; `phase + tap` is the high-resolution position, in pixels of the doubled axis.
fn fall(phase: usize, tap: isize) -> (usize, usize) {
    let high = phase as isize + tap;
    ((high.div_euclid(2) + 1) as usize - phase, high.rem_euclid(2) as usize)
}

/// The same in time, where a kernel ends at the current frame: taps 0, 1, 2 stand at -2, -1, 0.
fn fall_in_time(spec: &UpsampleSpec, phase: usize, tap: usize) -> (usize, usize) {
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
    /// Output of `upscale_conv`: (row, column, time), as the checkpoint packs it.
    pub sub: usize,
    /// The same when the previous frame is the clip's first, of which only one high-resolution frame exists.
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
            let (tt, sz) = fall_in_time(spec, pz, dt);
            let (ty, sy) = fall(py, dy as isize - 1);
            let (tx, sx) = fall(px, dx as isize - 1);
            let sub = |sz| (sy * 2 + sx) * z_count + sz;
            let first = if spec.time && tt == 0 { 0 } else { sz };
            let to = (tt * 2 + ty) * 2 + tx;
            all.push(Term { phase, tap, sub: sub(sz), sub_after_first: sub(first), to });
        }
    }
    all
}

/// Merges an upsampler's two convolutions.
pub fn merge(spec: &UpsampleSpec, upscale: &ConvData, conv: &ConvData) -> UpsampleData {
    let (c, subs, taps) = (spec.channels, spec.phases(), spec.taps_t() * 4);
    assert_eq!((upscale.weight.len(), conv.weight.len()), (subs * c * c, 27 * c * c), "weights of an upsampler");
    let mut kernels = vec![0.0; subs * c * c * taps];
    let mut after_first = vec![0.0; if spec.time { subs * c * c * 4 } else { 0 }];
    let mut bias = Bias::new(spec, conv);
    let terms = terms(spec);
    for tap in 0..27 {
        let kernel: Vec<f32> = conv.weight.iter().skip(tap).step_by(27).copied().collect(); // (c_out, c_mid)
        // (c_out, c_mid) x (sub, c_mid, c_in) -> (sub, c_out, c_in)
        let products: Vec<Vec<f32>> =
            upscale.weight.chunks_exact(c * c).map(|u| matmul(&kernel, u, c)).collect();
        for term in terms.iter().filter(|term| term.tap == tap) {
            let size = c * c * taps;
            add_strided(&mut kernels[term.phase * size..][..size], taps, term.to, &products[term.sub]);
            if spec.time && term.to < 4 {
                let size = c * c * 4;
                let to = &mut after_first[term.phase * size..][..size];
                add_strided(to, 4, term.to, &products[term.sub_after_first]);
            }
        }
        let shifts: Vec<Vec<f32>> = upscale.bias.chunks_exact(c).map(|b| matmul(&kernel, b, 1)).collect();
        bias.add(tap, &shifts);
    }
    UpsampleData { kernels, after_first, bias: bias.values }
}

/// to[i · step + at] += from[i]
fn add_strided(to: &mut [f32], step: usize, at: usize, from: &[f32]) {
    to.par_chunks_exact_mut(step).zip(from).for_each(|(to, from)| to[at] += from);
}

/// The bias of each kind of output pixel. `upscale_conv`'s bias is absent from the zero padding, so that pixels on the
/// border, whose kernel sticks out, miss some of it.
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

    /// Adds what kernel tap `tap` makes of each sub-position's bias.
    fn add(&mut self, tap: usize, shifts: &[Vec<f32>]) {
        let (spec, c) = (self.spec, self.spec.channels);
        let (dt, dy, dx) = (tap / 9, tap / 3 % 3, tap % 3);
        for (kind, to) in self.values.chunks_exact_mut(c).enumerate() {
            let (column, row) = (kind % BORDER_CLASSES, kind / BORDER_CLASSES % BORDER_CLASSES);
            let (z, moment) = (
                kind / (BORDER_CLASSES * BORDER_CLASSES) % spec.frames(),
                kind / (BORDER_CLASSES * BORDER_CLASSES) / spec.frames(),
            );
            let (Some(sy), Some(sx)) = (sub_of_class(row, dy), sub_of_class(column, dx)) else { continue };
            let (tt, sz) = fall_in_time(spec, z, dt);
            let sz = if moment > 0 && tt == 0 { 0 } else { sz };
            let shift = &shifts[(sy * 2 + sx) * spec.frames() + sz];
            to.iter_mut().zip(shift).for_each(|(to, shift)| *to += shift);
        }
    }
}

/// Sub-position that tap 0, 1 or 2 of a border class reads, or nothing outside the plane.
fn sub_of_class(class: usize, tap: usize) -> Option<usize> {
    let phase = class / 2;
    let outside = (class == 0 && tap == 0) || (class == 3 && tap == 2);
    (!outside).then(|| fall(phase, tap as isize - 1).1)
}
