//! Rows of a frame between codes and values, in loops that vectors run through.

use crate::wide;

/// The nearest code of a value that counts codes, kept from 0 to `max`; what is no number is 0.
#[inline(always)]
fn nearest(value: f32, max: f32) -> i32 {
    let above = if value > 0.0 { value + 0.5 } else { 0.0 };
    let code = if above < max { above } else { max };
    // SAFETY: a number from 0 to `max`, which is no more than sixteen bits hold.
    unsafe { code.to_int_unchecked() }
}

/// Values from codes: `zero` is the code of 0, `span` the codes from 0 to 1.
#[inline(always)]
fn values(codes: impl Iterator<Item = f32>, [zero, span]: [f32; 2], values: &mut [f32]) {
    values.iter_mut().zip(codes).for_each(|(value, code)| *value = (code - zero) / span);
}

wide! {
    /// Values from codes of eight bits: `scale` is the code of 0, and the codes from 0 to 1.
    pub fn values_of_8(codes: &[u8], scale: [f32; 2], out: &mut [f32]) {
        values(codes.iter().map(|code| f32::from(*code)), scale, out);
    }
}

wide! {
    /// The same from codes of two bytes.
    pub fn values_of_16(codes: &[u8], scale: [f32; 2], out: &mut [f32]) {
        values(codes.chunks_exact(2).map(|c| f32::from(u16::from_le_bytes([c[0], c[1]]))), scale, out);
    }
}

