//! Convolutions of bytes after a group norm, on the tensor cores of Hopper: packing, and the launch of the kernel for
//! bytes in `kernels/conv_hopper.cu`. Format and rounding are those of [`reseed_ops::int8_conv`].

use std::sync::Arc;

use reseed_ops::int8_conv::first_kernel;
use reseed_ops::{Conv, ConvData, ConvSpec, DType, Int8Conv, Norm, Result, Thw};

use super::CudaOps;
use super::conv::{Form, Weights};
use super::conv_hopper::{DIRECT, PLANE, SHARED, THREADS};
use super::convolution::Convolution;
use super::group_norm;
use super::layers::Matrix;
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::params::int;
use crate::tensor_map::{Boxes, MapType};

/// Channels of a row of a box, and output channels of a tile.
const CHANNELS: usize = 128;
/// Most channels that one pass of the norm's kernel covers.
const MOST: usize = 2048;

/// Whether a device that may multiply bytes does so in a layer: one whose channels fill the tiles.
pub fn fits(spec: &ConvSpec) -> bool {
    let ConvSpec { c_in, c_out, taps, stride, pad_before, pad_after } = *spec;
    let cube = (taps, stride, pad_before, pad_after) == (Thw::new(3, 3, 3), Thw::new(1, 1, 1), 1, 1);
    cube && c_in.is_multiple_of(CHANNELS) && c_out.is_multiple_of(CHANNELS) && c_in <= MOST
}

/// Packs a norm and its convolution; none if the layer would be too inaccurate. The kernels have the bytes of those
/// in f16: six temporal taps of bytes instead of three.
pub fn pack(
    cuda: &CudaOps,
    (groups, eps): (usize, f32),
    spec: ConvSpec,
    norm: &ConvData,
    conv: &ConvData,
) -> Result<Option<(Norm, Conv)>> {
    let Some(Int8Conv { per_unit, kernels, factors }) = Int8Conv::quantize(norm, &spec, conv) else { return Ok(None) };
    let weights = Weights {
        weight: Matrix::Resident(cuda.upload_weights(&kernels)?),
        form: Form::Int8,
        bias: Arc::new(cuda.upload_weights(&factors)?),
        c_in: spec.c_in,
    };
    let packed = group_norm::pack(cuda, spec.c_in, norm, &per_unit)?;
    let norm = Norm { channels: spec.c_in, groups, eps, int8: true, packed };
    Ok(Some((norm, Conv { spec, executed: 0.5, packed: Arc::new(weights) })))
}

impl Convolution {
    /// A launch of one frame that starts a clip, with its first `folded` temporal taps summed.
    pub fn folded_int8(&self, spec: &ConvSpec, folded: usize) -> Convolution {
        let factor = size_of::<[f32; 2]>();
        Convolution {
            w: self.w.plus(first_kernel(spec, folded) * spec.c_out * spec.c_in),
            bias: self.bias.plus((folded - 1) * spec.c_out * factor),
            ..*self
        }
    }

    /// # Safety
    /// As for `launch`; x and cache are results of `group_norm_int8`, `w` and `bias` those of [`pack`].
    pub unsafe fn launch_int8(&self, cuda: &CudaOps) -> Result<()> {
        let Convolution { y, bias, residual, partial, args, .. } = *self;
        assert_eq!((self.dtype, self.hopper()), (DType::F16, Some(DIRECT)), "conv: bytes and {args:?}");
        let size = |n: i32| n as usize;
        let clip = |at: Ptr, frames: usize, [w, h]: [usize; 2]| {
            let dims = [2 * size(args.c_in), size(args.in_w), size(args.in_h), frames];
            let boxes = [CHANNELS as u32, w as u32 + 2, h as u32 + 2, 1];
            cuda.driver.tensor_map(&Boxes::new(at, MapType::Bytes, dims[0], dims, boxes))
        };
        let inputs = self.maps_of_tiles(PLANE, clip)?;
        let maps_y = [cuda.driver.tensor_map(&self.output_boxes(0, PLANE))?; 4];
        let (dims_w, box_w) = ([size(args.c_in), args.taps() * size(args.c_out)], [CHANNELS as u32; 2]);
        let map_w = cuda.driver.tensor_map(&Boxes::new(self.w, MapType::Bytes, dims_w[0], dims_w, box_w))?;
        let tiles = DIRECT.tiling(&args).tiles * size(args.c_out) / CHANNELS * size(args.out_frames);
        let blocks = [cuda.driver.multiprocessors.min(tiles), 1, 1];
        let grid = Grid { blocks, threads: [THREADS, 1], shared: SHARED };
        assert!(residual == Ptr::NULL || residual == y, "conv: the residual must be in y");
        let (add, groups) = (i32::from(residual == y), int(self.groups));
        let args = args![inputs, map_w, maps_y, y, bias, add, partial, groups, args];
        // SAFETY: arguments follow kernels/conv_hopper.cu in order and type; the caller's promise.
        unsafe { cuda.driver.launch("conv_hopper_3x3_int8_f16", grid, args) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_whose_channels_fill_tiles_can_multiply_bytes() {
        let cube = |c_in, c_out| ConvSpec::same(c_in, c_out, Thw::new(3, 3, 3));
        assert!(fits(&cube(128, 128)) && fits(&cube(512, 256)));
        for no in [cube(96, 128), cube(128, 96), cube(128, 3), ConvSpec::same(128, 128, Thw::new(1, 1, 1))] {
            assert!(!fits(&no), "{no:?}");
        }
        assert!(!fits(&ConvSpec { stride: Thw::new(1, 2, 2), ..cube(128, 128) }));
    }
}
