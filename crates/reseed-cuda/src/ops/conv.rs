//! Causal convolution.

use std::borrow::Cow;
use std::sync::Arc;

use reseed_ops::{Conv, ConvData, ConvOutput, ConvSpec, DType, Epilogue, Packed, Result, Shape, TemporalCache, Tensor};

use super::CudaOps;
use super::conv_kernels::Winograd;
use super::conv_winograd_2d;
use super::convolution::Convolution;
use super::fold::Taps;
use super::group_norm::OutputStats;
use super::layers::Matrix;
use super::memory::ptr;
use super::offloaded::{self, Offloaded};
use super::weights::{Order, taps_first};
use crate::device_memory::Allocation;
use crate::driver::Ptr;
use crate::params::{ConvArgs, int};

/// How weights are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `[tap (t, h, w)][c_out][c_in]` of the device's type.
    Taps,
    /// Transformed for Winograd along both axes, as `conv_winograd_2d` reads them.
    Winograd2d,
    /// Bytes, as [`reseed_ops::Int8Conv`] describes them.
    Int8,
}

pub struct Weights {
    pub weight: Matrix,
    pub form: Form,
    /// `[c_out]` of f32; of bytes, their factors.
    pub bias: Arc<Allocation>,
    /// Input channels of the weights: padded to a multiple of eight for tensor cores.
    pub c_in: usize,
}

impl Weights {
    /// The same layer with its weights at another place.
    pub fn with(&self, weight: Matrix) -> Weights {
        Weights { weight, bias: self.bias.clone(), ..*self }
    }

    /// Values of one temporal tap.
    pub fn per_tap(&self, spec: &ConvSpec) -> usize {
        match self.form {
            Form::Winograd2d => conv_winograd_2d::packed_weights(spec) / spec.taps.t,
            Form::Taps | Form::Int8 => spec.taps.h * spec.taps.w * self.c_in * spec.c_out,
        }
    }
}

pub fn pack(cuda: &CudaOps, spec: &ConvSpec, data: &ConvData) -> Result<Packed> {
    let ConvSpec { c_in, c_out, taps, .. } = *spec;
    assert_eq!(data.weight.len(), c_out * c_in * taps.count(), "weight of a convolution");
    assert_eq!(data.bias.len(), c_out, "bias of a convolution");
    let padded = if cuda.dtype == DType::F32 || taps.count() == 1 { c_in } else { c_in.next_multiple_of(8) };
    cuda.reserve_winograd(spec)?;
    let bias = Arc::new(cuda.upload_weights(&data.bias)?);
    if cuda.conv.winograd == Winograd::Plane && conv_winograd_2d::fits(spec) {
        let weight = Matrix::Resident(cuda.upload_weights(&conv_winograd_2d::pack(spec, &data.weight))?);
        return Ok(Arc::new(Weights { weight, form: Form::Winograd2d, bias, c_in }));
    }
    let order = Order { phases: 1, c_out, c_in: padded, taps: taps.count() };
    let weight = taps_first(&pad_channels(&data.weight, c_in, padded, taps.count()), order, cuda.dtype);
    let weight = cuda.upload_weights(weight.bytes())?;
    Ok(Arc::new(Weights { weight: Matrix::Resident(weight), form: Form::Taps, bias, c_in: padded }))
}

/// `[c_out, c_in, taps]` with zeros for the input channels from `c_in` to `padded`.
fn pad_channels(weight: &[f32], c_in: usize, padded: usize, taps: usize) -> Cow<'_, [f32]> {
    if padded == c_in {
        return Cow::Borrowed(weight);
    }
    let mut out = vec![0.0; weight.len() / c_in * padded];
    for (to, from) in out.chunks_exact_mut(padded * taps).zip(weight.chunks_exact(c_in * taps)) {
        to[..from.len()].copy_from_slice(from);
    }
    Cow::Owned(out)
}

