//! Conversion of rows between codes and values, in loops that the compiler vectorises.

use crate::wide;
use crate::wide::Divisor;

/// Rounds a value in codes to the nearest code in 0..=`max`; NaN becomes 0.
#[inline(always)]
fn nearest(value: f32, max: f32) -> i32 {
    let above = if value > 0.0 { value + 0.5 } else { 0.0 };
    let code = if above < max { above } else { max };
    // SAFETY: `code` is in 0..=`max`, and `max` fits sixteen bits.
    unsafe { code.to_int_unchecked() }
}

/// Values from codes: `zero` is the code of 0, `span` the number of codes from 0 to 1.
#[inline(always)]
fn values<const FUSED: bool>(codes: impl Iterator<Item = f32>, [zero, span]: [f32; 2], values: &mut [f32]) {
    let span = Divisor::new(span);
    values.iter_mut().zip(codes).for_each(|(value, code)| *value = span.divide::<FUSED>(code - zero));
}

wide! {
    /// Values from codes of eight bits; `scale` is the code of 0 and the number of codes from 0 to 1.
    pub fn values_of_8(codes: &[u8], scale: [f32; 2], out: &mut [f32]) {
        values::<FUSED>(codes.iter().map(|code| f32::from(*code)), scale, out);
    }
}

wide! {
    /// The same from codes of two bytes.
    pub fn values_of_16(codes: &[u8], scale: [f32; 2], out: &mut [f32]) {
        values::<FUSED>(codes.chunks_exact(2).map(|c| f32::from(u16::from_le_bytes([c[0], c[1]]))), scale, out);
    }
}

wide! {
    /// Codes of eight bits from values, rounded to nearest and clamped to 0..=`max`.
    pub fn codes_of_8(values: &[f32], scale: [f32; 2], max: f32, codes: &mut [u8]) {
        let [zero, span] = scale;
        codes.iter_mut().zip(values).for_each(|(code, value)| *code = nearest(value * span + zero, max) as u8);
    }
}

wide! {
    /// The same to codes of two bytes.
    pub fn codes_of_16(values: &[f32], scale: [f32; 2], max: f32, codes: &mut [u8]) {
        let [zero, span] = scale;
        for (code, value) in codes.chunks_exact_mut(2).zip(values) {
            code.copy_from_slice(&(nearest(value * span + zero, max) as u16).to_le_bytes());
        }
    }
}

#[inline(always)]
fn samples<T>(values: &[f32], ends: [f32; 2], top: f32, cast: impl Fn(i32) -> T, samples: &mut [T]) {
    let inverse = inverse(ends);
    let code = |value: f32| cast(nearest((value - ends[0]) * inverse * top, top));
    samples.iter_mut().zip(values).for_each(|(sample, value)| *sample = code(*value));
}

wide! {
    /// Samples of eight bits from values between black and white, rounded to nearest and clamped.
    pub fn samples_8(values: &[f32], ends: [f32; 2], out: &mut [u8]) {
        samples(values, ends, 255.0, |code| code as u8, out);
    }
}

wide! {
    /// The same for samples of sixteen bits.
    pub fn samples_16(values: &[f32], ends: [f32; 2], out: &mut [u16]) {
        samples(values, ends, 65535.0, |code| code as u16, out);
    }
}

wide! {
    /// Values in 0..=1 from values between black and white, clamped and not rounded; NaN becomes 0.
    pub fn samples_float(values: &[f32], ends: [f32; 2], out: &mut [f32]) {
        let inverse = inverse(ends);
        let unit = |value: f32| (value - ends[0]) * inverse;
        out.iter_mut().zip(values).for_each(|(sample, value)| *sample = clamped(unit(*value)));
    }
}

wide! {
    /// Values between black and white from values in 0..=1.
    pub fn values_of_samples_float(samples: &[f32], ends: [f32; 2], out: &mut [f32]) {
        let [black, white] = ends;
        let span = white - black;
        out.iter_mut().zip(samples).for_each(|(value, sample)| *value = clamped(*sample) * span + black);
    }
}

/// The nearest value in 0..=1; NaN becomes 0.
#[inline(always)]
fn clamped(value: f32) -> f32 {
    let low = if value > 0.0 { value } else { 0.0 };
    if low < 1.0 { low } else { 1.0 }
}

/// The inverse of the distance of black and white, which is exact.
#[inline(always)]
fn inverse([black, white]: [f32; 2]) -> f32 {
    let inverse = 1.0 / (white - black);
    assert!(inverse.to_bits().trailing_zeros() >= f32::MANTISSA_DIGITS - 1, "black and white differ by a power of two");
    inverse
}

