//! Upsampling: a pointwise convolution to sub-pixels and a 3 x 3 x 3 convolution, merged. Each output phase is a small
//! convolution of the low-resolution input.

use std::sync::Arc;

use rayon::prelude::*;

use crate::CpuOps;
use crate::conv::{Frames, check_cache, sum_region};
use crate::epilogue::RegionEpilogue;
use crate::host::buffer::{Floats, Values};
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::elements_mut;
use crate::packed_weights::PackedWeights;
use crate::simd::convert::widen;
use crate::simd::output::{DisjointSlice, PixelOffsets};
use crate::simd::panels::{Weights, fold};
use crate::simd::region::{REGIONS_PER_THREAD, Region, Tap, Taps, Window};
use crate::simd::region_sums::RegionSums;
use crate::simd::stats;
use crate::simd::winograd_phases::{self, Input, PHASES, place, sum_phases};
use crate::upsample_merge::{Step, merge_into_panels, upscale_columns};
use reseed_ops::merge::{self, Term};
use reseed_ops::reference::{self, UpsampleWeights, low_frame};
use reseed_ops::{
    BORDER_CLASSES, ClipPosition, ConvOutput, Hw, Merged, Packed, Result, Shape, TemporalCache, Tensor, Upsample,
    UpsampleData, UpsampleSpec, border_class,
};

/// Weights of all levels but the reference.
struct MergedWeights {
    /// Per phase.
    kernels: Vec<PackedWeights>,
    after_first: Option<AfterFirst>,
    bias: Vec<f32>,
}

/// The kernels, per phase, that multiply the first frame of a clip for the outputs of the second one.
enum AfterFirst {
    /// Merged in advance for tiles, which compute a frame in the time that the merge takes.
    Packed(Vec<PackedWeights>),
    /// Merged when needed: a clip uses the kernels for two frames, and they need three times the memory of their
    /// factors.
    Factors(AfterFirstFactors),
}

/// The factors of the kernels of [`AfterFirst`].
struct AfterFirstFactors {
    /// `[sub (row, column)][group of columns][c_mid][column]`, for the one output frame of the first frame.
    upscale: Values,
    /// The first two temporal taps of the convolution.
    conv: Weights,
}

/// Packs the weights of the op.
pub fn pack(cpu: &CpuOps, spec: &UpsampleSpec, data: UpsampleData) -> Packed {
    merge::check(spec, &data);
    if cpu.level() == Level::Reference {
        return Arc::new(reference_weights(cpu, spec, &data));
    }
    let (c, level, terms) = (spec.channels, cpu.simd(), merge::terms(spec));
    let bias = merge::bias(spec, &data, crate::matmul);
    let conv = cpu.panels(&data.conv.weight, c, c);
    let upscale = cpu.install(|| upscale_columns(&data.upscale.weight, c));
    drop(data); // The merged weights are larger. Freeing the originals first lowers the peak.
    let kernels = |phase: usize| {
        let steps: Vec<Step> = terms.iter().filter(|t| t.phase == phase).map(|t| step(t, t.sub)).collect();
        let mut panels = merge_into_panels(level, &upscale, &conv, &steps, 4 * spec.taps_t());
        cpu.round_weights(&mut panels.data);
        PackedWeights::from_panels(cpu, panels, spec.taps_t(), 4)
    };
    let kernels = cpu.install(|| (0..spec.phases()).map(kernels).collect());
    let after_first = spec.time.then(|| {
        let mut first_half = Floats::zeros(4 * c * c);
        let subs = first_half.chunks_exact_mut(c * c).zip(upscale.chunks_exact(c * c).step_by(spec.frames()));
        subs.for_each(|(to, from)| to.copy_from_slice(from));
        let upscale = cpu.install(|| first_half.narrow());
        let factors = AfterFirstFactors { upscale, conv: conv.first_rows(2 * 9 * c) };
        match cpu.uses_tiles() {
            true => AfterFirst::Packed(factors.merge(cpu, spec, 2)),
            false => AfterFirst::Factors(factors),
        }
    });
    Arc::new(MergedWeights { kernels, after_first, bias })
}

