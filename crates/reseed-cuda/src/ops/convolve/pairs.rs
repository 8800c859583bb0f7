//! Convolutions that compute two columns at a time.

use std::sync::{Mutex, PoisonError};

use reseed_ops::{ConvSpec, DType, Result, Thw};

use super::{Convolution, HALO_THREADS, Halo};
use crate::driver::Ptr;
use crate::launch::{Grid, args};
use crate::ops::CudaOps;
use crate::params::int;
use crate::store::Memory;

/// Channels that a block reads and makes at a time.
const CHANNELS: usize = 64;
/// Blocks that share their weights.
const BLOCKS: usize = 2;
const SHARED: usize = 218 << 10;
/// The kernel that these stand in for.
const PLAIN: Halo = Halo { taps: 3, stride: 1, few: false };

/// Where the weights of one layer lie as the kernel reads them. Kernels are queued one behind the other, so that one place serves
/// all layers.
#[derive(Default)]
pub struct Room(Mutex<Option<Memory>>);

/// Bytes of a layer's weights as the kernel reads them, where it runs.
pub fn bytes(dtype: DType, hopper: bool, spec: &ConvSpec) -> usize {
    let ConvSpec { c_in, c_out, taps, stride, .. } = *spec;
    let plain = (taps.h, taps.w, stride) == (3, 3, Thw::new(1, 1, 1));
    // Four points for three columns of taps.
    if hopper && plain && fits(dtype, c_in, c_out) { taps.t * 3 * 4 * c_in * c_out * dtype.bytes() } else { 0 }
}

fn fits(dtype: DType, c_in: usize, c_out: usize) -> bool {
    dtype == DType::F16 && c_in.is_multiple_of(CHANNELS) && c_out.is_multiple_of(CHANNELS)
}

impl CudaOps {
    /// Sees to it that the weights of such a layer have room.
    pub fn make_room(&self, spec: &ConvSpec) -> Result<()> {
        let bytes = bytes(self.dtype, self.driver.kernels.halo, spec);
        let mut room = self.pairs.0.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > room.as_ref().map_or(0, Memory::bytes) {
            *room = Some(self.keep_room(bytes)?);
        }
        Ok(())
    }
}

impl Convolution {
    /// Whether `conv_pairs` computes this.
    pub fn pairs(&self, cuda: &CudaOps) -> bool {
        let fits = fits(self.dtype, self.args.c_in as usize, self.args.c_out as usize);
        cuda.driver.kernels.halo && fits && self.norm.is_none() && self.halo() == Some(PLAIN)
    }

    /// Queues it, with the first `folded` taps of time summed to one.
    ///
    /// # Safety
    /// As for `launch`; the weights hold as many more taps of time.
    pub unsafe fn launch_pairs(&self, cuda: &CudaOps, folded: usize) -> Result<()> {
        let Convolution { y, bias, residual, partial, args, .. } = *self;
        let (size, driver) = (|n: i32| n as usize, &cuda.driver);
        let (taps_t, c_in, c_out) = (size(args.taps_t), size(args.c_in), size(args.c_out));
        // Even columns and odd ones come one after the other.
        let inputs = self.inputs(cuda, [2, 1], |[w, h]| [w + 1, h + 2])?;
        let map_y = driver.tensor_map(&self.outputs(0))?;
        let units = (PLAIN.cut(&args).tiles * size(args.out_frames)).div_ceil(BLOCKS) * (c_out / CHANNELS);
        let blocks = [units.min(driver.multiprocessors / BLOCKS) * BLOCKS, 1, 1];
        let grid = Grid { blocks, threads: [HALO_THREADS, 1], shared: SHARED };
        assert!(residual == Ptr::NULL || residual == y, "conv_pairs: what is added lies where the result goes");
        let (add, groups, folded) = (i32::from(residual == y), int(self.groups), int(folded));
        // Until both kernels are queued nobody else may write there.
        let room = cuda.pairs.0.lock().unwrap_or_else(PoisonError::into_inner);
        let w = room.as_ref().expect("a layer's weights have room from when they were packed").ptr();
        let rearranging = Grid::new([(taps_t * 3 * c_in * c_out / 8).div_ceil(256), 1, 1], 256);
        // SAFETY: arguments follow kernels/conv_pairs.cu in order and type; the caller's promise.
        unsafe {
            let order = args![w, self.w, args.c_out, args.c_in, args.taps_t, folded];
            driver.launch("pair_weights_f16", rearranging, order)?;
            driver.launch("conv_pairs_f16", grid, args![inputs, w, map_y, bias, add, partial, groups, args])
        }
    }
}