pub fn run(cuda: &CudaOps, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
    let spec = &conv.spec;
    assert_eq!(x.channels(), spec.c_in, "conv: input {x:?}, weights {spec:?}");
    assert_eq!(x.dtype(), cuda.dtype, "conv: input {x:?}");
    if let Some(frames) = cache.frames() {
        assert_eq!(frames.thw().t, spec.cached_frames(), "conv: cache {frames:?}, weights {spec:?}");
        assert_eq!((frames.thw().h, frames.thw().w), (x.thw().h, x.thw().w), "conv: cache {frames:?}, input {x:?}");
        assert_eq!((frames.channels(), frames.dtype()), (spec.c_in, x.dtype()), "conv: cache {frames:?}");
    }
    let shape = Shape::clip(spec.output(x.thw(), cache.starts()), spec.c_out);
    if let Some(residual) = &epilogue.residual {
        assert_eq!((residual.shape(), residual.dtype()), (shape, x.dtype()), "conv: residual");
    }
    let add = epilogue.residual.is_some();
    let y = match epilogue.residual {
        Some(residual) => cuda.writable("conv", residual)?,
        None => cuda.empty("conv", shape, x.dtype())?,
    };
    let weights: &Weights = cuda.unpack(&conv.packed);
    let offloaded = cache.frames().filter(|frames| frames.is_on::<Offloaded>());
    if let Some(offloaded) = offloaded.filter(|_| offloaded::in_strips(spec, x)) {
        offloaded::conv(cuda, &whole(spec, weights, None, x, &y, add), offloaded)?;
        let stats = epilogue.groups.map(|groups| cuda.stats("conv", &y, groups)).transpose()?;
        return Ok(ConvOutput { stats, tensor: y });
    }
    let prefetched = offloaded.map(|offloaded| offloaded::prefetch(cuda, offloaded)).transpose()?;
    let cache = cache.with(prefetched.as_ref());
    let direct = whole(spec, weights, cache.frames(), x, &y, add);
    let padded = |clip: &Tensor| match weights.c_in == spec.c_in || direct.is_stem() {
        true => Ok(clip.clone()),
        false => cuda.padded(clip, weights.c_in),
    };
    let (x, before) = (padded(x)?, cache.frames().filter(|frames| frames.thw().t > 0).map(padded).transpose()?);
    let mut all = whole(spec, weights, before.as_ref(), &x, &y, add);
    let sums = epilogue.groups.map(|groups| OutputStats::new(cuda, "conv", &y, groups, &mut all)).transpose()?;
    match cache {
        TemporalCache::Start => start(cuda, spec, weights, all)?,
        // SAFETY: the assertions above have checked the shapes that `whole` describes.
        _ => unsafe { all.launch(cuda) }?,
    }
    let stats = sums.map(|sums| sums.stats(cuda)).transpose()?;
    Ok(ConvOutput { stats, tensor: y })
}

/// All frames in one launch, as after the start of a clip.
fn whole(spec: &ConvSpec, weights: &Weights, cache: Option<&Tensor>, x: &Tensor, y: &Tensor, add: bool) -> Convolution {
    let (input, output) = (x.thw(), y.thw());
    let args = ConvArgs {
        in_h: int(input.h),
        in_w: int(input.w),
        cache_frames: int(cache.map_or(0, |frames| frames.thw().t)),
        out_frames: int(output.t),
        out_h: int(output.h),
        out_w: int(output.w),
        taps_t: int(spec.taps.t),
        taps_h: int(spec.taps.h),
        taps_w: int(spec.taps.w),
        stride_t: int(spec.stride.t),
        stride_h: int(spec.stride.h),
        stride_w: int(spec.stride.w),
        pad_h: int(spec.pad_before),
        pad_w: int(spec.pad_before),
        first: -int(spec.cached_frames()),
        w_pitch: int(weights.c_in),
        ..ConvArgs::matrix(1, x.channels(), spec.c_out)
    };
    Convolution {
        dtype: x.dtype(),
        out: y.dtype(),
        x: ptr(x),
        frames: input.t,
        cache: cache.map_or(Ptr::NULL, ptr),
        w: weights.weight.ptr(),
        bias: weights.bias.ptr(),
        y: ptr(y),
        residual: if add { ptr(y) } else { Ptr::NULL },
        partial: Ptr::NULL,
        groups: 0,
        form: weights.form,
        args,
    }
}

/// The start of a clip: one launch for each frame that reads the first one through several taps, one for the others.
fn start(cuda: &CudaOps, spec: &ConvSpec, weights: &Weights, all: Convolution) -> Result<()> {
    let taps = Taps { at: all.w, dtype: all.dtype, phases: 1, time: spec.taps.t, each: weights.per_tap(spec) };
    let frames = all.args.out_frames as usize;
    let alone = (0..frames).take_while(|&t| spec.folded(t) > 1).count();
    for t in 0..alone {
        let folded = spec.folded(t);
        let args = ConvArgs {
            taps_t: int(taps.folded_count(folded)),
            first: 0,
            out_frames: 1,
            frame_start: int(t),
            ..all.args
        };
        let frame = Convolution { args, ..all };
        if frame.form == Form::Int8 {
            // SAFETY: `run` has checked the shapes; the weights are those of the whole layer.
            unsafe { frame.folded_int8(spec, folded).launch(cuda) }?;
            continue;
        }
        if frame.is_winograd(cuda) {
            // SAFETY: `run` has checked the shapes; the weights are those of the whole layer.
            unsafe { frame.launch_winograd(cuda, folded) }?;
            continue;
        }
        // SAFETY: `taps` describes the weights of the layer; the folded ones have as many taps as `args` says.
        unsafe {
            let weights = taps.fold(cuda, "conv", folded)?;
            Convolution { w: weights.ptr(), ..frame }.launch(cuda)?;
        }
    }
    if alone == frames {
        return Ok(());
    }
    let args = ConvArgs {
        out_frames: int(frames - alone),
        first: int(alone * spec.stride.t) - int(spec.taps.t - 1),
        frame_start: int(alone),
        ..all.args
    };
    assert!(args.first >= 0, "conv: {spec:?} reads before the start of a clip");
    // SAFETY: `run` has checked the shapes.
    unsafe { Convolution { args, ..all }.launch(cuda) }
}
