//! Convolutions of three rows, two output rows at a time: four products instead of six (Winograd's F(2, 3)).
//!
//! ```text
//! d  input rows 2j-1 .. 2j+2        g  the kernel's rows
//! V = (d0 - d2, d1 + d2, d2 - d1, d1 - d3)
//! U = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, -g2)
//! y(2j) = V0 U0 + (V1 U1 + V2 U2)   y(2j+1) = V3 U3 + (V1 U1 - V2 U2)
//! ```
//! V and U are made in f32 and rounded to bf16 once. Rows rather than columns are paired, so that the taps of a row still
//! read the same cache lines.

use half::bf16;

use super::{DEPTH, PANEL, SIDE};
use crate::leveled::leveled;
use reseed_ops::ConvSpec;
use reseed_ops::Thw;

/// Products of a pair.
pub const POSITIONS: usize = 4;

/// Fewest channels that pay for the second copy of the input and for the sums.
const CHANNELS: usize = 64;
/// Most bytes of weights: what stays in a core's second-level cache beside the input. Larger ones would come from further away
/// for every region, and regions are half as large here.
const BYTES: usize = 5 << 18;

/// Whether a convolution is one of these, and worth it.
pub fn fits(spec: &ConvSpec) -> bool {
    let square = spec.taps.h == 3 && spec.taps.w == 3 && spec.stride == Thw::new(1, 1, 1);
    let wide = |channels: usize| channels >= CHANNELS && channels.is_multiple_of(PANEL);
    square && wide(spec.c_in) && wide(spec.c_out) && size_of::<bf16>() * numbers(spec) <= BYTES
}

/// Numbers of the kernels of all positions.
fn numbers(spec: &ConvSpec) -> usize {
    spec.weights() / 3 * POSITIONS
}

/// Numbers of a convolution's weights as tiles read them.
pub fn weights(spec: &ConvSpec) -> usize {
    if fits(spec) { numbers(spec) } else { spec.weights() }
}

/// U of a position.
pub fn kernel(position: usize, g: [f32; 3]) -> f32 {
    let (outer, inner) = (0.5 * (g[0] + g[2]), 0.5 * g[1]);
    [g[0], outer + inner, outer - inner, -g[2]][position]
}

/// The channel that stands `slot`-th among the input's: [`spread`] writes the even ones of a chunk before the odd ones.
pub fn channel(slot: usize) -> usize {
    slot / DEPTH * DEPTH + slot % SIDE * 2 + slot % DEPTH / SIDE
}

/// A line of pairs in the making.
pub struct Line<'a> {
    /// The four rows that it reads, empty where they lie outside the plane.
    pub rows: [&'a [bf16]; POSITIONS],
    /// Channels of a pixel.
    pub channels: usize,
    /// The first pixel.
    pub first: isize,
    /// Number of pixels.
    pub count: usize,
    /// Elements from a chunk of channels to the next.
    pub chunk: usize,
    /// Elements from a position to the next.
    pub position: usize,
}

/// V of a line: `[chunk][position][pixel]`, zeros where there is no pixel.
pub fn spread(line: &Line, to: &mut [bf16]) {
    let chunks = line.channels / DEPTH;
    assert!(line.channels.is_multiple_of(DEPTH), "pairs of {} channels", line.channels);
    let last = (chunks - 1) * line.chunk + (POSITIONS - 1) * line.position;
    assert!(to.len() >= last + line.count * DEPTH, "a line of pairs does not fit");
    assert!(super::available(), "tiles on a machine without AMX");
    // SAFETY: machines with AMX have AVX-512 with bf16, and the asserts above bound what is written.
    unsafe { registers::spread(line, to) }
}

leveled! {
    /// Makes rows of sums from products, in the place of the first and the last: `columns` pixels, `pixel` floats apart.
    pub fn combine(m: [&mut [f32]; POSITIONS], columns: usize, pixel: usize) {
        let [m0, m1, m2, m3] = m.map(|m| m.chunks_mut(pixel).take(columns));
        for ((m0, m1), (m2, m3)) in m0.zip(m1).zip(m2.zip(m3)) {
            let (m0, m1, m2, m3) = (&mut m0[..PANEL], &m1[..PANEL], &m2[..PANEL], &mut m3[..PANEL]);
            for i in 0..PANEL {
                m0[i] += m1[i] + m2[i];
                m3[i] += m1[i] - m2[i];
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod registers {
    use super::{Line, bf16};

    pub unsafe fn spread(_: &Line, _: &mut [bf16]) {
        unreachable!("tiles on a machine without AMX");
    }
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use std::arch::x86_64::*;

    use super::{DEPTH, Line, POSITIONS, bf16};

    /// Pixels by which input is prefetched ahead.
    const AHEAD: usize = 8;

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub unsafe fn spread(line: &Line, to: &mut [bf16]) {
        let Line { rows, channels, first, count, chunk, position } = *line;
        for i in 0..count {
            let x = first + i as isize;
            // Pixels outside the plane are read by no lane.
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
                    // SAFETY: the row has this pixel, or there is no lane.
                    d[k] = unsafe { _mm512_maskz_loadu_epi16(lanes[k], from.cast()) };
                }
                for (k, v) in positions(d).into_iter().enumerate() {
                    // SAFETY: the caller has checked the sizes.
                    unsafe {
                        let to = to.as_mut_ptr().add(part * chunk + k * position + i * DEPTH);
                        _mm512_storeu_si512(to.cast(), v);
                    }
                }
            }
        }
    }

    /// V of two by sixteen channels.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn positions([d0, d1, d2, d3]: [__m512i; POSITIONS]) -> [__m512i; POSITIONS] {
        let ([e0, o0], [e1, o1], [e2, o2], [e3, o3]) = (widen(d0), widen(d1), widen(d2), widen(d3));
        [
            narrow(_mm512_sub_ps(e0, e2), _mm512_sub_ps(o0, o2)),
            narrow(_mm512_add_ps(e1, e2), _mm512_add_ps(o1, o2)),
            narrow(_mm512_sub_ps(e2, e1), _mm512_sub_ps(o2, o1)),
            narrow(_mm512_sub_ps(e1, e3), _mm512_sub_ps(o1, o3)),
        ]
    }

    /// Even and odd channels; bf16 is the upper half of f32.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn widen(d: __m512i) -> [__m512; 2] {
        let odd = _mm512_and_si512(d, _mm512_set1_epi32(0xFFFF_0000_u32 as i32));
        [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(d)), _mm512_castsi512_ps(odd)]
    }

    /// Even channels before odd ones.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn narrow(even: __m512, odd: __m512) -> __m512i {
        // SAFETY: sixty-four bytes either way.
        unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(odd, even)) }
    }
}