wide! {
    /// Codes of eight bits from values, rounded to nearest and kept from 0 to `max`.
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
fn samples<T>(values: &[f32], [black, white]: [f32; 2], top: f32, cast: impl Fn(i32) -> T, samples: &mut [T]) {
    let span = white - black;
    let code = |value: f32| cast(nearest((value - black) / span * top, top));
    samples.iter_mut().zip(values).for_each(|(sample, value)| *sample = code(*value));
}

wide! {
    /// Samples of eight bits from values between black and white, rounded to nearest and clamped.
    pub fn samples_8(values: &[f32], ends: [f32; 2], out: &mut [u8]) {
        samples(values, ends, 255.0, |code| code as u8, out);
    }
}

wide! {
    /// The same of sixteen bits.
    pub fn samples_16(values: &[f32], ends: [f32; 2], out: &mut [u16]) {
        samples(values, ends, 65535.0, |code| code as u16, out);
    }
}

#[inline(always)]
fn values_between<T: Copy + Into<f32>>(samples: &[T], top: f32, [black, white]: [f32; 2], values: &mut [f32]) {
    let span = white - black;
    values.iter_mut().zip(samples).for_each(|(value, sample)| *value = (*sample).into() / top * span + black);
}

wide! {
    /// Values between black and white from samples of eight bits.
    pub fn values_of_samples_8(samples: &[u8], ends: [f32; 2], out: &mut [f32]) {
        values_between(samples, 255.0, ends, out);
    }
}

wide! {
    /// The same from sixteen bits.
    pub fn values_of_samples_16(samples: &[u16], ends: [f32; 2], out: &mut [f32]) {
        values_between(samples, 65535.0, ends, out);
    }
}

/// Pixels that are brought together or taken apart at a time.
const BLOCK: usize = 64;

#[inline(always)]
fn interleave<T: Copy + Default>(channels: [&[f32]; 3], code: impl Fn(f32) -> T, pixels: &mut [T]) {
    let mut block = [[T::default(); BLOCK]; 3];
    for (i, pixels) in pixels.chunks_mut(3 * BLOCK).enumerate() {
        for (codes, values) in block.iter_mut().zip(channels) {
            codes.iter_mut().zip(&values[i * BLOCK..]).for_each(|(c, value)| *c = code(*value));
        }
        let [r, g, b] = &block;
        for (((pixel, r), g), b) in pixels.as_chunks_mut::<3>().0.iter_mut().zip(r).zip(g).zip(b) {
            *pixel = [*r, *g, *b];
        }
    }
}

wide! {
    /// Pixels of eight bits from red, green and blue in [0, 1], rounded to nearest and clamped.
    pub fn pixels_8(rgb: [&[f32]; 3], pixels: &mut [u8]) {
        interleave(rgb, |value| nearest(value * 255.0, 255.0) as u8, pixels);
    }
}

wide! {
    /// The same of sixteen bits.
    pub fn pixels_16(rgb: [&[f32]; 3], pixels: &mut [u16]) {
        interleave(rgb, |value| nearest(value * 65535.0, 65535.0) as u16, pixels);
    }
}

#[inline(always)]
fn separate<T: Copy + Default + Into<f32>>(pixels: &[T], white: f32, [red, green, blue]: [&mut [f32]; 3]) {
    let mut block = [[T::default(); BLOCK]; 3];
    for (i, pixels) in pixels.chunks(3 * BLOCK).enumerate() {
        let [r, g, b] = &mut block;
        for (((pixel, r), g), b) in pixels.as_chunks::<3>().0.iter().zip(r).zip(g).zip(b) {
            [*r, *g, *b] = *pixel;
        }
        for (codes, values) in block.iter().zip([&mut *red, &mut *green, &mut *blue]) {
            values[i * BLOCK..].iter_mut().zip(codes).for_each(|(value, code)| *value = (*code).into() / white);
        }
    }
}

wide! {
    /// Red, green and blue in [0, 1] from pixels of eight bits.
    pub fn channels_of_8(pixels: &[u8], rgb: [&mut [f32]; 3]) {
        separate(pixels, 255.0, rgb);
    }
}

wide! {
    /// The same from sixteen bits.
    pub fn channels_of_16(pixels: &[u16], rgb: [&mut [f32]; 3]) {
        separate(pixels, 65535.0, rgb);
    }
}

wide! {
    /// Twice as many values along a row, each of two from one and its neighbours; those at the edges are not made.
    pub fn double(row: &[f32], even: [f32; 2], odd: [f32; 2], out: &mut [f32]) {
        for (pair, near) in out.chunks_exact_mut(2).zip(row.windows(3)) {
            pair[0] = near[0] * even[0] + near[1] * even[1];
            pair[1] = near[1] * odd[0] + near[2] * odd[1];
        }
    }
}

wide! {
    /// Half as many values along a row, each from three.
    pub fn halve(row: &[f32], weights: [f32; 3], out: &mut [f32]) {
        let last = 2 * out.len();
        let (first, second, third) = (&row[..last], &row[1..=last], &row[2..]);
        for (i, value) in out.iter_mut().enumerate() {
            *value = first[2 * i] * weights[0] + second[2 * i] * weights[1] + third[2 * i] * weights[2];
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

wide! {
    /// Red, green and blue from luma and chroma.
    pub fn to_rgb(yuv: [&[f32]; 3], weights: [f32; 3], rgb: [&mut [f32]; 3]) {
        let ([y, cb, cr], [kr, kg, kb], [r, g, b]) = (yuv, weights, rgb);
        let n = y.len();
        let (cb, cr, r, g, b) = (&cb[..n], &cr[..n], &mut r[..n], &mut g[..n], &mut b[..n]);
        for i in 0..n {
            r[i] = y[i] + 2.0 * (1.0 - kr) * cr[i];
            b[i] = y[i] + 2.0 * (1.0 - kb) * cb[i];
            g[i] = (y[i] - kr * r[i] - kb * b[i]) / kg;
        }
    }
}

wide! {
    /// Luma and chroma from red, green and blue.
    pub fn to_yuv(rgb: [&[f32]; 3], weights: [f32; 3], yuv: [&mut [f32]; 3]) {
        let ([r, g, b], [kr, kg, kb], [y, cb, cr]) = (rgb, weights, yuv);
        let n = r.len();
        let (g, b, y, cb, cr) = (&g[..n], &b[..n], &mut y[..n], &mut cb[..n], &mut cr[..n]);
        for i in 0..n {
            y[i] = kr * r[i] + kg * g[i] + kb * b[i];
            cb[i] = (b[i] - y[i]) / (2.0 * (1.0 - kb));
            cr[i] = (r[i] - y[i]) / (2.0 * (1.0 - kr));
        }
    }
}
