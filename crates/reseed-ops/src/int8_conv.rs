//! Convolutions of bytes: both operands of a 3x3x3 convolution that follows a group norm with SiLU.
//!
//! A norm gives a channel of gain g and shift b values near b, a few g apart. The largest |silu| of the values within
//! five standard deviations is the bound of the channel: the byte 127 stands for it, and larger values are clipped.
//! Nothing is measured, so that every slice of every clip has the same bytes. The kernels take the bounds of
//! the input channels over; those of one output channel share a scale.
//!
//! The first frames of a clip read sums of kernels ([`ConvSpec::folded`]). These are rounded on their own.

use rayon::prelude::*;

use crate::weights::{ConvData, ConvSpec};

/// Standard deviations of a channel that its bytes cover.
const DEVIATIONS: f64 = 5.0;

/// Where SiLU has its minimum.
const MINIMUM: f64 = -1.278_464_542_761_074;

/// A smaller bound counts as this one: the channel is zero.
const LEAST_BOUND: f64 = 1e-6;

/// Largest relative error of a layer, estimated for independent inputs of a normal distribution. A layer beyond it is
/// multiplied in floats.
const MOST_ERROR: f64 = 0.04;

/// Bytes of one layer.
pub struct Int8Conv {
    /// Bytes per unit of each input channel.
    pub per_unit: Vec<f32>,
    /// `[folded][tap (t, h, w)][c_out][c_in]`: all kernels, then those whose first two, then those whose first three
    /// temporal taps are summed.
    pub kernels: Vec<i8>,
    /// `[folded][c_out]`: the value of one unit of the integer sum, and the bias.
    pub factors: Vec<[f32; 2]>,
}

impl Int8Conv {
    /// Rounds a layer; none if it would be too inaccurate.
    pub fn quantize(norm: &ConvData, spec: &ConvSpec, conv: &ConvData) -> Option<Int8Conv> {
        let channels: Vec<Channel> = norm.weight.iter().zip(&norm.bias).map(|(&g, &b)| Channel::new(g, b)).collect();
        let rows: Vec<Row> =
            conv.weight.par_chunks(spec.c_in * spec.taps.count()).map(|w| row(spec, &channels, w)).collect();
        let (noise, signal) = rows.iter().fold((0.0, 0.0), |(n, s), row| (n + row.noise, s + row.signal));
        if noise > MOST_ERROR * MOST_ERROR * signal {
            return None;
        }
        let (c_in, c_out, taps) = (spec.c_in, spec.c_out, folded_taps(spec));
        let mut kernels = vec![0; taps * c_out * c_in];
        kernels.par_chunks_mut(c_in).enumerate().for_each(|(i, to)| {
            let (tap, o) = (i / c_out, i % c_out);
            to.copy_from_slice(&rows[o].bytes[tap * c_in..][..c_in]);
        });
        let factor = |folded: usize| rows.iter().zip(&conv.bias).map(move |(row, &bias)| [row.scales[folded], bias]);
        let factors = (0..spec.taps.t).flat_map(factor).collect();
        Some(Int8Conv { per_unit: channels.iter().map(|c| (127.0 / c.bound) as f32).collect(), kernels, factors })
    }
}

/// Spatial kernels of a layer, with those of folded temporal taps.
fn folded_taps(spec: &ConvSpec) -> usize {
    (1..=spec.taps.t).sum::<usize>() * spec.taps.h * spec.taps.w
}

/// First spatial kernel of those with `folded` temporal taps summed to one.
pub fn first_kernel(spec: &ConvSpec, folded: usize) -> usize {
    (1..folded).map(|before| spec.taps.t + 1 - before).sum::<usize>() * spec.taps.h * spec.taps.w
}

/// An input channel after norm and SiLU.
struct Channel {
    /// Value of 127 bytes.
    bound: f64,
    /// Mean square.
    power: f64,
}

