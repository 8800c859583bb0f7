//! Causal convolution.

use rayon::prelude::*;

use super::CpuOps;
use super::blocked::{Region, Sums, Tap, Window, sum_region};
use super::kernel::Kernel;
use super::level::Level;
use super::leveled::leveled;
use super::memory::{Element, elements, elements_mut, with_element};
use super::stats::{self, Block, Measure};
use crate::error::Result;
use crate::ops::{Epilogue, Past, Summed};
use crate::reference;
use crate::shape::{Hw, Shape, Thw};
use crate::tensor::Tensor;
use crate::weights::{Conv, ConvData, ConvSpec, Packed};

/// Weights of the reference level.
pub struct Plain {
    pub weight: Vec<f64>,
    pub bias: Vec<f64>,
}

/// Weights of the other levels.
pub struct Blocked {
    pub kernel: Kernel,
    pub bias: Vec<f32>,
}

pub fn pack(cpu: &CpuOps, spec: &ConvSpec, data: ConvData) -> Packed {
    let ConvSpec { c_in, c_out, taps, .. } = *spec;
    assert_eq!(data.weight.len(), c_out * c_in * taps.count(), "weight of a convolution");
    assert_eq!(data.bias.len(), c_out, "bias of a convolution");
    let mut weight = data.weight;
    cpu.round(&mut weight);
    if cpu.level() == Level::Reference {
        let bias = data.bias.iter().map(|&b| f64::from(b)).collect();
        return std::sync::Arc::new(Plain { weight: reference::taps_first(&weight, c_in, c_out), bias });
    }
    let kernel = Kernel::pack(cpu, &weight, [taps.t, taps.h * taps.w, c_in, c_out]);
    std::sync::Arc::new(Blocked { kernel, bias: data.bias })
}