fn step(term: &Term, sub: usize) -> Step {
    Step { tap: term.tap, sub, to: term.to }
}

fn reference_weights(cpu: &CpuOps, spec: &UpsampleSpec, data: &UpsampleData) -> UpsampleWeights {
    let (c, taps) = (spec.channels, spec.taps_t() * 4);
    let Merged { mut kernels, mut after_first, bias } = merge::merge(spec, data, crate::matmul);
    cpu.round_weights(&mut kernels);
    cpu.round_weights(&mut after_first);
    let split = |all: &[f32], size| all.chunks_exact(size).map(|w| reference::taps_first(w, c, c)).collect();
    let bias = bias.iter().map(|&b| f64::from(b)).collect();
    UpsampleWeights { kernels: split(&kernels, taps * c * c), after_first: split(&after_first, 4 * c * c), bias }
}

impl AfterFirstFactors {
    /// Kernels of the first `frames` phases in time, for all phases in space.
    fn merge(&self, cpu: &CpuOps, spec: &UpsampleSpec, frames: usize) -> Vec<PackedWeights> {
        let (c, level) = (spec.channels, cpu.simd());
        let mut upscale = Floats::zeros(4 * c * c);
        widen(level, &self.upscale, 0..4 * c * c, &mut upscale);
        let terms = merge::terms(spec);
        let kernels = |conv: &Weights, phase: usize| {
            let terms = terms.iter().filter(|t| t.phase == phase && t.tap < 9);
            let steps: Vec<Step> = terms.map(|t| step(t, t.sub_after_first / spec.frames())).collect();
            let mut panels = merge_into_panels(level, &upscale, conv, &steps, 4);
            cpu.round_weights(&mut panels.data);
            PackedWeights::from_temporary_panels(cpu, panels, 1, 4)
        };
        cpu.install(|| {
            // For the first output frame two taps read the first frame of the clip, for the second one tap does.
            let both: Weights = fold(level, &[(&self.conv, 0), (&self.conv, 9 * c)], 9 * c).into();
            (0..4 * frames).map(|i| kernels(if i < 4 { &both } else { &self.conv }, i % 4)).collect()
        })
    }
}

/// Runs the op.
pub fn run(
    cpu: &CpuOps,
    cache: TemporalCache,
    x: &Tensor,
    upsample: &Upsample,
    groups: Option<usize>,
) -> Result<ConvOutput> {
    let spec = &upsample.spec;
    assert_eq!(x.channels(), spec.channels, "upsample: input {x:?}, weights {spec:?}");
    check_cache("upsample", cache, x, spec.cached_frames());
    if cpu.level() == Level::Reference {
        let (clip, after_first) = (cache.frames().map(|f| cpu.clip(f)), matches!(cache, TemporalCache::AfterFirst(_)));
        let weights = cpu.unpack(&upsample.packed);
        return cpu
            .reference_output(&reference::upsample(clip.as_ref(), after_first, &cpu.clip(x), spec, weights), groups);
    }
    let output = spec.output(x.thw(), cache.starts());
    let mut y = cpu.allocate("upsample", Shape::clip(output, spec.channels), x.dtype())?;
    let stats = with_element!(x.dtype(), E => run_blocked::<E>(cpu, cache, x, upsample, &mut y, groups));
    Ok(ConvOutput { stats: cpu.stats(stats, output.t)?, tensor: y })
}