impl Channel {
    fn new(gain: f32, shift: f32) -> Channel {
        let (gain, shift) = (f64::from(gain), f64::from(shift));
        let at = |deviations: f64| silu(shift + deviations * gain);
        let lowest = (MINIMUM - shift).abs() <= DEVIATIONS * gain.abs();
        let ends = at(DEVIATIONS).abs().max(at(-DEVIATIONS).abs());
        let bound = ends.max(if lowest { silu(MINIMUM).abs() } else { LEAST_BOUND });
        // The expectation, by the trapezoidal rule.
        let points = (-20..=20).map(|i| f64::from(i) / 4.0).map(|z| ((-z * z / 2.0).exp(), at(z)));
        let (weight, square) = points.fold((0.0, 0.0), |(w, s), (density, a)| (w + density, s + density * a * a));
        Channel { bound, power: square / weight }
    }
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// The kernels of one output channel.
struct Row {
    /// `[folded tap][c_in]`.
    bytes: Vec<i8>,
    /// One for each number of folded taps.
    scales: Vec<f32>,
    /// Expected squares of the error and of the result, of all taps.
    noise: f64,
    signal: f64,
}

/// Rounds `[c_in, t, h, w]`.
fn row(spec: &ConvSpec, channels: &[Channel], weight: &[f32]) -> Row {
    let (c_in, time, plane) = (spec.c_in, spec.taps.t, spec.taps.h * spec.taps.w);
    let mut row = Row { bytes: vec![0; folded_taps(spec) * c_in], scales: Vec::new(), noise: 0.0, signal: 0.0 };
    let mut values = vec![0f32; time * plane * c_in];
    for folded in 1..=time {
        let values = &mut values[..(time + 1 - folded) * plane * c_in];
        values.fill(0.0);
        for ((c, channel), taps) in channels.iter().enumerate().zip(weight.chunks_exact(time * plane)) {
            for (i, &w) in taps.iter().enumerate() {
                let t = (i / plane + 1).saturating_sub(folded);
                values[(t * plane + i % plane) * c_in + c] += w * channel.bound as f32;
            }
        }
        let most = values.iter().fold(0f32, |most, v| most.max(v.abs()));
        let inverse = if most > 0.0 { 127.0 / most } else { 0.0 };
        let to = &mut row.bytes[first_kernel(spec, folded) * c_in..];
        to.iter_mut().zip(&*values).for_each(|(byte, v)| *byte = (v * inverse).round_ties_even() as i8);
        row.scales.push(most / 127.0 / 127.0);
        if folded == 1 {
            let step = f64::from(most) / 127.0;
            for (i, (&v, &byte)) in values.iter().zip(&*to).enumerate() {
                let Channel { bound, power } = channels[i % c_in];
                let (v, power) = (f64::from(v), power / (bound * bound));
                row.signal += v * v * power;
                // Values are rounded to 127ths of their bound, weights to what their bytes say.
                row.noise += v * v / (12.0 * 127.0 * 127.0) + (v - f64::from(byte) * step).powi(2) * power;
            }
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Values;
    use crate::shape::Thw;

    const SPEC: ConvSpec =
        ConvSpec { c_in: 5, c_out: 3, taps: Thw::new(3, 3, 3), stride: Thw::new(1, 1, 1), pad_before: 1, pad_after: 1 };

    fn layer() -> (ConvData, ConvData) {
        let mut values = Values::new(3);
        let norm = ConvData { weight: values.take(5), bias: values.take(5) };
        (norm, ConvData { weight: values.take(SPEC.weights()), bias: values.take(3) })
    }

    /// Weight of output o, input c, temporal tap t and spatial tap s.
    fn stored(conv: &ConvData, o: usize, c: usize, t: usize, s: usize) -> f32 {
        conv.weight[((o * 5 + c) * 3 + t) * 9 + s]
    }

    #[test]
    fn kernels_are_within_half_a_step_of_the_weights_and_of_their_sums_over_time() {
        let (norm, conv) = layer();
        let bytes = Int8Conv::quantize(&norm, &SPEC, &conv).unwrap();
        assert_eq!((bytes.kernels.len(), bytes.factors.len()), (6 * 9 * 15, 9));
        for folded in 1..=3 {
            for (t, s, o, c) in (0..4 - folded).flat_map(|t| (0..9 * 15).map(move |i| (t, i / 15, i / 5 % 3, i % 5))) {
                let taps = if t == 0 { 0..folded } else { t + folded - 1..t + folded };
                let wanted: f32 = taps.map(|t| stored(&conv, o, c, t, s)).sum();
                let byte = bytes.kernels[((first_kernel(&SPEC, folded) + t * 9 + s) * 3 + o) * 5 + c];
                // One unit of the sum is a byte of the input times a byte of the kernel.
                let step = bytes.factors[(folded - 1) * 3 + o][0] * bytes.per_unit[c];
                assert!((f32::from(byte) * step - wanted).abs() <= 0.501 * step, "{folded} {t} {s} {o} {c}");
            }
        }
        assert!(bytes.factors.chunks(3).all(|f| f.iter().zip(&conv.bias).all(|(f, &bias)| f[1] == bias)));
    }

    #[test]
    fn bounds_cover_five_deviations() {
        let bound = |gain, shift| Channel::new(gain, shift).bound;
        assert_eq!(bound(1.0, 0.0), silu(5.0));
        assert_eq!(bound(-0.5, 1.0), silu(3.5));
        assert_eq!(bound(1.0, -5.0), silu(MINIMUM).abs());
        assert_eq!(bound(0.125, -9.0), silu(-8.375).abs());
        assert_eq!(bound(0.0, 0.0), LEAST_BOUND);
    }

    #[test]
    fn a_layer_stays_in_floats_if_its_values_are_mostly_much_smaller_than_their_bounds() {
        let of = |shift| ConvData { weight: vec![1.0; 5], bias: vec![shift; 5] };
        assert!(Int8Conv::quantize(&of(0.0), &SPEC, &layer().1).is_some());
        assert!(Int8Conv::quantize(&of(-8.0), &SPEC, &layer().1).is_none());
    }
}
