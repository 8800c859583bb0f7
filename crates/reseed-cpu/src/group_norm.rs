//! Group norm and activation. The statistics are an argument or are computed here.

use rayon::prelude::*;

use crate::CpuOps;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{elements, elements_mut};
use crate::simd::dispatch::{dispatch, exp};
use crate::simd::stats::{self, WIDE};
use crate::tiles::group_norm as tiles;
use reseed_ops::reference;
use reseed_ops::{Activation, ConvData, Norm, Result, Stats, Tensor};

/// Values that a thread processes at a time: half of a core's first-level cache.
const CHUNK: usize = 4096;

/// Runs the op.
pub fn run(cpu: &CpuOps, x: Tensor, given: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
    assert_eq!(x.channels(), norm.channels, "group_norm: input {x:?}");
    if cpu.level() == Level::Reference {
        return run_reference(cpu, &x, given, norm, act);
    }
    let ConvData { weight, bias }: &ConvData = cpu.unpack(&norm.packed);
    with_element!(x.dtype(), E => {
        let stats = match given {
            Some(given) => elements::<f32>(&given).to_vec(),
            None => cpu.install(|| stats::of_tensor::<E>(cpu.simd(), &x, norm.groups)),
        };
        apply::<E>(cpu, x, &Affine::new(&stats, norm, weight, bias), act)
    })
}

fn run_reference(cpu: &CpuOps, x: &Tensor, given: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
    let ConvData { weight, bias }: &ConvData = cpu.unpack(&norm.packed);
    let mut y = cpu.clip(x);
    let stats = match given {
        Some(given) => elements::<f32>(&given).iter().map(|&v| f64::from(v)).collect(),
        None => reference::stats(&y, norm.groups),
    };
    let double = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
    reference::group_norm(&mut y, &stats, &double(weight), &double(bias), f64::from(norm.eps), act);
    Ok(cpu.reference_output(&y, None)?.tensor)
}

/// y = (x - mean) · slope + bias, with the mean and the slope per frame and channel: `[frame][channel]`.
struct Affine {
    mean: Vec<f32>,
    slope: Vec<f32>,
    bias: Vec<f32>,
}

impl Affine {
    fn new(stats: &[f32], norm: &Norm, gain: &[f32], bias: &[f32]) -> Affine {
        let width = norm.channels / norm.groups;
        let (mut means, mut slope) = (Vec::new(), Vec::new());
        for frame in stats.chunks_exact(2 * norm.groups) {
            for (c, gain) in gain.iter().enumerate() {
                let (mean, variance) = (frame[c / width * 2], frame[c / width * 2 + 1]);
                means.push(mean);
                slope.push(gain / (variance + norm.eps).sqrt());
            }
        }
        Affine { mean: means, slope, bias: bias.to_vec() }
    }

    fn frame(&self, t: usize) -> [&[f32]; 3] {
        let channels = self.bias.len();
        [&self.mean[t * channels..][..channels], &self.slope[t * channels..][..channels], &self.bias]
    }
}

fn apply<E: Element>(cpu: &CpuOps, mut x: Tensor, affine: &Affine, act: Activation) -> Result<Tensor> {
    let (channels, thw) = (x.channels(), x.thw());
    let frame = thw.h * thw.w * channels;
    let chunk = (CHUNK / channels).max(1) * channels;
    let (level, registers) = (cpu.simd(), cpu.uses_tiles() && tiles::supports(channels));
    let in_place = |y: &mut [E], affine| match registers {
        true => tiles::in_place(bytemuck::cast_slice_mut(y), affine, act),
        false => in_place::<E>(level, y, affine, act),
    };
    if x.is_unique() {
        let values = elements_mut::<E>(&mut x);
        cpu.install(|| {
            values.par_chunks_mut(frame).enumerate().for_each(|(t, y)| {
                let affine = affine.frame(t);
                y.par_chunks_mut(chunk).for_each(|y| in_place(y, affine));
            })
        });
        return Ok(x);
    }
    let mut y = cpu.allocate("group_norm", x.shape(), x.dtype())?;
    let (from, to) = (elements::<E>(&x), elements_mut::<E>(&mut y));
    cpu.install(|| {
        to.par_chunks_mut(frame).zip(from.par_chunks(frame)).enumerate().for_each(|(t, (y, x))| {
            let affine = affine.frame(t);
            y.par_chunks_mut(chunk).zip(x.par_chunks(chunk)).for_each(|(y, x)| {
                y.copy_from_slice(x);
                in_place(y, affine);
            });
        })
    });
    Ok(y)
}

dispatch! {
    /// Some pixels.
    pub fn in_place<E: Element>(values: &mut [E], affine: [&[f32]; 3], act: Activation) {
        let wide = affine.map(|values| values.as_chunks::<WIDE>().0);
        let rest = affine.map(|values| values.as_chunks::<WIDE>().1);
        for pixel in values.chunks_exact_mut(affine[0].len()) {
            let (chunks, last) = pixel.as_chunks_mut::<WIDE>();
            for (((chunk, mean), slope), bias) in chunks.iter_mut().zip(wide[0]).zip(wide[1]).zip(wide[2]) {
                normalize(chunk, [mean, slope, bias], act);
            }
            normalize(last, rest, act);
        }
    }
}

/// Some channels of a pixel. The mean is subtracted first: folded into the bias it would lose bits to cancellation.
#[inline(always)]
fn normalize<E: Element>(values: &mut [E], [mean, slope, bias]: [&[f32]; 3], act: Activation) {
    let affine = mean.iter().zip(slope).zip(bias);
    match act {
        Activation::None => {
            for (value, ((mean, slope), bias)) in values.iter_mut().zip(affine) {
                *value = E::from_f32((value.to_f32() - mean) * slope + bias);
            }
        }
        Activation::Silu => {
            for (value, ((mean, slope), bias)) in values.iter_mut().zip(affine) {
                let y = (value.to_f32() - mean) * slope + bias;
                *value = E::from_f32(y / (1.0 + exp(-y)));
            }
        }
    }
}
