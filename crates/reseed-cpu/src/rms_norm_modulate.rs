//! Root-mean-square norm of tokens, scaled and shifted.

use rayon::prelude::*;

use super::CpuOps;
use super::level::Level;
use super::leveled::leveled;
use super::memory::{Element, elements, elements_mut, with_element};
use reseed_ops::Result;
use reseed_ops::Tensor;
use reseed_ops::reference;
use reseed_ops::{ConvData, Norm};

/// Elements that a thread works on at a time.
const CHUNK: usize = 1 << 14;

/// Sums side by side: the widest register.
const LANES: usize = 16;

pub fn run(cpu: &CpuOps, x: &Tensor, norm: &Norm) -> Result<Tensor> {
    let width = norm.channels;
    assert_eq!(x.channels(), width, "rms_norm_modulate: input {x:?}");
    let ConvData { weight: gain, bias: shift }: &ConvData = cpu.unpack(&norm.packed);
    if cpu.level() == Level::Reference {
        let double = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
        let (gain, shift) = (double(gain), double(shift));
        let y = reference::rms_norm_modulate(&cpu.doubles(x), &gain, &shift, f64::from(norm.eps));
        return cpu.rounded(x.shape(), &y);
    }
    let mut y = cpu.room("rms_norm_modulate", x.shape(), x.dtype())?;
    let chunk = (CHUNK / width).max(1) * width;
    let level = cpu.simd();
    with_element!(x.dtype(), E => {
        let (from, to) = (elements::<E>(x), elements_mut::<E>(&mut y));
        let pairs = to.par_chunks_mut(chunk).zip(from.par_chunks(chunk));
        cpu.install(|| pairs.for_each(|(to, from)| rows::<E>(level, from, to, [gain, shift], norm.eps)));
    });
    Ok(y)
}

leveled! {
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

/// Σ x², with one sum for each lane of a register.
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
