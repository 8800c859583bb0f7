//! Causal convolution.

use rayon::prelude::*;

use super::CpuOps;
use super::blocked::{ENOUGH, Tap, Taps, Window, sum_region};
use super::finish::{Finish, Target};
use super::kernel::Kernel;
use super::level::Level;
use super::memory::{Element, elements, elements_mut, with_element};
use super::stats;
use reseed_ops::Result;
use reseed_ops::Tensor;
use reseed_ops::reference;
use reseed_ops::{Conv, ConvData, ConvSpec, Packed};
use reseed_ops::{ConvOutput, Epilogue, TemporalCache};
use reseed_ops::{Hw, Shape, Thw};

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
    if cpu.level() == Level::Reference {
        cpu.round(&mut weight);
        let bias = data.bias.iter().map(|&b| f64::from(b)).collect();
        return std::sync::Arc::new(Plain { weight: reference::taps_first(&weight, c_in, c_out), bias });
    }
    std::sync::Arc::new(Blocked { kernel: Kernel::pack(cpu, weight, spec), bias: data.bias })
}

pub fn run(cpu: &CpuOps, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
    let spec = &conv.spec;
    assert_eq!(x.channels(), spec.c_in, "conv: input {x:?}, weights {spec:?}");
    check_past("conv", cache, x, spec.cached_frames());
    let shape = Shape::clip(spec.output(x.thw(), cache.starts()), spec.c_out);
    if let Some(residual) = &epilogue.residual {
        assert_eq!(residual.shape(), shape, "conv: residual");
    }
    if cpu.level() == Level::Reference {
        return plain(cpu, cache, x, conv, epilogue);
    }
    let add = epilogue.residual.is_some();
    let mut y = match epilogue.residual {
        Some(residual) => cpu.writable("conv", residual)?,
        None => cpu.room("conv", shape, x.dtype())?,
    };
    let stats = with_element!(x.dtype(), E => blocked::<E>(cpu, cache, x, conv, &mut y, add, epilogue.groups));
    Ok(ConvOutput { stats: cpu.stats(stats, y.thw().t)?, tensor: y })
}

fn plain(cpu: &CpuOps, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
    let weights: &Plain = cpu.unpack(&conv.packed);
    let cache = cache.frames().map(|frames| cpu.clip(frames));
    let mut y = reference::conv(cache.as_ref(), &cpu.clip(x), &conv.spec, &weights.weight, &weights.bias);
    if let Some(residual) = &epilogue.residual {
        y.data.iter_mut().zip(cpu.clip(residual).data).for_each(|(y, r)| *y += r);
    }
    cpu.plain_result(&y, epilogue.groups)
}

#[expect(clippy::too_many_arguments, reason = "the op's own arguments, once the element type is known")]
fn blocked<E: Element>(
    cpu: &CpuOps,
    cache: TemporalCache,
    x: &Tensor,
    conv: &Conv,
    y: &mut Tensor,
    add: bool,
    groups: Option<usize>,
) -> Option<Vec<f32>> {
    let (spec, level) = (&conv.spec, cpu.simd());
    let weights: &Blocked = cpu.unpack(&conv.packed);
    let frames = Frames::<E>::new(cache, x);
    let (input, output) = (x.thw(), y.thw());
    let window = Window {
        plane: Hw::new(input.h, input.w),
        channels: spec.c_in,
        taps: Hw::new(spec.taps.h, spec.taps.w),
        stride: Hw::new(spec.stride.h, spec.stride.w),
        before: Hw::new(spec.pad_before, spec.pad_before),
    };
    let per_tap = spec.taps.h * spec.taps.w * spec.c_in;
    let folded = |t: usize| if cache.starts() { spec.folded(t) } else { 1 };
    let parts: Vec<_> = (0..spec.taps.t).map(|dt| (&weights.kernel, dt)).collect();
    let folds: Vec<Kernel> = (0..output.t)
        .map(folded)
        .take_while(|&folded| folded > 1)
        .map(|folded| cpu.install(|| Kernel::fold(level, &parts[..folded], per_tap)))
        .collect();
    let taps_of = |t: usize| -> Taps<E> {
        let folded = folded(t);
        let head = if cache.starts() { spec.taps.t - 1 } else { spec.cached_frames() } as isize;
        let tap = |dt: usize| {
            let frame = frames.at((t * spec.stride.t + dt) as isize - head);
            match dt + 1 == folded && folded > 1 {
                true => Tap { frame, kernel: &folds[t], part: 0 },
                false => Tap { frame, kernel: &weights.kernel, part: dt },
            }
        };
        Taps::new((folded - 1..spec.taps.t).map(tap))
    };
    let plane = Hw::new(output.h, output.w);
    let regions = weights.kernel.regions(cpu, plane, &window, output.t);
    let out = Target::new(elements_mut::<E>(y));
    let mut measured = cpu.measured(groups.map_or(0, |_| output.t * regions.len() * spec.c_out));
    let target = groups.map(|_| Target::new(&mut measured));
    let how = Finish {
        level,
        tiles: cpu.tiles(),
        out: &out,
        channels: spec.c_out,
        add,
        bias: &weights.bias,
        measured: target.as_ref(),
    };
    // A job's frames share their input, as long as there are enough jobs without cutting it.
    let span = if regions.len() < ENOUGH * cpu.threads() { 1 } else { output.t };
    let job = |i: usize| {
        let (first, region) = (i / regions.len() * span, i % regions.len());
        let shown = &regions[region];
        sum_region(level, &window, first..first + span, &taps_of, shown, |t, panels, sums| {
            let place = |row, column| [((t * plane.h + row) * plane.w + column) * spec.c_out, 0];
            how.run(shown, panels, sums, t * regions.len() + region, place);
        });
    };
    cpu.install(|| (0..output.t / span * regions.len()).into_par_iter().for_each(job));
    let stats = groups.map(|groups| {
        let block = |i: usize| (i / regions.len(), &regions[i % regions.len()]);
        stats::of_regions(&measured, weights.kernel.width(), [output.t, spec.c_out, groups], block)
    });
    cpu.keep_room(measured);
    stats
}

/// A cache of another size would be read as if it were of this one.
pub fn check_past(op: &str, cache: TemporalCache, x: &Tensor, keeps: usize) {
    if let Some(frames) = cache.frames() {
        let needed = Shape::clip(Thw { t: keeps, ..x.thw() }, x.channels());
        assert_eq!(frames.shape(), needed, "{op}: cache of an input {x:?}");
    }
}

/// The cache and the frames of a slice as one row of frames.
pub struct Frames<'a, E> {
    cache: Option<(&'a [E], usize)>,
    x: &'a [E],
    frame: usize,
}

impl<'a, E: Element> Frames<'a, E> {
    pub fn new(cache: TemporalCache<'a>, x: &'a Tensor) -> Self {
        let thw = x.thw();
        let cache = cache.frames().map(|p| (elements::<E>(p), p.thw().t));
        Frames { cache, x: elements::<E>(x), frame: thw.h * thw.w * x.channels() }
    }

    /// Frame `t` of the slice; negative ones are the cache or, at a clip's start, the first frame.
    pub fn at(&self, t: isize) -> &'a [E] {
        let (values, t) = match self.cache {
            Some((cache, frames)) if t < 0 => (cache, (frames as isize + t) as usize),
            _ => (self.x, t.max(0) as usize),
        };
        &values[t * self.frame..][..self.frame]
    }
}
