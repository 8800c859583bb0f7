//! Launch of `kernels/conv_winograd.cu`: convolutions by Winograd F(3,3) along rows, with 5 products where the direct
//! algorithm has 9.

use std::sync::{Mutex, PoisonError};

use reseed_ops::{ConvSpec, DType, Result, Thw};

use super::CudaOps;
use super::conv::Form;
use super::conv_hopper::{DIRECT, THREADS, Tiling};
use super::conv_kernels::Winograd;
use super::conv_winograd_2d;
use super::convolution::Convolution;
use crate::device_memory::Allocation;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::{ConvArgs, int};

/// Channels that a block computes at a time.
const CHANNELS: usize = 64;
/// Channels that it reads at a time.
const DEPTH: usize = 32;
/// Products for this many columns, and their number.
const COLUMNS: usize = 3;
const POINTS: usize = 5;
/// Columns of a tile.
const WIDTH: usize = 8 * COLUMNS;
/// Products that the kernel executes, relative to the direct algorithm.
const EXECUTED: f32 = 5.0 / 9.0;
/// Blocks of a cluster, which share their weights.
const BLOCKS: usize = 2;
const SHARED: usize = 206 << 10;

/// Memory for the transformed weights of one layer. Kernels run one after the other, so that all layers share it.
#[derive(Default)]
pub struct WinogradWeights(Mutex<Option<Allocation>>);

/// Bytes of the transformed weights of a layer; 0 where the layer is computed directly or Winograd F(3,3) is not used.
pub fn bytes(dtype: DType, used: bool, spec: &ConvSpec) -> usize {
    let ConvSpec { c_in, c_out, taps, stride, .. } = *spec;
    let plain = (taps.h, taps.w, stride) == (3, 3, Thw::new(1, 1, 1));
    if used && plain && fits(dtype, c_in, c_out) { taps.t * 3 * POINTS * c_in * c_out * dtype.bytes() } else { 0 }
}

fn fits(dtype: DType, c_in: usize, c_out: usize) -> bool {
    dtype == DType::F16 && c_in.is_multiple_of(CHANNELS) && c_out.is_multiple_of(CHANNELS)
}

/// How the kernel tiles a plane.
pub fn tiling(args: &ConvArgs) -> Tiling {
    Tiling::new(args, WIDTH, true)
}

/// Products that kernels execute for a convolution, relative to the direct algorithm.
fn executed(dtype: DType, winograd: Winograd, spec: &ConvSpec) -> f32 {
    match winograd {
        Winograd::Columns if bytes(dtype, true, spec) > 0 => EXECUTED,
        Winograd::Plane if conv_winograd_2d::fits(spec) => conv_winograd_2d::executed(spec),
        _ => 1.0,
    }
}

impl CudaOps {
    /// Products that this GPU executes for a convolution, relative to the direct algorithm.
    pub(super) fn executed(&self, spec: &ConvSpec) -> f32 {
        executed(self.dtype, self.conv.winograd, spec)
    }

    /// Makes the shared memory large enough for the transformed weights of a layer.
    pub fn reserve_winograd(&self, spec: &ConvSpec) -> Result<()> {
        let bytes = bytes(self.dtype, self.conv.winograd == Winograd::Columns, spec);
        let mut weights = self.winograd.0.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > weights.as_ref().map_or(0, Allocation::bytes) {
            *weights = Some(self.allocate_weights(bytes)?);
        }
        Ok(())
    }
}

impl Convolution {
    /// Whether `conv_winograd` computes this.
    pub fn is_winograd(&self, cuda: &CudaOps) -> bool {
        let fits = fits(self.dtype, self.args.c_in as usize, self.args.c_out as usize);
        cuda.conv.winograd == Winograd::Columns && fits && self.form == Form::Taps && self.hopper() == Some(DIRECT)
    }