#[inline(always)]
fn values_between<const FUSED: bool, T: Copy + Into<f32>>(
    samples: &[T],
    top: f32,
    [black, white]: [f32; 2],
    values: &mut [f32],
) {
    let (top, span) = (Divisor::new(top), white - black);
    let value = |sample: f32| top.divide::<FUSED>(sample) * span + black;
    values.iter_mut().zip(samples).for_each(|(to, sample)| *to = value((*sample).into()));
}

wide! {
    /// Values between black and white from samples of eight bits.
    pub fn values_of_samples_8(samples: &[u8], ends: [f32; 2], out: &mut [f32]) {
        values_between::<FUSED, _>(samples, 255.0, ends, out);
    }
}

wide! {
    /// The same from sixteen bits.
    pub fn values_of_samples_16(samples: &[u16], ends: [f32; 2], out: &mut [f32]) {
        values_between::<FUSED, _>(samples, 65535.0, ends, out);
    }
}

/// Pixels per block of interleaving; large enough that a store does not stall the following loads.
const BLOCK: usize = 256;

/// The conversion between RGB and YUV: Y = kr R + kg G + kb B.
#[derive(Clone, Copy)]
struct YuvMatrix {
    kr: f32,
    kg: f32,
    kb: f32,
    green: Divisor,
    cb_scale: Divisor,
    cr_scale: Divisor,
}

impl YuvMatrix {
    fn new([kr, kg, kb]: [f32; 3]) -> YuvMatrix {
        let [green, cb_scale, cr_scale] = [kg, 2.0 * (1.0 - kb), 2.0 * (1.0 - kr)].map(Divisor::new);
        YuvMatrix { kr, kg, kb, green, cb_scale, cr_scale }
    }

    /// R = Y + 2 (1 - kr) Cr
    /// G = (Y - kr R - kb B) / kg
    /// B = Y + 2 (1 - kb) Cb
    #[inline(always)]
    fn rgb<const FUSED: bool>(self, y: f32, cb: f32, cr: f32) -> [f32; 3] {
        let YuvMatrix { kr, kb, green, .. } = self;
        let (r, b) = (y + 2.0 * (1.0 - kr) * cr, y + 2.0 * (1.0 - kb) * cb);
        [r, green.divide::<FUSED>(y - kr * r - kb * b), b]
    }

    /// Cb = (B - Y) / 2 (1 - kb)
    /// Cr = (R - Y) / 2 (1 - kr)
    #[inline(always)]
    fn yuv<const FUSED: bool>(self, r: f32, g: f32, b: f32) -> [f32; 3] {
        let YuvMatrix { kr, kg, kb, cb_scale, cr_scale, .. } = self;
        let y = kr * r + kg * g + kb * b;
        [y, cb_scale.divide::<FUSED>(b - y), cr_scale.divide::<FUSED>(r - y)]
    }
}

#[inline(always)]
fn interleave<const FUSED: bool, C: Copy, T: Copy + Default>(
    luma: (&[C], impl Fn(C) -> f32),
    [cb, cr]: [&[f32]; 2],
    weights: [f32; 3],
    code: impl Fn(f32) -> T,
    pixels: &mut [T],
) {
    let ((luma, value), mix) = (luma, YuvMatrix::new(weights));
    let mut block = [[T::default(); BLOCK]; 3];
    for (i, pixels) in pixels.chunks_mut(3 * BLOCK).enumerate() {
        let at = i * BLOCK;
        let [r, g, b] = &mut block;
        let yuv = luma[at..].iter().zip(&cb[at..]).zip(&cr[at..]);
        for (((r, g), b), ((luma, cb), cr)) in r.iter_mut().zip(&mut *g).zip(&mut *b).zip(yuv) {
            [*r, *g, *b] = mix.rgb::<FUSED>(value(*luma), *cb, *cr).map(&code);
        }
        for (((pixel, r), g), b) in pixels.as_chunks_mut::<3>().0.iter_mut().zip(r).zip(g).zip(b) {
            *pixel = [*r, *g, *b];
        }
    }
}

wide! {
    /// Pixels of eight bits, rounded to nearest and clamped, from luma codes with their scale and chroma values.
    pub fn pixels_8(luma: &[u8], scale: [f32; 2], chroma: [&[f32]; 2], weights: [f32; 3], pixels: &mut [u8]) {
        let ([zero, span], code) = (scale, |value| nearest(value * 255.0, 255.0) as u8);
        let span = Divisor::new(span);
        let value = |code| span.divide::<FUSED>(f32::from(code) - zero);
        interleave::<FUSED, _, _>((luma, value), chroma, weights, code, pixels);
    }
}

