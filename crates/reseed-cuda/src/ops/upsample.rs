//! Upsampling merged with its convolution: each output phase is a small convolution of the low-resolution input.

use std::sync::Arc;

use reseed_ops::{
    BORDER_CLASSES, ClipPosition, ConvOutput, ConvSpec, DType, Merged, Packed, Result, Shape, TemporalCache, Tensor,
    Thw, Upsample, UpsampleSpec,
};

use super::CudaOps;
use super::conv::Form;
use super::conv_kernels::Winograd;
use super::conv_winograd_2d;
use super::convolution::Convolution;
use super::fold::Taps;
use super::group_norm::OutputStats;
use super::layers::Matrix;
use super::memory::ptr;
use super::offloaded::{self, Offloaded};
use super::weights::{Order, Rounded, taps_first};
use crate::device_memory::{Allocation, ArenaBuffer};
use crate::driver::Ptr;
use crate::params::{ConvArgs, int};

/// Row and column phases of a pixel; each temporal phase is a launch of its own.
pub const PHASES: usize = 4;

pub struct Weights {
    /// `[z][phase][t]`, and of every temporal tap the weights in their form.
    pub later: Matrix,
    /// The same where the previous frame is the first of the clip; only with temporal upsampling.
    pub second: Option<Matrix>,
    pub form: Form,
    /// `[clip position][z][row class][column class][c]` of f32.
    pub bias: Arc<Allocation>,
}

pub fn pack(cuda: &CudaOps, spec: &UpsampleSpec, data: &Merged) -> Result<Packed> {
    let (c, moments) = (spec.channels, if spec.time { 3 } else { 1 });
    let classes = BORDER_CLASSES * BORDER_CLASSES;
    assert_eq!(data.bias.len(), moments * spec.frames() * classes * c, "bias of an upsampler");
    let phase = spec.phase();
    let plane = cuda.conv.winograd == Winograd::Plane && conv_winograd_2d::fits(&phase);
    let form = if plane { Form::Winograd2d } else { Form::Taps };
    let ordered = |kernels: &[f32], phase: &ConvSpec| match form {
        Form::Winograd2d => Rounded::F16(conv_winograd_2d::pack(phase, kernels)),
        _ => {
            let order = Order { phases: spec.phases(), c_out: c, c_in: c, taps: phase.taps.count() };
            taps_first(kernels, order, cuda.dtype)
        }
    };
    let later = ordered(&data.kernels, &phase);
    let second = spec.time.then(|| {
        let previous = ordered(&data.after_first, &ConvSpec { taps: Thw { t: 1, ..phase.taps }, ..phase });
        let tap = per_tap(spec, form) * cuda.dtype.bytes();
        let phases = previous.bytes().chunks_exact(tap).zip(later.bytes().chunks_exact(2 * tap));
        phases.flat_map(|(previous, later)| [previous, &later[tap..]]).collect::<Vec<_>>().concat()
    });
    let second = second.map(|values| cuda.upload_weights(&values).map(Matrix::Resident)).transpose()?;
    let later = Matrix::Resident(cuda.upload_weights(later.bytes())?);
    Ok(Arc::new(Weights { later, second, form, bias: Arc::new(cuda.upload_weights(&data.bias)?) }))
}

/// Values of one temporal tap of a phase.
fn per_tap(spec: &UpsampleSpec, form: Form) -> usize {
    let phase = spec.phase();
    let count = if form == Form::Winograd2d { conv_winograd_2d::packed_weights(&phase) } else { phase.weights() };
    count / spec.taps_t()
}

impl Weights {
    /// Bytes of a set of kernels.
    pub fn set_bytes(&self, spec: &UpsampleSpec, dtype: DType) -> usize {
        spec.phases() * spec.taps_t() * per_tap(spec, self.form) * dtype.bytes()
    }

    /// The same layer with its kernels at another place.
    pub fn with(&self, later: Matrix, second: Option<Matrix>) -> Weights {
        Weights { later, second, form: self.form, bias: self.bias.clone() }
    }
}

/// Low-resolution frames `k .. k + frames` that one launch per temporal phase computes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    k: usize,
    frames: usize,
    /// Leading temporal taps that read the first frame of the clip.
    folded: usize,
    position: ClipPosition,
}