    /// Queues it, with the sum of the first `folded` temporal taps as its first one.
    ///
    /// # Safety
    /// As for `launch`; the weights hold `folded` - 1 more temporal taps than `args` says.
    pub unsafe fn launch_winograd(&self, cuda: &CudaOps, folded: usize) -> Result<()> {
        let Convolution { y, bias, residual, partial, args, .. } = *self;
        let (size, driver) = (|n: i32| n as usize, &cuda.driver);
        let (taps_t, c_in, c_out) = (size(args.taps_t), size(args.c_in), size(args.c_out));
        // Columns are copied by their remainder of three.
        let inputs = self.input_maps(cuda, WIDTH, [COLUMNS as u32, 1], |[w, h]| [DEPTH, w + 1, h + 2])?;
        let map_y = driver.tensor_map(&self.output_boxes(0, WIDTH))?;
        let units = (tiling(&args).tiles * size(args.out_frames)).div_ceil(BLOCKS) * (c_out / CHANNELS);
        let blocks = [units.min(driver.multiprocessors / BLOCKS) * BLOCKS, 1, 1];
        let grid = Grid { blocks, threads: [THREADS, 1], shared: SHARED };
        assert!(residual == Ptr::NULL || residual == y, "conv_winograd: the residual must be in y");
        let (add, groups, folded) = (i32::from(residual == y), int(self.groups), int(folded));
        // Until both kernels are queued, no other thread may overwrite the weights.
        let weights = cuda.winograd.0.lock().unwrap_or_else(PoisonError::into_inner);
        let w = weights.as_ref().expect("packing a layer reserves memory for its transformed weights").ptr();
        let transform = Grid::new([(taps_t * 3 * c_in * c_out / 8).div_ceil(256), 1, 1], 256);
        // SAFETY: arguments follow kernels/conv_winograd.cu in order and type; the caller's promise.
        unsafe {
            let order = args![w, self.w, args.c_out, args.c_in, args.taps_t, folded];
            driver.launch("winograd_weights_f16", transform, order)?;
            driver.launch("conv_winograd_f16", grid, args![inputs, w, map_y, bias, add, partial, groups, args])
        }
    }
}

#[cfg(test)]
mod tests {
    use reseed_ops::UpsampleSpec;

    use super::*;

    fn cube(c_in: usize, c_out: usize) -> ConvSpec {
        ConvSpec::same(c_in, c_out, Thw::new(3, 3, 3))
    }

    #[test]
    fn winograd_computes_layers_whose_channels_fill_tiles() {
        assert_eq!(bytes(DType::F16, true, &cube(128, 64)), 3 * 3 * 5 * 128 * 64 * 2);
        assert_eq!(bytes(DType::F16, true, &ConvSpec::same(64, 64, Thw::new(1, 3, 3))), 3 * 5 * 64 * 64 * 2);
        let halved = ConvSpec { stride: Thw::new(1, 2, 2), ..cube(128, 128) };
        for no in [cube(96, 128), cube(128, 96), halved, ConvSpec::same(128, 128, Thw::new(1, 1, 1))] {
            assert_eq!(bytes(DType::F16, true, &no), 0, "{no:?}");
        }
        assert_eq!(bytes(DType::Bf16, true, &cube(128, 128)), 0);
        assert_eq!(bytes(DType::F16, false, &cube(128, 128)), 0);
    }

    #[test]
    fn winograd_executes_a_part_of_the_products() {
        assert_eq!(executed(DType::F16, Winograd::Columns, &cube(128, 64)), 5.0 / 9.0);
        assert_eq!(executed(DType::F16, Winograd::Plane, &cube(128, 64)), 16.0 / 36.0);
        let phase = UpsampleSpec { channels: 64, time: true }.phase();
        assert_eq!(executed(DType::F16, Winograd::Plane, &phase), 9.0 / 16.0);
        assert_eq!(executed(DType::F16, Winograd::Columns, &phase), 1.0);
        assert_eq!(executed(DType::F16, Winograd::Plane, &cube(96, 64)), 1.0);
        assert_eq!(executed(DType::F16, Winograd::None, &cube(128, 64)), 1.0);
    }
}
