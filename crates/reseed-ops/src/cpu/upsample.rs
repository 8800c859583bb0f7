//! Composite upsampling: each output phase is a small convolution on the low-resolution grid.

use rayon::prelude::*;

use super::CpuOps;
use super::blocked::{Tap, Window, regions, sum_region};
use super::conv::{Finish, Frames, Target, check_past, finish, fold};
use super::gemm::Panels;
use super::level::Level;
use super::memory::{Element, elements_mut, with_element};
use super::stats::{self, Block};
use crate::error::Result;
use crate::ops::{Past, Summed};
use crate::reference::{self, UpsampleWeights, low_frame};
use crate::shape::{Hw, Shape};
use crate::tensor::Tensor;
use crate::weights::{BORDER_CLASSES, Moment, Packed, Upsample, UpsampleData, UpsampleSpec, border_class};

struct Blocked {
    /// Per phase, k as (frame, column, row, channel).
    kernels: Vec<Panels>,
    after_first: Vec<Panels>,
    bias: Vec<f32>,
}

pub fn pack(cpu: &CpuOps, spec: &UpsampleSpec, data: UpsampleData) -> Packed {
    let (c, taps) = (spec.channels, spec.taps_t() * 4);
    assert_eq!(data.kernels.len(), spec.phases() * taps * c * c, "kernels of an upsampler");
    let kernels = cpu.round(data.kernels);
    let after_first = cpu.round(data.after_first);
    if cpu.level() == Level::Reference {
        let split = |all: &[f32], size| all.chunks_exact(size).map(|w| reference::taps_first(w, c, c)).collect();
        let bias = data.bias.iter().map(|&b| f64::from(b)).collect();
        let (kernels, after_first) = (split(&kernels, taps * c * c), split(&after_first, 4 * c * c));
        return std::sync::Arc::new(UpsampleWeights { kernels, after_first, bias });
    }
    let k_of = |tap: usize, i: usize| (tap / 4 * 4 + tap % 2 * 2 + tap / 2 % 2) * c + i;
    let split = |all: &[f32], size| all.chunks_exact(size).map(|w| cpu.panels(w, c, c, k_of)).collect();
    let (kernels, after_first) = (split(&kernels, taps * c * c), split(&after_first, 4 * c * c));
    std::sync::Arc::new(Blocked { kernels, after_first, bias: data.bias })
}

pub fn run(cpu: &CpuOps, past: Past, x: &Tensor, upsample: &Upsample, groups: Option<usize>) -> Result<Summed> {
    let spec = &upsample.spec;
    assert_eq!(x.channels(), spec.channels, "upsample: input {x:?}, weights {spec:?}");
    check_past("upsample", past, x, spec.keeps());
    if cpu.level() == Level::Reference {
        let (clip, after_first) = (past.frames().map(|f| cpu.clip(f)), matches!(past, Past::AfterFirst(_)));
        let weights = cpu.unpack(&upsample.packed);
        return cpu.plain_result(&reference::upsample(clip.as_ref(), after_first, &cpu.clip(x), spec, weights), groups);
    }
    let output = spec.output(x.thw(), past.starts());
    let mut y = cpu.room("upsample", Shape::clip(output, spec.channels), x.dtype())?;
    let stats = with_element!(x.dtype(), E => blocked::<E>(cpu, past, x, upsample, &mut y, groups));
    Ok(Summed { stats: cpu.stats(stats, output.t)?, tensor: y })
}

