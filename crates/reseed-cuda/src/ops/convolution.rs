//! One launch of a convolution, and the choice of its kernel.

use reseed_ops::{DType, Result};

use super::CudaOps;
use super::conv::Form;
use super::conv_hopper::PLANE;
use super::conv_winograd;
use crate::driver::Ptr;
use crate::params::ConvArgs;

/// One launch: operands and geometry.
#[derive(Clone, Copy)]
pub struct Convolution {
    /// Type of x, cache, w and the residual.
    pub dtype: DType,
    /// Type of y: that of x, or f32.
    pub out: DType,
    pub x: Ptr,
    /// Frames in x.
    pub frames: usize,
    pub cache: Ptr,
    pub w: Ptr,
    pub bias: Ptr,
    pub y: Ptr,
    pub residual: Ptr,
    /// Destination of the output's statistics and their groups; only where [`Convolution::slots`] returns a number.
    pub partial: Ptr,
    pub groups: usize,
    /// How `w` is packed.
    pub form: Form,
    pub args: ConvArgs,
}

impl Convolution {
    /// y = x wᵀ in f32 of operands of `dtype`; `zeros` is the bias.
    pub fn product(dtype: DType, x: Ptr, w: Ptr, zeros: Ptr, y: Ptr, args: ConvArgs) -> Convolution {
        let none = Ptr::NULL;
        let (cache, residual, partial) = (none, none, none);
        Convolution {
            dtype,
            out: DType::F32,
            x,
            frames: 1,
            cache,
            w,
            bias: zeros,
            y,
            residual,
            partial,
            groups: 0,
            form: Form::Taps,
            args,
        }
    }

    /// Queues the fastest kernel that computes it.
    ///
    /// # Safety
    /// The pointers hold what `args` describes.
    pub unsafe fn launch(&self, cuda: &CudaOps) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_as(cuda, cuda.tf32) }
    }

    /// Queues the fastest kernel that does not round f32 operands to tf32.
    ///
    /// # Safety
    /// As for `launch`.
    pub unsafe fn launch_exact(&self, cuda: &CudaOps) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_as(cuda, false) }
    }

    /// # Safety
    /// As for `launch`.
    unsafe fn launch_as(&self, cuda: &CudaOps, tf32: bool) -> Result<()> {
        let kernels = &cuda.driver.kernels;
        match self.form {
            // SAFETY: the caller's promise.
            Form::Winograd2d => return unsafe { self.launch_winograd_2d(cuda) },
            // SAFETY: the caller's promise.
            Form::Int8 => return unsafe { self.launch_int8(cuda) },
            Form::Taps => {}
        }
        if self.is_matrix() && kernels.hopper {
            // SAFETY: the caller's promise.
            return unsafe { self.launch_linear(cuda) };
        }
        let plane = self.as_plane();
        match plane.hopper().filter(|_| kernels.hopper) {
            // SAFETY: the caller's promise.
            Some(_) if plane.is_winograd(cuda) => unsafe { plane.launch_winograd(cuda, 1) },
            // SAFETY: the caller's promise.
            Some(hopper) => unsafe { plane.launch_hopper(cuda, hopper) },
            // SAFETY: the caller's promise.
            None if self.is_stem() => unsafe { self.launch_stem(cuda) },
            None => match self.patch(tf32).filter(|_| kernels.ampere) {
                // SAFETY: the caller's promise.
                Some(patch) => unsafe { self.launch_patch(cuda, patch) },
                // SAFETY: the caller's promise.
                None => unsafe { self.launch_gemm(cuda) },
            },
        }
    }

    /// Slots per frame and group of the statistics that the kernel writes, where it writes them.
    pub fn slots(&self, cuda: &CudaOps, groups: usize) -> Option<usize> {
        let channels = self.args.c_out as usize;
        let width = Some(channels / groups).filter(|width| channels == groups * width)?;
        match self.hopper().filter(|_| cuda.driver.kernels.hopper) {
            Some(_) if self.is_winograd(cuda) => conv_winograd::tiling(&self.args).slots(&self.args, width),
            Some(hopper) => hopper.tiling(&self.args).slots(&self.args, width),
            None => self.stem_slots(width),
        }
    }

    /// A matrix product as a convolution over a plane as wide as a tile, where the rows fill it.
    fn as_plane(&self) -> Convolution {
        let a = self.args;
        let (width, single) = (PLANE as i32, (a.taps_h, a.taps_w, a.in_h, a.out_h) == (1, 1, 1, 1));
        match single && a.in_w == a.out_w && a.in_w % width == 0 {
            false => *self,
            true => {
                let rows = a.in_w / width;
                let args = ConvArgs { in_h: rows, in_w: width, out_h: rows, out_w: width, ..a };
                Convolution { args, ..*self }
            }
        }
    }
}