/// The frames of a slice, in runs.
fn runs(spec: &UpsampleSpec, cache: TemporalCache, frames: usize) -> Vec<Run> {
    let heads: &[(usize, ClipPosition)] = match (cache, spec.time) {
        (TemporalCache::Start, true) => &[(2, ClipPosition::Start), (1, ClipPosition::Second)],
        (TemporalCache::Start, false) => &[(3, ClipPosition::Later), (2, ClipPosition::Later)],
        (TemporalCache::AfterFirst(_), true) => &[(1, ClipPosition::Second)],
        _ => &[],
    };
    let single = |(k, &(folded, position))| Run { k, frames: 1, folded, position };
    let mut runs: Vec<Run> = heads.iter().take(frames).enumerate().map(single).collect();
    if frames > heads.len() {
        runs.push(Run { k: heads.len(), frames: frames - heads.len(), folded: 1, position: ClipPosition::Later });
    }
    runs
}

pub fn run(
    cuda: &CudaOps,
    cache: TemporalCache,
    x: &Tensor,
    upsample: &Upsample,
    groups: Option<usize>,
) -> Result<ConvOutput> {
    let spec = &upsample.spec;
    assert_eq!(x.channels(), spec.channels, "upsample: input {x:?}, weights {spec:?}");
    assert_eq!(x.dtype(), cuda.dtype, "upsample: input {x:?}");
    if let Some(frames) = cache.frames() {
        assert_eq!(frames.thw().t, spec.cached_frames(), "upsample: cache {frames:?}, weights {spec:?}");
        assert_eq!((frames.thw().h, frames.thw().w), (x.thw().h, x.thw().w), "upsample: cache {frames:?}, input {x:?}");
        assert_eq!((frames.channels(), frames.dtype()), (spec.channels, x.dtype()), "upsample: cache {frames:?}");
    }
    let output = spec.output(x.thw(), cache.starts());
    let y = cuda.empty("upsample", Shape::clip(output, spec.channels), x.dtype())?;
    let offloaded = cache.frames().filter(|frames| frames.is_on::<Offloaded>());
    let prefetched = offloaded.map(|offloaded| offloaded::prefetch(cuda, offloaded)).transpose()?;
    let cache = cache.with(prefetched.as_ref());
    let mut layer =
        Layer { cuda, spec, weights: cuda.unpack(&upsample.packed), cache, x, y: &y, partial: Ptr::NULL, groups: 0 };
    let runs = runs(spec, cache, x.thw().t);
    let mut any = layer.convolution(runs[0], 0, Ptr::NULL);
    let sums = groups.map(|groups| OutputStats::new(cuda, "upsample", &y, groups, &mut any)).transpose()?;
    (layer.partial, layer.groups) = (any.partial, any.groups);
    for run in runs {
        // The first frame of a clip becomes one frame, not two.
        let phases = if run.position == ClipPosition::Start { 1 } else { spec.frames() };
        for z in 0..phases {
            layer.launch(run, z)?;
        }
    }
    let stats = sums.map(|sums| sums.stats(cuda)).transpose()?;
    Ok(ConvOutput { stats, tensor: y })
}

struct Layer<'a> {
    cuda: &'a CudaOps,
    spec: &'a UpsampleSpec,
    weights: &'a Weights,
    cache: TemporalCache<'a>,
    x: &'a Tensor,
    y: &'a Tensor,
    partial: Ptr,
    groups: usize,
}

