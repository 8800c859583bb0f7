//! Causal convolution.

use std::ops::Range;

use rayon::prelude::*;

use crate::CpuOps;
use crate::epilogue::RegionEpilogue;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{elements, elements_mut};
use crate::packed_weights::PackedWeights;
use crate::simd::blocked;
use crate::simd::output::{DisjointSlice, PixelOffsets};
use crate::simd::region::{REGIONS_PER_THREAD, Region, Tap, Taps, Window};
use crate::simd::region_sums::RegionSums;
use crate::simd::stats;
use crate::simd::winograd_planes::{self, Kernels};
use crate::tiles;
use reseed_ops::reference;
use reseed_ops::{
    Conv, ConvData, ConvOutput, ConvSpec, Epilogue, Hw, Packed, Result, Shape, TemporalCache, Tensor, Thw,
};

/// Weights of the reference level.
pub struct ReferenceWeights {
    /// `[tap][c_out][c_in]`, as the reference reads them.
    pub weight: Vec<f64>,
    /// Bias of each output channel.
    pub bias: Vec<f64>,
}

/// Weights of the other levels.
pub struct ConvWeights {
    /// The packed kernel.
    pub kernel: PackedWeights,
    /// Bias of each output channel.
    pub bias: Vec<f32>,
}

/// Packs the weights of the op.
pub fn pack(cpu: &CpuOps, spec: &ConvSpec, data: ConvData) -> Packed {
    let ConvSpec { c_in, c_out, taps, .. } = *spec;
    assert_eq!(data.weight.len(), c_out * c_in * taps.count(), "weight of a convolution");
    assert_eq!(data.bias.len(), c_out, "bias of a convolution");
    let mut weight = data.weight;
    if cpu.level() == Level::Reference {
        cpu.round_weights(&mut weight);
        let bias = data.bias.iter().map(|&b| f64::from(b)).collect();
        return std::sync::Arc::new(ReferenceWeights { weight: reference::taps_first(&weight, c_in, c_out), bias });
    }
    std::sync::Arc::new(ConvWeights { kernel: PackedWeights::pack(cpu, weight, spec), bias: data.bias })
}

/// Runs the op.
pub fn run(cpu: &CpuOps, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
    let spec = &conv.spec;
    assert_eq!(x.channels(), spec.c_in, "conv: input {x:?}, weights {spec:?}");
    check_cache("conv", cache, x, spec.cached_frames());
    let shape = Shape::clip(spec.output(x.thw(), cache.starts()), spec.c_out);
    if let Some(residual) = &epilogue.residual {
        assert_eq!(residual.shape(), shape, "conv: residual");
    }
    if cpu.level() == Level::Reference {
        return run_reference(cpu, cache, x, conv, epilogue);
    }
    let add = epilogue.residual.is_some();
    let mut y = match epilogue.residual {
        Some(residual) => cpu.writable("conv", residual)?,
        None => cpu.allocate("conv", shape, x.dtype())?,
    };
    let stats = with_element!(x.dtype(), E => run_blocked::<E>(cpu, cache, x, conv, &mut y, add, epilogue.groups));
    Ok(ConvOutput { stats: cpu.stats(stats, y.thw().t)?, tensor: y })
}

fn run_reference(
    cpu: &CpuOps,
    cache: TemporalCache,
    x: &Tensor,
    conv: &Conv,
    epilogue: Epilogue,
) -> Result<ConvOutput> {
    let weights: &ReferenceWeights = cpu.unpack(&conv.packed);
    let cache = cache.frames().map(|frames| cpu.clip(frames));
    let mut y = reference::conv(cache.as_ref(), &cpu.clip(x), &conv.spec, &weights.weight, &weights.bias);
    if let Some(residual) = &epilogue.residual {
        y.data.iter_mut().zip(cpu.clip(residual).data).for_each(|(y, r)| *y += r);
    }
    cpu.reference_output(&y, epilogue.groups)
}

