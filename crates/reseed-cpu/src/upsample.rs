//! Composite upsampling: each output phase is a small convolution on the low-resolution grid.

use std::sync::Arc;

use rayon::prelude::*;

use super::CpuOps;
use super::blocked::{Tap, Taps, Window, sum_region};
use super::conv::{Frames, check_past};
use super::finish::{Finish, Target};
use super::kernel::Kernel;
use super::level::Level;
use super::memory::{Element, Floats, Values, elements_mut, with_element};
use super::merged::{Step, merged, upscale_columns};
use super::panels::{Weights, fold};
use super::stats;
use super::widen::widen;
use reseed_ops::Result;
use reseed_ops::Tensor;
use reseed_ops::merge::{self, Term};
use reseed_ops::reference::{self, UpsampleWeights, low_frame};
use reseed_ops::{BORDER_CLASSES, ClipPosition, Merged, Packed, Upsample, UpsampleData, UpsampleSpec, border_class};
use reseed_ops::{ConvOutput, TemporalCache};
use reseed_ops::{Hw, Shape};

struct Blocked {
    /// Per phase.
    kernels: Vec<Kernel>,
    after_first: Option<Behind>,
    bias: Vec<f32>,
}

/// The kernels of the frame behind a clip's first, per phase: what multiplies the first.
enum Behind {
    /// Packed for tiles, which would multiply a picture in the time that it takes to merge them.
    Kept(Vec<Kernel>),
    /// They serve two frames of a clip and would take three times the room of their factors, so they are merged when a
    /// clip comes there.
    Factors(AfterFirst),
}

/// What makes the kernels of the frame behind a clip's first.
struct AfterFirst {
    /// `[sub (row, column)][columns][c_mid][column]`, of the first frame's only half.
    upscale: Values,
    /// The kernel's first two taps in time.
    conv: Weights,
}

pub fn pack(cpu: &CpuOps, spec: &UpsampleSpec, data: UpsampleData) -> Packed {
    merge::check(spec, &data);
    if cpu.level() == Level::Reference {
        return Arc::new(plain(cpu, spec, &data));
    }
    let (c, level, terms) = (spec.channels, cpu.simd(), merge::terms(spec));
    let bias = merge::bias(spec, &data, crate::matmul);
    let conv = cpu.panels(&data.conv.weight, c, c);
    let upscale = cpu.install(|| upscale_columns(&data.upscale.weight, c));
    drop(data); // before its merged form, which is larger, comes into being
    let kernels = |phase: usize| {
        let steps: Vec<Step> = terms.iter().filter(|t| t.phase == phase).map(|t| step(t, t.sub)).collect();
        let mut panels = merged(level, &upscale, &conv, &steps, 4 * spec.taps_t());
        cpu.round(&mut panels.data);
        Kernel::keep(cpu, panels, spec.taps_t(), 4)
    };
    let kernels = cpu.install(|| (0..spec.phases()).map(kernels).collect());
    let after_first = spec.time.then(|| {
        let mut first_half = Floats::zeros(4 * c * c);
        let subs = first_half.chunks_exact_mut(c * c).zip(upscale.chunks_exact(c * c).step_by(spec.frames()));
        subs.for_each(|(to, from)| to.copy_from_slice(from));
        let factors = AfterFirst { upscale: cpu.install(|| first_half.keep()), conv: conv.first_rows(2 * 9 * c) };
        match cpu.tiles() {
            true => Behind::Kept(factors.merge(cpu, spec, 2)),
            false => Behind::Factors(factors),
        }
    });
    Arc::new(Blocked { kernels, after_first, bias })
}

fn step(term: &Term, sub: usize) -> Step {
    Step { tap: term.tap, sub, to: term.to }
}

fn plain(cpu: &CpuOps, spec: &UpsampleSpec, data: &UpsampleData) -> UpsampleWeights {
    let (c, taps) = (spec.channels, spec.taps_t() * 4);
    let Merged { mut kernels, mut after_first, bias } = merge::merge(spec, data, crate::matmul);
    cpu.round(&mut kernels);
    cpu.round(&mut after_first);
    let split = |all: &[f32], size| all.chunks_exact(size).map(|w| reference::taps_first(w, c, c)).collect();
    let bias = bias.iter().map(|&b| f64::from(b)).collect();
    UpsampleWeights { kernels: split(&kernels, taps * c * c), after_first: split(&after_first, 4 * c * c), bias }
}