impl Layer<'_> {
    /// Queues temporal phase `z` of a run.
    fn launch(&self, run: Run, z: usize) -> Result<()> {
        let taps = self.taps(run.position, z);
        let folded: Option<ArenaBuffer> = match run.folded {
            1 => None,
            // SAFETY: `taps` describes the weights of the layer.
            folded => Some(unsafe { taps.fold(self.cuda, "upsample", folded) }?),
        };
        let convolution = self.convolution(run, z, folded.as_ref().map_or(taps.at, ArenaBuffer::ptr));
        // SAFETY: `run` has checked the shapes; weights and bias are those of the clip position and the phase.
        unsafe { convolution.launch(self.cuda) }
    }

    /// Temporal phase `z` of a run with weights `w`.
    fn convolution(&self, run: Run, z: usize, w: Ptr) -> Convolution {
        let table = (run.position as usize * self.spec.frames() + z) * BORDER_CLASSES * BORDER_CLASSES;
        Convolution {
            dtype: self.x.dtype(),
            out: self.x.dtype(),
            x: ptr(self.x),
            frames: self.x.thw().t,
            cache: self.cache.frames().map_or(Ptr::NULL, ptr),
            w,
            bias: self.weights.bias.ptr().plus(table * self.spec.channels * size_of::<f32>()),
            y: ptr(self.y),
            residual: Ptr::NULL,
            partial: self.partial,
            groups: self.groups,
            form: self.weights.form,
            args: self.args(run, z),
        }
    }

    /// The weights of a clip position and a temporal phase.
    fn taps(&self, position: ClipPosition, z: usize) -> Taps {
        let (spec, dtype) = (self.spec, self.x.dtype());
        let each = per_tap(spec, self.weights.form);
        let set = match (position, &self.weights.second) {
            (ClipPosition::Later, _) | (_, None) => &self.weights.later,
            (_, Some(second)) => second,
        };
        let at = set.ptr().plus(z * PHASES * spec.taps_t() * each * dtype.bytes());
        Taps { at, dtype, phases: PHASES, time: spec.taps_t(), each }
    }

    fn args(&self, run: Run, z: usize) -> ConvArgs {
        let (spec, low) = (self.spec, self.x.thw());
        let taps_t = spec.taps_t() + 1 - run.folded;
        // The first frame has no second output frame, so that all later ones move up by one.
        let missing = usize::from(spec.time && self.cache.starts() && run.k > 0);
        ConvArgs {
            in_h: int(low.h),
            in_w: int(low.w),
            cache_frames: int(self.cache.frames().map_or(0, |frames| frames.thw().t)),
            out_frames: int(run.frames),
            out_h: int(low.h),
            out_w: int(low.w),
            taps_t: int(taps_t),
            taps_h: 2,
            taps_w: 2,
            pad_h: 1,
            pad_w: 1,
            first: int(run.k) - int(taps_t - 1),
            phases: int(PHASES),
            frame_start: int(run.k * spec.frames() + z - missing),
            frame_step: int(spec.frames()),
            ..ConvArgs::matrix(1, spec.channels, spec.channels)
        }
    }
}

#[cfg(test)]
mod tests {
    use reseed_cpu::CpuOps;
    use reseed_ops::Transfer;
    use reseed_ops::reference::low_frame;

    use super::*;

    /// Runs compute every output frame once, from the frame and for the clip position of the reference.
    #[test]
    fn runs_match_the_reference() {
        let cpu = CpuOps::new(DType::F32, Some(1)).unwrap();
        let kept = cpu.upload(Shape::from([1, 1, 1, 1]), &[0.0]).unwrap();
        for (time, frames) in [(true, 1), (true, 2), (true, 5), (false, 1), (false, 2), (false, 5)] {
            let spec = UpsampleSpec { channels: 1, time };
            for cache in [TemporalCache::Start, TemporalCache::AfterFirst(&kept), TemporalCache::Frames(&kept)] {
                let (starts, after_first) = (cache.starts(), matches!(cache, TemporalCache::AfterFirst(_)));
                let missing = usize::from(starts && time);
                let mut computed = Vec::new();
                for run in runs(&spec, cache, frames) {
                    assert!(run.folded == 1 || (starts && run.k + run.folded == spec.taps_t()), "{run:?}");
                    let phases = if run.position == ClipPosition::Start { 1 } else { spec.frames() };
                    for (k, z) in (run.k..run.k + run.frames).flat_map(|k| (0..phases).map(move |z| (k, z))) {
                        let t = k * spec.frames() + z - if k > 0 { missing } else { 0 };
                        assert_eq!(low_frame(&spec, t, starts, after_first), (k, z, run.position), "{spec:?} {run:?}");
                        computed.push(t);
                    }
                }
                computed.sort_unstable();
                assert_eq!(computed, (0..frames * spec.frames() - missing).collect::<Vec<_>>());
            }
        }
    }
}
