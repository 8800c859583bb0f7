//! Weights for the device: rounded, in the order in which kernels read them.

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use reseed_ops::DType;

/// Element type of weights.
pub trait Element: Pod + Send + Sync {
    /// Rounds to nearest, ties to even.
    fn round(to: &mut [Self], from: &[f32]);
}

impl Element for f32 {
    fn round(to: &mut [f32], from: &[f32]) {
        to.copy_from_slice(from);
    }
}

impl Element for f16 {
    fn round(to: &mut [f16], from: &[f32]) {
        to.convert_from_f32_slice(from);
    }
}

impl Element for bf16 {
    fn round(to: &mut [bf16], from: &[f32]) {
        to.convert_from_f32_slice(from);
    }
}

/// Shape of the weights of a layer on the host: `phases` times `[c_out, c_in, taps]`.
#[derive(Clone, Copy)]
pub struct Order {
    pub phases: usize,
    pub c_out: usize,
    pub c_in: usize,
    pub taps: usize,
}

/// Rounded weights.
pub enum Rounded {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

impl Rounded {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Rounded::F32(values) => bytemuck::cast_slice(values),
            Rounded::F16(values) => bytemuck::cast_slice(values),
            Rounded::Bf16(values) => bytemuck::cast_slice(values),
        }
    }
}

/// From `[phase][c_out][c_in][tap]` to `[phase][tap][c_out][c_in]` of `dtype`.
pub fn taps_first(weight: &[f32], order: Order, dtype: DType) -> Rounded {
    match dtype {
        DType::F32 => Rounded::F32(typed(weight, order)),
        DType::F16 => Rounded::F16(typed(weight, order)),
        DType::Bf16 => Rounded::Bf16(typed(weight, order)),
    }
}

/// The input rows `[c_in][tap]` of one output channel, and the destination of each tap.
struct Channel<'a, E> {
    from: &'a [f32],
    to: Vec<&'a mut [E]>,
}

fn typed<E: Element>(weight: &[f32], order: Order) -> Vec<E> {
    let Order { phases, c_out, c_in, taps } = order;
    assert_eq!(weight.len(), phases * c_out * c_in * taps, "weights of a layer");
    let mut out = vec![E::zeroed(); weight.len()];
    let mut channels: Vec<Channel<E>> =
        weight.chunks_exact(c_in * taps).map(|from| Channel { from, to: Vec::with_capacity(taps) }).collect();
    for (row, to) in out.chunks_exact_mut(c_in).enumerate() {
        let (phase, o) = (row / (taps * c_out), row % c_out);
        channels[phase * c_out + o].to.push(to);
    }
    // One output channel at a time: its input fits into the cache of a core and is read from memory once.
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for part in channels.chunks_mut((phases * c_out).div_ceil(threads)) {
            scope.spawn(|| part.iter_mut().for_each(|channel| channel.split(taps)));
        }
    });
    out
}

impl<E: Element> Channel<'_, E> {
    fn split(&mut self, taps: usize) {
        let mut line = vec![0.0; self.from.len() / taps];
        for (tap, to) in self.to.iter_mut().enumerate() {
            line.iter_mut().zip(self.from.iter().skip(tap).step_by(taps)).for_each(|(to, from)| *to = *from);
            E::round(to, &line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_come_first_and_values_are_rounded() {
        let order = Order { phases: 2, c_out: 3, c_in: 5, taps: 4 };
        let weight: Vec<f32> = (0..120).map(|i| i as f32 + 1.0 / 4096.0).collect();
        let out = taps_first(&weight, order, DType::F16);
        for (i, value) in out.bytes().chunks_exact(2).map(bytemuck::pod_read_unaligned::<f16>).enumerate() {
            let (phase, tap, o, c) = (i / 60, i / 15 % 4, i / 5 % 3, i % 5);
            let from = weight[((phase * 3 + o) * 5 + c) * 4 + tap];
            assert_eq!(value, f16::from_f32(from), "value {i}");
        }
        let exact = taps_first(&weight, order, DType::F32);
        assert_eq!(bytemuck::pod_read_unaligned::<f32>(&exact.bytes()[15 * 4..][..4]), weight[1]);
    }
}
