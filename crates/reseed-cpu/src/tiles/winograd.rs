//! Winograd F(2,3) over rows: four products instead of six for two outputs of a 3-tap filter.
//!
//! ```text
//! d  input rows 2j-1 .. 2j+2        g  kernel rows
//! V = (d0 - d2, d1 + d2, d2 - d1, d1 - d3)
//! U = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, -g2)
//! y(2j) = V0 U0 + (V1 U1 + V2 U2)   y(2j+1) = V3 U3 + (V1 U1 - V2 U2)
//! ```
//! V and U are computed in f32 and rounded to bf16 once. The transform is over rows, not over columns, so that the taps
//! of a row read the same cache lines. With -g2 in U3 the output transform adds to the products V0 U0 and V3 U3 in
//! place.

use half::bf16;

use super::shape::{DEPTH, PANEL, SIDE};
use crate::host::tile_support::available;
use crate::simd::region_sums::{ROW_PANEL, ROW_POSITIONS};
use reseed_ops::ConvSpec;
use reseed_ops::Thw;

const _: () = assert!(PANEL == ROW_PANEL, "the output transform handles one panel");

/// Products for two rows.
pub const POSITIONS: usize = ROW_POSITIONS;
/// Fewest channels for which the saved products outweigh the transforms.
const CHANNELS: usize = 64;
/// Most bytes of transformed weights, so that they stay in a core's second-level cache with the input. Larger weights
/// are read from the third level for every region, and a region of this algorithm has half the size of a direct one.
const BYTES: usize = 5 << 18;

/// Whether this algorithm computes a convolution: 3 x 3 taps, stride 1, and sizes for which it is faster than the
/// direct one.
pub fn supports(spec: &ConvSpec) -> bool {
    let square = spec.taps.h == 3 && spec.taps.w == 3 && spec.stride == Thw::new(1, 1, 1);
    let wide = |channels: usize| channels >= CHANNELS && channels.is_multiple_of(PANEL);
    square && wide(spec.c_in) && wide(spec.c_out) && size_of::<bf16>() * transformed_weights(spec) <= BYTES
}

/// Number of weights of all positions.
fn transformed_weights(spec: &ConvSpec) -> usize {
    spec.weights() / 3 * POSITIONS
}

/// Number of weights of a convolution in the layout of tiles.
pub fn packed_weights(spec: &ConvSpec) -> usize {
    if supports(spec) { transformed_weights(spec) } else { spec.weights() }
}

/// U of a position.
pub fn transform_kernel(position: usize, g: [f32; 3]) -> f32 {
    let (outer, inner) = (0.5 * (g[0] + g[2]), 0.5 * g[1]);
    [g[0], outer + inner, outer - inner, -g[2]][position]
}

/// The channel at index `slot` of the transformed input: [`transform_input`] writes the even channels of a chunk before
/// the odd ones.
pub fn channel(slot: usize) -> usize {
    slot / DEPTH * DEPTH + slot % SIDE * 2 + slot % DEPTH / SIDE
}

/// One line of transformed input: four input rows that become four positions.
pub struct Line<'a> {
    /// The four input rows. Rows outside the plane are empty.
    pub rows: [&'a [bf16]; POSITIONS],
    /// Channels of a pixel.
    pub channels: usize,
    /// Index of the first pixel. It may be outside the row.
    pub first: isize,
    /// Number of pixels.
    pub count: usize,
    /// Stride between chunks of channels.
    pub chunk: usize,
    /// Stride between positions.
    pub position: usize,
}

/// V of a line: `[chunk][position][pixel]`. Pixels outside the plane are zero.
pub fn transform_input(line: &Line, to: &mut [bf16]) {
    let chunks = line.channels / DEPTH;
    assert!(line.channels.is_multiple_of(DEPTH), "Winograd transform of {} channels", line.channels);
    let last = (chunks - 1) * line.chunk + (POSITIONS - 1) * line.position;
    assert!(to.len() >= last + line.count * DEPTH, "a transformed line does not fit");
    assert!(available(), "tiles on a machine without them");
    // SAFETY: a CPU with AMX has AVX-512 with bf16. The asserts above bound all stores.
    unsafe { registers::transform_input(line, to) }
}

#[cfg(not(target_arch = "x86_64"))]
mod registers {
    use super::{DEPTH, Line, POSITIONS, SIDE, bf16};
    use crate::host::element::Element;

    static ZEROS: [bf16; DEPTH] = [bf16::ZERO; DEPTH];