impl AfterFirst {
    /// Kernels of the first `frames` phases in time, for all phases in space.
    fn merge(&self, cpu: &CpuOps, spec: &UpsampleSpec, frames: usize) -> Vec<Kernel> {
        let (c, level) = (spec.channels, cpu.simd());
        let mut upscale = Floats::zeros(4 * c * c);
        widen(level, &self.upscale, 0..4 * c * c, &mut upscale);
        let terms = merge::terms(spec);
        let kernels = |conv: &Weights, phase: usize| {
            let terms = terms.iter().filter(|t| t.phase == phase && t.tap < 9);
            let steps: Vec<Step> = terms.map(|t| step(t, t.sub_after_first / spec.frames())).collect();
            let mut panels = merged(level, &upscale, conv, &steps, 4);
            cpu.round(&mut panels.data);
            Kernel::lend(cpu, panels, 1, 4)
        };
        cpu.install(|| {
            // Before the first half two taps see the clip's first frame, before the second half one does.
            let both: Weights = fold(level, &[(&self.conv, 0), (&self.conv, 9 * c)], 9 * c).into();
            (0..4 * frames).map(|i| kernels(if i < 4 { &both } else { &self.conv }, i % 4)).collect()
        })
    }
}

pub fn run(
    cpu: &CpuOps,
    cache: TemporalCache,
    x: &Tensor,
    upsample: &Upsample,
    groups: Option<usize>,
) -> Result<ConvOutput> {
    let spec = &upsample.spec;
    assert_eq!(x.channels(), spec.channels, "upsample: input {x:?}, weights {spec:?}");
    check_past("upsample", cache, x, spec.cached_frames());
    if cpu.level() == Level::Reference {
        let (clip, after_first) = (cache.frames().map(|f| cpu.clip(f)), matches!(cache, TemporalCache::AfterFirst(_)));
        let weights = cpu.unpack(&upsample.packed);
        return cpu.plain_result(&reference::upsample(clip.as_ref(), after_first, &cpu.clip(x), spec, weights), groups);
    }
    let output = spec.output(x.thw(), cache.starts());
    let mut y = cpu.room("upsample", Shape::clip(output, spec.channels), x.dtype())?;
    let stats = with_element!(x.dtype(), E => blocked::<E>(cpu, cache, x, upsample, &mut y, groups));
    Ok(ConvOutput { stats: cpu.stats(stats, output.t)?, tensor: y })
}

fn blocked<E: Element>(
    cpu: &CpuOps,
    cache: TemporalCache,
    x: &Tensor,
    upsample: &Upsample,
    y: &mut Tensor,
    groups: Option<usize>,
) -> Option<Vec<f32>> {
    let (spec, level) = (&upsample.spec, cpu.simd());
    let weights: &Blocked = cpu.unpack(&upsample.packed);
    let plan = Plan::new(cpu, cache, x.thw().t, spec, weights);
    let frames = Frames::<E>::new(cache, x);
    let (c, input, output) = (spec.channels, x.thw(), y.thw());
    let low = Hw::new(input.h, input.w);
    let window = |row: usize, column: usize| Window {
        plane: low,
        channels: c,
        taps: Hw::new(2, 2),
        stride: Hw::new(1, 1),
        before: Hw::new(1 - row, 1 - column),
    };
    let regions = weights.kernels[0].regions(cpu, low, &window(0, 0), output.t * 4);
    let out = Target::new(elements_mut::<E>(y));
    let blocks = output.t * regions.len() * 4;
    let mut measured = cpu.measured(groups.map_or(0, |_| blocks * c));
    let target = groups.map(|_| Target::new(&mut measured));
    let how = Finish {
        level,
        tiles: cpu.tiles(),
        out: &out,
        channels: c,
        add: false,
        bias: &weights.bias,
        measured: target.as_ref(),
    };
    let job = |i: usize| {
        let (region, t, row_phase, column_phase) =
            (&regions[i / 4 % regions.len()], i / 4 / regions.len(), i / 2 % 2, i % 2);
        let (k, z, moment) = low_frame(spec, t, cache.starts(), matches!(cache, TemporalCache::AfterFirst(_)));
        let taps = |_| plan.taps(&frames, k, (z * 2 + row_phase) * 2 + column_phase, moment);
        let classes = (moment as usize * spec.frames() + z) * BORDER_CLASSES * BORDER_CLASSES;
        sum_region(level, &window(row_phase, column_phase), t..t + 1, &taps, region, |t, panels, sums| {
            let place = |row: usize, column: usize| {
                let (row, column) = (2 * row + row_phase, 2 * column + column_phase);
                let class = border_class(row, output.h) * BORDER_CLASSES + border_class(column, output.w);
                [((t * output.h + row) * output.w + column) * c, (classes + class) * c]
            };
            how.run(region, panels, sums, i, place);
        });
    };
    cpu.install(|| (0..blocks).into_par_iter().for_each(job));
    let stats = groups.map(|groups| {
        let block = |i: usize| (i / 4 / regions.len(), &regions[i / 4 % regions.len()]);
        stats::of_regions(&measured, weights.kernels[0].width(), [output.t, c, groups], block)
    });
    cpu.keep_room(measured);
    stats
}