fn run_blocked<E: Element>(
    cpu: &CpuOps,
    cache: TemporalCache,
    x: &Tensor,
    upsample: &Upsample,
    y: &mut Tensor,
    groups: Option<usize>,
) -> Option<Vec<f32>> {
    let (spec, level) = (&upsample.spec, cpu.simd());
    let weights: &MergedWeights = cpu.unpack(&upsample.packed);
    let plan = Plan::new(cpu, cache, x.thw().t, spec, weights);
    let frames = Frames::<E>::new(cache, x);
    let (c, input, output) = (spec.channels, x.thw(), y.thw());
    let low = Hw::new(input.h, input.w);
    let regions = Regions::new(cpu, low, spec, output.t, &weights.kernels[0]);
    let out = DisjointSlice::new(elements_mut::<E>(y));
    let blocks = output.t * regions.all.len() * PHASES;
    let mut block_stats = cpu.take_block_stats(groups.map_or(0, |_| blocks * c));
    let shared_stats = groups.map(|_| DisjointSlice::new(&mut block_stats[..]));
    let epilogue = RegionEpilogue {
        level,
        tiles: cpu.uses_tiles(),
        out: &out,
        channels: c,
        add: false,
        bias: &weights.bias,
        block_stats: shared_stats.as_ref(),
    };
    let frame = |t: usize| low_frame(spec, t, cache.starts(), matches!(cache, TemporalCache::AfterFirst(_)));
    let taps = |t: usize, phase: usize| {
        let (k, z, position) = frame(t);
        plan.taps(&frames, k, z * PHASES + phase, position)
    };
    let finish = |t: usize, phase: usize, region: usize, outputs: &Region, panels, sums: &mut RegionSums| {
        let ((_, z, position), at) = (frame(t), place(phase));
        let classes = (position as usize * spec.frames() + z) * BORDER_CLASSES * BORDER_CLASSES;
        let offsets = |row: usize, column: usize| {
            let (row, column) = (2 * row + at.h, 2 * column + at.w);
            let class = border_class(row, output.h) * BORDER_CLASSES + border_class(column, output.w);
            PixelOffsets { output: ((t * output.h + row) * output.w + column) * c, bias: (classes + class) * c }
        };
        epilogue.run(outputs, panels, sums, (t * regions.all.len() + region) * PHASES + phase, offsets);
    };
    // A job computes all frames of a region, which share their input, unless that gives too few jobs.
    let count = regions.all.len();
    let span = if count < REGIONS_PER_THREAD * cpu.threads() { 1 } else { output.t };
    let all_phases = |input: &Input, i: usize| {
        let (first, i) = (i / count * span, i % count);
        let taps = |t: usize, phase: usize| taps(t, phase).map_weights(PackedWeights::panels);
        sum_phases(level, input, &regions.all[i], first..first + span, &taps, |t, phase, outputs, panels, sums| {
            finish(t, phase, i, outputs, panels, sums);
        });
    };
    let one_phase = |i: usize| {
        let (t, region, phase) = (i / PHASES / count, i / PHASES % count, i % PHASES);
        let outputs = &regions.all[region];
        sum_region(level, &window(low, c, phase), t..t + 1, &|t| taps(t, phase), outputs, |t, panels, sums| {
            finish(t, phase, region, outputs, panels, sums);
        });
    };
    cpu.install(|| match &regions.winograd {
        Some(input) => (0..output.t / span * count).into_par_iter().for_each(|i| all_phases(input, i)),
        None => (0..blocks).into_par_iter().for_each(one_phase),
    });
    let stats = groups.map(|groups| {
        let outputs: Vec<_> =
            (0..blocks).map(|i| (i / PHASES / count, regions.outputs(i / PHASES % count, i % PHASES))).collect();
        let width = weights.kernels[0].width();
        stats::of_regions(&block_stats, width, [output.t, c, groups], |i| (outputs[i].0, &outputs[i].1))
    });
    cpu.return_block_stats(block_stats);
    stats
}

/// What is computed at once.
struct Regions {
    /// With Winograd, whose regions are groups of outputs. All phases share a job and its input.
    winograd: Option<Input>,
    all: Vec<Region>,
}

impl Regions {
    fn new(cpu: &CpuOps, plane: Hw, spec: &UpsampleSpec, frames: usize, kernel: &PackedWeights) -> Regions {
        let (level, channels) = (cpu.simd(), spec.channels);
        let winograd = matches!(kernel, PackedWeights::Panels(_)) && winograd_phases::supports(level, channels);
        let winograd = winograd.then_some(Input { plane, channels, taps: spec.taps_t() });
        let all = match &winograd {
            Some(input) => input.regions(level, kernel.count(), frames, cpu.threads()),
            None => kernel.regions(cpu, plane, &window(plane, channels, 0), frames * PHASES),
        };
        Regions { winograd, all }
    }