    /// # Safety
    /// None: every access is checked.
    pub unsafe fn transform_input(line: &Line, to: &mut [bf16]) {
        let Line { rows, channels, first, count, chunk, position } = *line;
        for i in 0..count {
            // The index of a pixel left of the row is huge, so that the row does not contain it.
            let x = (first + i as isize) as usize;
            for part in 0..channels / DEPTH {
                let at = x.saturating_mul(channels).saturating_add(part * DEPTH);
                let pixel = |row: &'_ [bf16]| row.get(at..).and_then(|row| row.first_chunk()).copied().unwrap_or(ZEROS);
                let d = rows.map(pixel);
                let mut v = [[bf16::ZERO; DEPTH]; POSITIONS];
                for lane in 0..SIDE {
                    for odd in 0..2 {
                        let [d0, d1, d2, d3] = d.each_ref().map(|d| d[2 * lane + odd].to_f32());
                        for (v, value) in v.iter_mut().zip([d0 - d2, d1 + d2, d2 - d1, d1 - d3]) {
                            v[odd * SIDE + lane] = Element::from_f32(value);
                        }
                    }
                }
                for (k, v) in v.iter().enumerate() {
                    to[part * chunk + k * position + i * DEPTH..][..DEPTH].copy_from_slice(v);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use std::arch::x86_64::*;

    use super::{DEPTH, Line, POSITIONS, bf16};

    /// Pixels by which the input is prefetched.
    const AHEAD: usize = 8;

    /// # Safety
    /// The CPU must have the features below. The number of channels must be a multiple of [`DEPTH`]. `to` must hold
    /// `line.count` pixels of [`DEPTH`] elements at every chunk and position.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub unsafe fn transform_input(line: &Line, to: &mut [bf16]) {
        let Line { rows, channels, first, count, chunk, position } = *line;
        for i in 0..count {
            let x = first + i as isize;
            // The mask of a pixel outside the plane is empty, so that no lane is loaded.
            let mut lanes = [0; POSITIONS];
            for k in 0..POSITIONS {
                let inside = x >= 0 && (x as usize + 1) * channels <= rows[k].len();
                lanes[k] = if inside { !0 } else { 0 };
            }
            for part in 0..channels / DEPTH {
                let at = (x * channels as isize) as usize + part * DEPTH;
                let mut d = [_mm512_setzero_si512(); POSITIONS];
                for k in 0..POSITIONS {
                    let from = rows[k].as_ptr().wrapping_add(at);
                    _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(AHEAD * channels).cast());
                    // SAFETY: the row contains this pixel, or the mask is empty and nothing is read.
                    d[k] = unsafe { _mm512_maskz_loadu_epi16(lanes[k], from.cast()) };
                }
                for (k, v) in transform(d).into_iter().enumerate() {
                    // SAFETY: the caller guarantees `DEPTH` elements of `to` for every pixel, chunk and position.
                    unsafe {
                        let to = to.as_mut_ptr().add(part * chunk + k * position + i * DEPTH);
                        _mm512_storeu_si512(to.cast(), v);
                    }
                }
            }
        }
    }

    /// V of 32 channels.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn transform([d0, d1, d2, d3]: [__m512i; POSITIONS]) -> [__m512i; POSITIONS] {
        let ([e0, o0], [e1, o1], [e2, o2], [e3, o3]) = (widen(d0), widen(d1), widen(d2), widen(d3));
        [
            narrow(_mm512_sub_ps(e0, e2), _mm512_sub_ps(o0, o2)),
            narrow(_mm512_add_ps(e1, e2), _mm512_add_ps(o1, o2)),
            narrow(_mm512_sub_ps(e2, e1), _mm512_sub_ps(o2, o1)),
            narrow(_mm512_sub_ps(e1, e3), _mm512_sub_ps(o1, o3)),
        ]
    }

    /// Even and odd channels in f32: bf16 is the upper half of f32.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn widen(d: __m512i) -> [__m512; 2] {
        let odd = _mm512_and_si512(d, _mm512_set1_epi32(0xFFFF_0000_u32 as i32));
        [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(d)), _mm512_castsi512_ps(odd)]
    }

    /// Rounds to bf16, even channels before odd ones.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn narrow(even: __m512, odd: __m512) -> __m512i {
        // SAFETY: both types are 64 bytes without padding, and every bit pattern is valid.
        unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(odd, even)) }
    }
}