impl Blocked {
    /// The kernels that were kept, or those that a plan made.
    fn after_first<'a>(&'a self, made: &'a [Kernel]) -> &'a [Kernel] {
        match &self.after_first {
            Some(Behind::Kept(kernels)) => kernels,
            _ => made,
        }
    }
}

/// Which panels multiply which frame, for every frame of the output.
struct Plan<'a> {
    spec: &'a UpsampleSpec,
    weights: &'a Blocked,
    starts: bool,
    /// Per phase: what multiplies the previous frame when that is the clip's first, where it had to be merged.
    made: Vec<Kernel>,
    /// At a clip's start, per phase: what multiplies the first frame when all taps read it.
    first: Vec<Kernel>,
    /// The same when all taps but the last read it; without time only.
    second: Vec<Kernel>,
}

impl<'a> Plan<'a> {
    fn new(cpu: &CpuOps, cache: TemporalCache, frames: usize, spec: &'a UpsampleSpec, weights: &'a Blocked) -> Self {
        let (rows, level, starts) = (4 * spec.channels, cpu.simd(), cache.starts());
        let halves = match cache {
            TemporalCache::Start if frames == 1 => 1,
            TemporalCache::Start | TemporalCache::AfterFirst(_) => 2,
            TemporalCache::Frames(_) => 0,
        };
        let made = match &weights.after_first {
            Some(Behind::Factors(factors)) if halves > 0 => factors.merge(cpu, spec, halves),
            _ => Vec::new(),
        };
        let after_first = weights.after_first(&made);
        let folded = |taps: usize| -> Vec<Kernel> {
            let phase = |(phase, kernels): (usize, &Kernel)| {
                let mut parts: Vec<(&Kernel, usize)> = (0..taps).map(|tap| (kernels, tap)).collect();
                if spec.time {
                    parts[0] = (&after_first[phase], 0);
                }
                Kernel::fold(level, &parts, rows)
            };
            cpu.install(|| weights.kernels.iter().take(4).enumerate().map(phase).collect())
        };
        let first = if starts { folded(spec.taps_t()) } else { Vec::new() };
        let second = if starts && !spec.time && frames > 1 { folded(2) } else { Vec::new() };
        Plan { spec, weights, starts, made, first, second }
    }

    fn taps<E: Element>(&'a self, frames: &Frames<'a, E>, k: usize, phase: usize, moment: ClipPosition) -> Taps<'a, E> {
        let kernels = &self.weights.kernels[phase];
        let tap = |frame: isize, kernel: &'a Kernel, part: usize| Tap { frame: frames.at(frame), kernel, part };
        let k = k as isize;
        match (self.spec.time, moment) {
            _ if self.starts && k == 0 => Taps::new([tap(0, &self.first[phase], 0)]),
            (true, ClipPosition::Later) => Taps::new([tap(k - 1, kernels, 0), tap(k, kernels, 1)]),
            (true, _) => {
                let after_first = self.weights.after_first(&self.made);
                Taps::new([tap(k - 1, &after_first[phase], 0), tap(k, kernels, 1)])
            }
            (false, _) if self.starts && k == 1 => Taps::new([tap(0, &self.second[phase], 0), tap(1, kernels, 2)]),
            (false, _) => Taps::new((0..3).map(|dt| tap(k - 2 + dt as isize, kernels, dt))),
        }
    }
}