#[expect(clippy::too_many_arguments, reason = "the arguments of the op, with a known element type")]
fn run_blocked<E: Element>(
    cpu: &CpuOps,
    cache: TemporalCache,
    x: &Tensor,
    conv: &Conv,
    y: &mut Tensor,
    add: bool,
    groups: Option<usize>,
) -> Option<Vec<f32>> {
    let (spec, level) = (&conv.spec, cpu.simd());
    let weights: &ConvWeights = cpu.unpack(&conv.packed);
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
    let folds: Vec<PackedWeights> = (0..output.t)
        .map(folded)
        .take_while(|&folded| folded > 1)
        .map(|folded| cpu.install(|| PackedWeights::fold(level, &parts[..folded], per_tap)))
        .collect();
    let taps_of = |t: usize| -> Taps<E, PackedWeights> {
        let folded = folded(t);
        let head = if cache.starts() { spec.taps.t - 1 } else { spec.cached_frames() } as isize;
        let tap = |dt: usize| {
            let frame = frames.at((t * spec.stride.t + dt) as isize - head);
            match dt + 1 == folded && folded > 1 {
                true => Tap { frame, weights: &folds[t], part: 0 },
                false => Tap { frame, weights: &weights.kernel, part: dt },
            }
        };
        Taps::new((folded - 1..spec.taps.t).map(tap))
    };
    let plane = Hw::new(output.h, output.w);
    let panels_of = |t: usize| taps_of(t).map_weights(PackedWeights::panels);
    let planes = winograd_planes(cpu, spec).then(|| {
        cpu.install(|| Kernels::new(level, 0..output.t, spec.c_in, &panels_of, cpu.take_transformed_weights()))
    });
    let regions = match &planes {
        Some(kernels) => winograd_planes::regions(level, plane, spec, kernels.panels(), [output.t, cpu.threads()]),
        None => weights.kernel.regions(cpu, plane, &window, output.t),
    };
    let out = DisjointSlice::new(elements_mut::<E>(y));
    let mut block_stats = cpu.take_block_stats(groups.map_or(0, |_| output.t * regions.len() * spec.c_out));
    let shared_stats = groups.map(|_| DisjointSlice::new(&mut block_stats[..]));
    let epilogue = RegionEpilogue {
        level,
        tiles: cpu.uses_tiles(),
        out: &out,
        channels: spec.c_out,
        add,
        bias: &weights.bias,
        block_stats: shared_stats.as_ref(),
    };
    // A job computes all frames of a region, which share their input, unless that gives too few jobs.
    let span = if regions.len() < REGIONS_PER_THREAD * cpu.threads() { 1 } else { output.t };
    let job = |i: usize| {
        let (first, index) = (i / regions.len() * span, i % regions.len());
        let (region, frames) = (&regions[index], first..first + span);
        let finish = |t: usize, panels: Range<usize>, sums: &mut RegionSums| {
            let offsets = |row, column| {
                let output = ((t * plane.h + row) * plane.w + column) * spec.c_out;
                PixelOffsets { output, bias: 0 }
            };
            epilogue.run(region, panels, sums, t * regions.len() + index, offsets);
        };
        match &planes {
            Some(kernels) => {
                let work = winograd_planes::Work { level, window: &window, taps: spec.taps.t, kernels, region };
                work.sum(frames, &panels_of, finish);
            }
            None => sum_region(level, &window, frames, &taps_of, region, finish),
        }
    };
    cpu.install(|| (0..output.t / span * regions.len()).into_par_iter().for_each(job));
    let stats = groups.map(|groups| {
        let block = |i: usize| (i / regions.len(), &regions[i % regions.len()]);
        stats::of_regions(&block_stats, weights.kernel.width(), [output.t, spec.c_out, groups], block)
    });
    cpu.return_block_stats(block_stats);
    planes.into_iter().for_each(|kernels| cpu.return_transformed_weights(kernels.into_values()));
    stats
}

/// Whether Winograd over both axes computes a convolution.
pub fn winograd_planes(cpu: &CpuOps, spec: &ConvSpec) -> bool {
    !cpu.uses_tiles() && winograd_planes::supports(cpu.simd(), spec)
}

/// Computes the sums of a region over the taps of each frame, and passes them to `finish` frame by frame, one or more
/// panels at a time.
pub fn sum_region<'a, E: Element>(
    level: Level,
    window: &Window,
    frames: Range<usize>,
    taps: &impl Fn(usize) -> Taps<'a, E, PackedWeights>,
    region: &Region,
    finish: impl Fn(usize, Range<usize>, &mut RegionSums),
) {
    match taps(frames.start)[0].weights {
        PackedWeights::Tiles(_) => {
            let taps = |t| taps(t).map_weights(PackedWeights::tiles);
            tiles::conv::sum_region(window, frames, &taps, region, finish);
        }
        PackedWeights::Panels(_) => {
            let taps = |t| taps(t).map_weights(PackedWeights::panels);
            blocked::sum_region(level, window, frames, &taps, region, finish);
        }
    }
}

/// Panics where the cache does not have `keeps` frames of the size of `x`.
pub fn check_cache(op: &str, cache: TemporalCache, x: &Tensor, keeps: usize) {
    if let Some(frames) = cache.frames() {
        let needed = Shape::clip(Thw { t: keeps, ..x.thw() }, x.channels());
        assert_eq!(frames.shape(), needed, "{op}: cache of an input {x:?}");
    }
}

/// The frames of a slice, preceded by its temporal cache.
pub struct Frames<'a, E> {
    cache: Option<(&'a [E], usize)>,
    x: &'a [E],
    frame: usize,
}

impl<'a, E: Element> Frames<'a, E> {
    /// Views of the cache and of `x`.
    pub fn new(cache: TemporalCache<'a>, x: &'a Tensor) -> Self {
        let thw = x.thw();
        let cache = cache.frames().map(|p| (elements::<E>(p), p.thw().t));
        Frames { cache, x: elements::<E>(x), frame: thw.h * thw.w * x.channels() }
    }

    /// Frame `t` of the slice. A negative `t` is a frame of the cache or, at the start of a clip, the first frame.
    pub fn at(&self, t: isize) -> &'a [E] {
        let (values, t) = match self.cache {
            Some((cache, frames)) if t < 0 => (cache, (frames as isize + t) as usize),
            _ => (self.x, t.max(0) as usize),
        };
        &values[t * self.frame..][..self.frame]
    }
}