wide! {
    /// The same for pixels of sixteen bits, from codes of two bytes.
    pub fn pixels_16(luma: &[u8], scale: [f32; 2], chroma: [&[f32]; 2], weights: [f32; 3], pixels: &mut [u16]) {
        let ([zero, span], code) = (scale, |value| nearest(value * 65535.0, 65535.0) as u16);
        let span = Divisor::new(span);
        let value = |code| span.divide::<FUSED>(f32::from(u16::from_le_bytes(code)) - zero);
        interleave::<FUSED, _, _>((luma.as_chunks::<2>().0, value), chroma, weights, code, pixels);
    }
}

#[inline(always)]
fn separate<const FUSED: bool, T: Copy + Default + Into<f32>, C>(
    (pixels, white): (&[T], f32),
    weights: [f32; 3],
    luma: &mut [C],
    code: impl Fn(f32) -> C,
    [cb, cr]: [&mut [f32]; 2],
) {
    let (white, mix) = (Divisor::new(white), YuvMatrix::new(weights));
    let mut block = [[T::default(); BLOCK]; 3];
    for (i, pixels) in pixels.chunks(3 * BLOCK).enumerate() {
        let at = i * BLOCK;
        let [r, g, b] = &mut block;
        for (((pixel, r), g), b) in pixels.as_chunks::<3>().0.iter().zip(&mut *r).zip(&mut *g).zip(&mut *b) {
            [*r, *g, *b] = *pixel;
        }
        let yuv = luma[at..].iter_mut().zip(&mut cb[at..]).zip(&mut cr[at..]);
        for (((r, g), b), ((luma, cb), cr)) in r.iter().zip(&*g).zip(&*b).zip(yuv) {
            let [r, g, b] = [*r, *g, *b].map(|sample| white.divide::<FUSED>(sample.into()));
            let y;
            [y, *cb, *cr] = mix.yuv::<FUSED>(r, g, b);
            *luma = code(y);
        }
    }
}

wide! {
    /// Luma codes and chroma values from pixels of eight bits; `scale` is the code of 0, the number of codes from 0 to
    /// 1, and the largest code.
    pub fn planes_8(pixels: &[u8], weights: [f32; 3], scale: [f32; 3], luma: &mut [u8], chroma: [&mut [f32]; 2]) {
        let [zero, span, max] = scale;
        let code = |value: f32| nearest(value * span + zero, max) as u8;
        separate::<FUSED, _, _>((pixels, 255.0), weights, luma, code, chroma);
    }
}

wide! {
    /// The same from sixteen bits to codes of two bytes.
    pub fn planes_16(pixels: &[u16], weights: [f32; 3], scale: [f32; 3], luma: &mut [u8], chroma: [&mut [f32]; 2]) {
        let [zero, span, max] = scale;
        let code = |value: f32| (nearest(value * span + zero, max) as u16).to_le_bytes();
        separate::<FUSED, _, _>((pixels, 65535.0), weights, luma.as_chunks_mut::<2>().0, code, chroma);
    }
}

wide! {
    /// Doubles a row: two outputs for each input that has two neighbours, from the input and one neighbour each.
    pub fn double(row: &[f32], even: [f32; 2], odd: [f32; 2], out: &mut [f32]) {
        for (pair, near) in out.chunks_exact_mut(2).zip(row.windows(3)) {
            pair[0] = near[0] * even[0] + near[1] * even[1];
            pair[1] = near[1] * odd[0] + near[2] * odd[1];
        }
    }
}

wide! {
    /// Halves a row: one output for two inputs, from these and the next.
    pub fn halve(row: &[f32], weights: [f32; 3], out: &mut [f32]) {
        let pairs = &row.as_chunks::<2>().0[..out.len()];
        let next = &row[2..].as_chunks::<2>().0[..out.len()];
        for ((value, [first, second]), [third, _]) in out.iter_mut().zip(pairs).zip(next) {
            *value = first * weights[0] + second * weights[1] + third * weights[2];
        }
    }
}

wide! {
    /// A weighted sum of three rows.
    pub fn blend(rows: [&[f32]; 3], weights: [f32; 3], out: &mut [f32]) {
        let [a, b, c] = rows.map(|row| &row[..out.len()]);
        for (i, value) in out.iter_mut().enumerate() {
            *value = a[i] * weights[0] + b[i] * weights[1] + c[i] * weights[2];
        }
    }
}
