//! Group norm with activation, and its statistics.

use std::sync::Arc;

use reseed_ops::{Activation, ConvData, DType, Norm, Packed, Result, Shape, Stats, Tensor};

use super::CudaOps;
use super::convolution::Convolution;
use super::memory::ptr;
use crate::device_memory::{Allocation, ArenaBuffer};
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::{int, long};

/// Pixels per block of the statistics kernel.
pub const CHUNK: usize = 512;
/// Fewest pixels per block of the norm kernel, which computes the slopes of its channels first.
const FEWEST: usize = 64;
/// Blocks of the norm kernel per multiprocessor. All of them run at the same time.
const RESIDENT: usize = 4;

/// Gain and shift, `[2][channels]` of f32; for results in bytes followed by the bytes per unit.
struct Weights(Allocation);

/// `per_unit` is empty, or for results in bytes the bytes per unit of every channel.
pub fn pack(cuda: &CudaOps, channels: usize, data: &ConvData, per_unit: &[f32]) -> Result<Packed> {
    assert_eq!((data.weight.len(), data.bias.len()), (channels, channels), "gain and shift of a norm");
    Ok(Arc::new(Weights(cuda.upload_weights(&[&data.weight[..], &data.bias[..], per_unit].concat())?)))
}

/// Addresses of a norm's gain and shift.
pub fn gain_and_shift(cuda: &CudaOps, norm: &Norm) -> (Ptr, Ptr) {
    let Weights(weights) = cuda.unpack(&norm.packed);
    (weights.ptr(), weights.ptr().plus(norm.channels * size_of::<f32>()))
}

impl CudaOps {
    /// Mean and variance of each frame and group.
    pub fn stats(&self, op: &'static str, x: &Tensor, groups: usize) -> Result<Stats> {
        let (thw, channels, chunk) = (x.thw(), x.channels(), int(CHUNK));
        assert!(channels.is_multiple_of(groups), "{op}: {groups} groups of {x:?}");
        let pixels = thw.h * thw.w;
        let blocks = pixels.div_ceil(CHUNK);
        let stats = self.empty(op, Shape::from([thw.t, groups, 2]), DType::F32)?;
        let partial = self.scratch(op, thw.t * blocks * channels * 2, DType::F32)?;
        let name = format!("group_stats_{}", x.dtype());
        let (grid, pixels, channels) = (Grid::new([blocks, thw.t, 1], 256), int(pixels), int(channels));
        // SAFETY: arguments follow kernels/group_norm.cu in order and type; `partial` holds two numbers per frame,
        // block and channel.
        unsafe { self.driver.launch(&name, grid, args![partial.ptr(), ptr(x), pixels, channels, chunk]) }?;
        let grid = Grid::new([groups, thw.t, 1], 128);
        let (blocks, groups) = (int(blocks), int(groups));
        // SAFETY: as above; `stats` holds two numbers per frame and group.
        unsafe {
            self.driver.launch(
                "group_stats_combine",
                grid,
                args![ptr(&stats), partial.ptr(), blocks, channels, groups, pixels, chunk],
            )
        }?;
        Ok(stats)
    }
}

/// Statistics of a convolution's output: from sums that its kernel writes, where it does, or from a second pass.
pub struct OutputStats<'a> {
    op: &'static str,
    y: &'a Tensor,
    groups: usize,
    /// Sums that the kernel writes, and slots per frame and group.
    partial: Option<(ArenaBuffer, usize)>,
}

impl<'a> OutputStats<'a> {
    /// Prepares the launch to write sums.
    pub fn new(
        cuda: &CudaOps,
        op: &'static str,
        y: &'a Tensor,
        groups: usize,
        launch: &mut Convolution,
    ) -> Result<OutputStats<'a>> {
        let Some(slots) = launch.slots(cuda, groups) else { return Ok(OutputStats { op, y, groups, partial: None }) };
        let partial = cuda.scratch(op, y.thw().t * groups * slots * 2, DType::F32)?;
        (launch.partial, launch.groups) = (partial.ptr(), groups);
        Ok(OutputStats { op, y, groups, partial: Some((partial, slots)) })
    }

    /// The statistics, after the launches.
    pub fn stats(self, cuda: &CudaOps) -> Result<Stats> {
        let Some((partial, slots)) = self.partial else { return cuda.stats(self.op, self.y, self.groups) };
        let frames = self.y.thw().t;
        let stats = cuda.empty(self.op, Shape::from([frames, self.groups, 2]), DType::F32)?;
        let grid = Grid::new([self.groups, frames, 1], 1024);
        let count = long(self.y.count() / (frames * self.groups));
        // SAFETY: arguments follow kernels/group_norm.cu in order and type; the launches write every slot of every
        // frame.
        unsafe { cuda.driver.launch("group_stats_join", grid, args![ptr(&stats), partial.ptr(), int(slots), count]) }?;
        Ok(stats)
    }
}

/// The statistics that a norm of `x` needs, computed where they are not given.
pub fn stats_of(cuda: &CudaOps, op: &'static str, x: &Tensor, given: Option<Stats>, norm: &Norm) -> Result<Stats> {
    assert_eq!(x.channels(), norm.channels, "{op}: input {x:?}");
    let stats = match given {
        Some(given) => given,
        None => cuda.stats(op, x, norm.groups)?,
    };
    let shape = Shape::from([x.thw().t, norm.groups, 2]);
    assert_eq!((stats.shape(), stats.dtype()), (shape, DType::F32), "{op}: statistics of {x:?}");
    Ok(stats)
}

pub fn run(cuda: &CudaOps, mut x: Tensor, given: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
    let (thw, channels) = (x.thw(), x.channels());
    let stats = stats_of(cuda, "group_norm", &x, given, norm)?;
    let y = match cuda.is_writable(&mut x)? {
        true => x.clone(),
        false => cuda.empty("group_norm", x.shape(), x.dtype())?,
    };
    let (gain, shift) = gain_and_shift(cuda, norm);
    let pixels = thw.h * thw.w;
    let chunk = pixels.div_ceil((RESIDENT * cuda.driver.multiprocessors / thw.t).max(1)).max(FEWEST);
    let (grid, chunk) = (Grid::new([pixels.div_ceil(chunk), thw.t, 1], 256), int(chunk));
    let (pixels, channels, groups) = (int(pixels), int(channels), int(norm.groups));
    if norm.int8 {
        assert_eq!((act, x.dtype()), (Activation::Silu, DType::F16), "group_norm: bytes of {x:?}");
        let per_unit = shift.plus(norm.channels * size_of::<f32>());
        // SAFETY: arguments follow kernels/group_norm.cu in order and type; y has the size of x, and the bytes of a
        // pixel are written over values of that pixel that have been read.
        unsafe {
            cuda.driver.launch(
                "group_norm_int8_f16",
                grid,
                args![ptr(&y), ptr(&x), ptr(&stats), gain, shift, per_unit, pixels, channels, groups, chunk, norm.eps],
            )
        }?;
        return Ok(y);
    }
    let silu = i32::from(act == Activation::Silu);
    let name = format!("group_norm_{}", x.dtype());
    // SAFETY: arguments follow kernels/group_norm.cu in order and type; x and y have the same shape and are identical
    // or disjoint.
    unsafe {
        cuda.driver.launch(
            &name,
            grid,
            args![ptr(&y), ptr(&x), ptr(&stats), gain, shift, pixels, channels, groups, chunk, norm.eps, silu],
        )
    }?;
    Ok(y)
}