fn blocked<E: Element>(
    cpu: &CpuOps,
    past: Past,
    x: &Tensor,
    upsample: &Upsample,
    y: &mut Tensor,
    groups: Option<usize>,
) -> Option<Vec<f32>> {
    let (spec, level) = (&upsample.spec, cpu.level());
    let weights: &Blocked = cpu.unpack(&upsample.packed);
    let plan = Plan::new(cpu, past, x.thw().t, spec, weights);
    let frames = Frames::<E>::new(past, x);
    let (c, input, output) = (spec.channels, x.thw(), y.thw());
    let low = Hw::new(input.h, input.w);
    let window = |row: usize, column: usize| Window {
        plane: low,
        channels: c,
        taps: Hw::new(2, 2),
        stride: Hw::new(1, 1),
        before: Hw::new(1 - row, 1 - column),
    };
    let regions = regions(level, low, &window(0, 0), weights.kernels[0].count(), output.t * 4, cpu.threads());
    let out = Target::new(elements_mut::<E>(y));
    let job = |i: usize| {
        let (region, t, row_phase, column_phase) =
            (&regions[i / 4 % regions.len()], i / 4 / regions.len(), i / 2 % 2, i % 2);
        let (k, z, moment) = low_frame(spec, t, past.starts(), matches!(past, Past::AfterFirst(_)));
        let taps = plan.taps(&frames, k, (z * 2 + row_phase) * 2 + column_phase, moment);
        let bias = &weights.bias[(moment as usize * spec.frames() + z) * BORDER_CLASSES * BORDER_CLASSES * c..];
        sum_region(level, &window(row_phase, column_phase), &taps, region, |sums| {
            let pixel = |row: usize, column: usize| {
                let (row, column) = (2 * row + row_phase, 2 * column + column_phase);
                let class = border_class(row, output.h) * BORDER_CLASSES + border_class(column, output.w);
                (((t * output.h + row) * output.w + column) * c, &bias[class * c..][..c])
            };
            let how = Finish { channels: c, add: false, groups, frame: t };
            finish(level, region, sums, &out, how, pixel)
        })
    };
    let jobs = output.t * regions.len() * 4;
    let blocks: Vec<Option<Block>> = cpu.install(|| (0..jobs).into_par_iter().map(job).collect());
    let blocks: Option<Vec<Block>> = blocks.into_iter().collect();
    Some(stats::combine(&blocks?, output.t, c, groups?))
}

/// Which panels multiply which frame, for every frame of the output.
struct Plan<'a> {
    spec: &'a UpsampleSpec,
    weights: &'a Blocked,
    starts: bool,
    /// At a clip's start, per phase: what multiplies the first frame when all taps read it.
    first: Vec<Panels>,
    /// The same when all taps but the last read it; without time only.
    second: Vec<Panels>,
}

impl<'a> Plan<'a> {
    fn new(cpu: &CpuOps, past: Past, frames: usize, spec: &'a UpsampleSpec, weights: &'a Blocked) -> Self {
        let rows = 4 * spec.channels;
        let (mut first, mut second) = (Vec::new(), Vec::new());
        if past.starts() {
            cpu.install(|| {
                for (phase, kernels) in weights.kernels.iter().take(4).enumerate() {
                    if spec.time {
                        first.push(fold(&[(&weights.after_first[phase], 0), (kernels, rows)], rows));
                    } else {
                        first.push(fold(&[(kernels, 0), (kernels, rows), (kernels, 2 * rows)], rows));
                        if frames > 1 {
                            second.push(fold(&[(kernels, 0), (kernels, rows)], rows));
                        }
                    }
                }
            });
        }
        Plan { spec, weights, starts: past.starts(), first, second }
    }

    fn taps<E: Element>(&'a self, frames: &Frames<'a, E>, k: usize, phase: usize, moment: Moment) -> Vec<Tap<'a, E>> {
        let per_tap = 4 * self.spec.channels;
        let kernels = &self.weights.kernels[phase];
        let tap = |frame: isize, panels: &'a Panels, k: usize| Tap { frame: frames.at(frame), panels, k };
        let k = k as isize;
        match (self.spec.time, moment) {
            _ if self.starts && k == 0 => vec![tap(0, &self.first[phase], 0)],
            (true, Moment::Later) => vec![tap(k - 1, kernels, 0), tap(k, kernels, per_tap)],
            (true, _) => vec![tap(k - 1, &self.weights.after_first[phase], 0), tap(k, kernels, per_tap)],
            (false, _) if self.starts && k == 1 => {
                vec![tap(0, &self.second[phase], 0), tap(1, kernels, 2 * per_tap)]
            }
            (false, _) => (0..3).map(|dt| tap(k - 2 + dt as isize, kernels, dt * per_tap)).collect(),
        }
    }
}