pub fn run(cpu: &CpuOps, past: Past, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<Summed> {
    let spec = &conv.spec;
    assert_eq!(x.channels(), spec.c_in, "conv: input {x:?}, weights {spec:?}");
    check_past("conv", past, x, spec.keeps());
    let shape = Shape::clip(spec.output(x.thw(), past.starts()), spec.c_out);
    if let Some(residual) = &epilogue.residual {
        assert_eq!(residual.shape(), shape, "conv: residual");
    }
    if cpu.level() == Level::Reference {
        return plain(cpu, past, x, conv, epilogue);
    }
    let add = epilogue.residual.is_some();
    let mut y = match epilogue.residual {
        Some(residual) => cpu.writable("conv", residual)?,
        None => cpu.room("conv", shape, x.dtype())?,
    };
    let stats = with_element!(x.dtype(), E => blocked::<E>(cpu, past, x, conv, &mut y, add, epilogue.groups));
    Ok(Summed { stats: cpu.stats(stats, y.thw().t)?, tensor: y })
}

fn plain(cpu: &CpuOps, past: Past, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<Summed> {
    let weights: &Plain = cpu.unpack(&conv.packed);
    let past = past.frames().map(|frames| cpu.clip(frames));
    let mut y = reference::conv(past.as_ref(), &cpu.clip(x), &conv.spec, &weights.weight, &weights.bias);
    if let Some(residual) = &epilogue.residual {
        y.data.iter_mut().zip(cpu.clip(residual).data).for_each(|(y, r)| *y += r);
    }
    cpu.plain_result(&y, epilogue.groups)
}

#[expect(clippy::too_many_arguments, reason = "the op's own arguments, once the element type is known")]
fn blocked<E: Element>(
    cpu: &CpuOps,
    past: Past,
    x: &Tensor,
    conv: &Conv,
    y: &mut Tensor,
    add: bool,
    groups: Option<usize>,
) -> Option<Vec<f32>> {
    let (spec, level) = (&conv.spec, cpu.simd());
    let weights: &Blocked = cpu.unpack(&conv.packed);
    let frames = Frames::<E>::new(past, x);
    let (input, output) = (x.thw(), y.thw());
    let window = Window {
        plane: Hw::new(input.h, input.w),
        channels: spec.c_in,
        taps: Hw::new(spec.taps.h, spec.taps.w),
        stride: Hw::new(spec.stride.h, spec.stride.w),
        before: Hw::new(spec.pad_before, spec.pad_before),
    };
    let per_tap = spec.taps.h * spec.taps.w * spec.c_in;
    let folded = |t: usize| if past.starts() { spec.folded(t) } else { 1 };
    let parts: Vec<_> = (0..spec.taps.t).map(|dt| (&weights.kernel, dt)).collect();
    let folds: Vec<Kernel> = (0..output.t)
        .map(folded)
        .take_while(|&folded| folded > 1)
        .map(|folded| cpu.install(|| Kernel::fold(level, &parts[..folded], per_tap)))
        .collect();
    let taps_of = |t: usize| -> Vec<Tap<E>> {
        let folded = folded(t);
        let head = if past.starts() { spec.taps.t - 1 } else { spec.keeps() } as isize;
        let tap = |dt: usize| {
            let frame = frames.at((t * spec.stride.t + dt) as isize - head);
            match dt + 1 == folded && folded > 1 {
                true => Tap { frame, kernel: &folds[t], part: 0 },
                false => Tap { frame, kernel: &weights.kernel, part: dt },
            }
        };
        (folded - 1..spec.taps.t).map(tap).collect()
    };
    let plane = Hw::new(output.h, output.w);
    let regions = weights.kernel.regions(cpu, plane, &window, output.t);
    let out = Target::new(elements_mut::<E>(y));
    let job = |i: usize| {
        let (t, region) = (i / regions.len(), &regions[i % regions.len()]);
        sum_region(level, &window, &taps_of(t), region, |sums| {
            let pixel = |row, column| (((t * plane.h + row) * plane.w + column) * spec.c_out, &weights.bias[..]);
            finish(level, region, sums, &out, Finish { channels: spec.c_out, add, groups, frame: t }, pixel)
        })
    };
    let blocks: Vec<Option<Block>> = cpu.install(|| (0..output.t * regions.len()).into_par_iter().map(job).collect());
    let blocks: Option<Vec<Block>> = blocks.into_iter().collect();
    Some(stats::combine(&blocks?, output.t, spec.c_out, groups?))
}

/// A past of another size would be read as if it were of this one.
pub fn check_past(op: &str, past: Past, x: &Tensor, keeps: usize) {
    if let Some(frames) = past.frames() {
        let needed = Shape::clip(Thw { t: keeps, ..x.thw() }, x.channels());
        assert_eq!(frames.shape(), needed, "{op}: past of an input {x:?}");
    }
}

/// The past and the frames of a slice as one row of frames.
pub struct Frames<'a, E> {
    past: Option<(&'a [E], usize)>,
    x: &'a [E],
    frame: usize,
}

impl<'a, E: Element> Frames<'a, E> {
    pub fn new(past: Past<'a>, x: &'a Tensor) -> Self {
        let thw = x.thw();
        let past = past.frames().map(|p| (elements::<E>(p), p.thw().t));
        Frames { past, x: elements::<E>(x), frame: thw.h * thw.w * x.channels() }
    }

    /// Frame `t` of the slice; negative ones are the past or, at a clip's start, the first frame.
    pub fn at(&self, t: isize) -> &'a [E] {
        let (values, t) = match self.past {
            Some((past, frames)) if t < 0 => (past, (frames as isize + t) as usize),
            _ => (self.x, t.max(0) as usize),
        };
        &values[t * self.frame..][..self.frame]
    }
}

/// Output memory that regions write side by side; no two regions share an element.
pub struct Target<E>(*mut E, usize);

// SAFETY: see the type; the borrow it was made from outlives the jobs.
unsafe impl<E: Send> Sync for Target<E> {}

impl<E> Target<E> {
    pub fn new(values: &mut [E]) -> Target<E> {
        Target(values.as_mut_ptr(), values.len())
    }

    /// # Safety
    /// No other thread may hold a piece that overlaps.
    #[expect(clippy::mut_from_ref, reason = "regions are disjoint, which the borrow checker cannot see")]
    pub unsafe fn piece(&self, start: usize, len: usize) -> &mut [E] {
        assert!(start + len <= self.1, "a piece beyond the output");
        // SAFETY: inside the output, and the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}

/// How sums become output.
pub struct Finish {
    /// Channels of an output pixel.
    pub channels: usize,
    /// Whether the output already holds what is to be added.
    pub add: bool,
    /// Whether statistics are wanted, and for how many groups.
    pub groups: Option<usize>,
    /// Frame of the output.
    pub frame: usize,
}

/// Adds bias and residual, rounds, stores, and measures what was stored. `pixel` tells where a pixel of the region
/// goes and which bias it gets.
pub fn finish<'a, E: Element>(
    level: Level,
    region: &Region,
    sums: Sums,
    out: &Target<E>,
    how: Finish,
    pixel: impl Fn(usize, usize) -> (usize, &'a [f32]),
) -> Option<Block> {
    let first = region.panels.start * sums.width;
    let channels = (region.panels.len() * sums.width).min(how.channels - first);
    let mut measure = how.groups.map(|_| Measure::default());
    for (row, line) in region.rows.clone().zip(sums.values.chunks_mut(sums.line * sums.pixel)) {
        for (column, values) in region.columns.clone().zip(line.chunks_exact_mut(sums.pixel)) {
            let (at, bias) = pixel(row, column);
            // SAFETY: regions differ in pixels or in channels.
            let out = unsafe { out.piece(at + first, channels) };
            let values = &mut values[..channels];
            store::<E>(level, values, &bias[first..][..channels], out, how.add);
            if let Some(measure) = &mut measure {
                measure.add(level, values);
            }
        }
    }
    measure.map(|measure| measure.block(how.frame, first))
}

leveled! {
    /// One pixel's channels.
    pub fn store<E: Element>(values: &mut [f32], bias: &[f32], out: &mut [E], add: bool) {
        for ((value, bias), out) in values.iter_mut().zip(bias).zip(out) {
            let residual = if add { out.to_f32() } else { 0.0 };
            let y = E::from_f32(*value + bias + residual);
            *out = y;
            *value = y.to_f32();
        }
    }
}
