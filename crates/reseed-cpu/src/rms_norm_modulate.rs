//! RMS norm of tokens with scale and shift: x / √(mean(x²) + ε) ⊙ gain + shift.

use rayon::prelude::*;

use crate::CpuOps;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{elements, elements_mut};
use crate::simd::dispatch::dispatch;
use reseed_ops::reference;
use reseed_ops::{ConvData, Norm, Result, Tensor};

/// Elements that a thread processes at a time.
const CHUNK: usize = 1 << 14;

/// Partial sums: the lanes of the widest register.
const LANES: usize = 16;

/// Runs the op.
pub fn run(cpu: &CpuOps, x: &Tensor, norm: &Norm) -> Result<Tensor> {
    let width = norm.channels;
    assert_eq!(x.channels(), width, "rms_norm_modulate: input {x:?}");
    let ConvData { weight: gain, bias: shift }: &ConvData = cpu.unpack(&norm.packed);
    if cpu.level() == Level::Reference {
        let double = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
        let (gain, shift) = (double(gain), double(shift));
        let y = reference::rms_norm_modulate(&cpu.to_f64(x), &gain, &shift, f64::from(norm.eps));
        return cpu.round_to_tensor(x.shape(), &y);
    }
    let mut y = cpu.allocate("rms_norm_modulate", x.shape(), x.dtype())?;
    let chunk = (CHUNK / width).max(1) * width;
    let level = cpu.simd();
    with_element!(x.dtype(), E => {
        let (from, to) = (elements::<E>(x), elements_mut::<E>(&mut y));
        let chunks = to.par_chunks_mut(chunk).zip(from.par_chunks(chunk));
        cpu.install(|| chunks.for_each(|(to, from)| rows::<E>(level, from, to, [gain, shift], norm.eps)));
    });
    Ok(y)
}

dispatch! {
    /// Whole rows.
    pub fn rows<E: Element>(from: &[E], to: &mut [E], affine: [&[f32]; 2], eps: f32) {
        let [gain, shift] = affine;
        for (from, to) in from.chunks_exact(gain.len()).zip(to.chunks_exact_mut(gain.len())) {
            let scale = 1.0 / (square_sum(from) / gain.len() as f32 + eps).sqrt();
            for (((to, v), gain), shift) in to.iter_mut().zip(from).zip(gain).zip(shift) {
                *to = E::from_f32(v.to_f32() * scale * gain + shift);
            }
        }
    }
}

/// Σ x², with one partial sum for each lane of a register.
#[inline(always)]
pub fn square_sum<E: Element>(x: &[E]) -> f32 {
    let mut sums = [0.0; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for values in whole {
        for (sum, v) in sums.iter_mut().zip(values) {
            *sum += v.to_f32() * v.to_f32();
        }
    }
    for (sum, v) in sums.iter_mut().zip(rest) {
        *sum += v.to_f32() * v.to_f32();
    }
    sums.iter().sum()
}