    /// The outputs of a phase, in low-resolution pixels.
    fn outputs(&self, region: usize, phase: usize) -> Region {
        let region = &self.all[region];
        self.winograd.as_ref().map_or_else(|| region.clone(), |input| input.outputs(region, phase))
    }
}

/// The low-resolution input of a phase.
fn window(plane: Hw, channels: usize, phase: usize) -> Window {
    let Hw { h, w } = place(phase);
    Window { plane, channels, taps: Hw::new(2, 2), stride: Hw::new(1, 1), before: Hw::new(1 - h, 1 - w) }
}

impl MergedWeights {
    /// The kernels of [`AfterFirst`]: those packed in advance, or `merged`.
    fn after_first<'a>(&'a self, merged: &'a [PackedWeights]) -> &'a [PackedWeights] {
        match &self.after_first {
            Some(AfterFirst::Packed(kernels)) => kernels,
            _ => merged,
        }
    }
}

/// The weights of every tap of every output frame.
struct Plan<'a> {
    spec: &'a UpsampleSpec,
    weights: &'a MergedWeights,
    starts: bool,
    /// Per phase: the kernels of [`AfterFirst`] where they were not packed in advance.
    merged: Vec<PackedWeights>,
    /// At the start of a clip, per phase: the summed kernels of the first frame when all taps read it.
    first: Vec<PackedWeights>,
    /// The same when all taps but the last read it. Without temporal upsampling only.
    second: Vec<PackedWeights>,
}

impl<'a> Plan<'a> {
    fn new(
        cpu: &CpuOps,
        cache: TemporalCache,
        frames: usize,
        spec: &'a UpsampleSpec,
        weights: &'a MergedWeights,
    ) -> Self {
        let (rows, level, starts) = (4 * spec.channels, cpu.simd(), cache.starts());
        let output_frames = match cache {
            TemporalCache::Start if frames == 1 => 1,
            TemporalCache::Start | TemporalCache::AfterFirst(_) => 2,
            TemporalCache::Frames(_) => 0,
        };
        let merged = match &weights.after_first {
            Some(AfterFirst::Factors(factors)) if output_frames > 0 => factors.merge(cpu, spec, output_frames),
            _ => Vec::new(),
        };
        let after_first = weights.after_first(&merged);
        let folded = |taps: usize| -> Vec<PackedWeights> {
            let phase = |(phase, kernels): (usize, &PackedWeights)| {
                let mut parts: Vec<(&PackedWeights, usize)> = (0..taps).map(|tap| (kernels, tap)).collect();
                if spec.time {
                    parts[0] = (&after_first[phase], 0);
                }
                PackedWeights::fold(level, &parts, rows)
            };
            cpu.install(|| weights.kernels.iter().take(4).enumerate().map(phase).collect())
        };
        let first = if starts { folded(spec.taps_t()) } else { Vec::new() };
        let second = if starts && !spec.time && frames > 1 { folded(2) } else { Vec::new() };
        Plan { spec, weights, starts, merged, first, second }
    }

    fn taps<E: Element>(
        &'a self,
        frames: &Frames<'a, E>,
        k: usize,
        phase: usize,
        position: ClipPosition,
    ) -> Taps<'a, E, PackedWeights> {
        let kernels = &self.weights.kernels[phase];
        let tap =
            |frame: isize, weights: &'a PackedWeights, part: usize| Tap { frame: frames.at(frame), weights, part };
        let k = k as isize;
        match (self.spec.time, position) {
            _ if self.starts && k == 0 => Taps::new([tap(0, &self.first[phase], 0)]),
            (true, ClipPosition::Later) => Taps::new([tap(k - 1, kernels, 0), tap(k, kernels, 1)]),
            (true, _) => {
                let after_first = self.weights.after_first(&self.merged);
                Taps::new([tap(k - 1, &after_first[phase], 0), tap(k, kernels, 1)])
            }
            (false, _) if self.starts && k == 1 => Taps::new([tap(0, &self.second[phase], 0), tap(1, kernels, 2)]),
            (false, _) => Taps::new((0..3).map(|dt| tap(k - 2 + dt as isize, kernels, dt))),
        }
    }
}
