//! Frames between host and device as codes, which are smaller than values; the device converts them.

use reseed_ops::{Depth, PendingDownload, Pixels, Result, Shape, Tensor};

use super::CudaOps;
use super::memory::{ptr, stride_grid};
use super::transfer::{self, Guard};
use crate::driver::Ptr;
use crate::event::Lane;
use crate::launch::args;
use crate::params::long;
use crate::pinned::Pinned;

/// Bytes of a part: several parts, so that several threads copy, but few, since each costs the driver as much time as
/// half a megabyte on the bus.
fn part(bytes: usize) -> usize {
    (bytes / 6).clamp(1 << 20, 4 << 20)
}

/// Converts as many codes as `x` has values, one way or the other.
fn launch(cuda: &CudaOps, op: &str, x: &Tensor, codes: Ptr, depth: Depth) -> Result<()> {
    let (to, from) = if op == "upload_pixels" { (ptr(x), codes) } else { (codes, ptr(x)) };
    let name = format!("{op}_u{}_{}", 8 * depth.bytes(), x.dtype());
    // A thread converts sixteen codes or eight at a time.
    let grid = stride_grid(x.count().div_ceil(4));
    // SAFETY: arguments follow kernels/pixels.cu in order and type; the callers allocated as many codes.
    unsafe { cuda.driver.launch(&name, grid, args![to, from, long(x.count())]) }
}

pub fn upload_pixels(cuda: &CudaOps, shape: Shape, pixels: &Pixels) -> Result<Tensor> {
    assert_eq!(shape.count(), pixels.len(), "upload of {shape}");
    // The tensor first: when the codes are freed, they leave no gap in front of it.
    let x = cuda.room("upload_pixels", shape, cuda.dtype)?;
    let codes = cuda.lend(Lane::In, "upload_pixels", shape, pixels.bytes().len())?;
    let bytes = pixels.bytes();
    transfer::bring(cuda, &codes, bytes, part(bytes.len()), 1, <[u8]>::copy_from_slice)?;
    launch(cuda, "upload_pixels", &x, codes.ptr(), pixels.depth())?;
    Ok(x)
}

/// Frames that are being copied to the host.
struct PendingPixels {
    parts: Vec<Pinned>,
    depth: Depth,
    count: usize,
    guard: Guard,
}

impl PendingDownload<Pixels> for PendingPixels {
    fn wait(self: Box<Self>, into: &mut Pixels) -> Result<()> {
        into.reset(self.depth, self.count);
        let bytes = into.bytes_mut();
        transfer::arrive(&self.parts, bytes, part(bytes.len()), <[u8]>::copy_from_slice)?;
        self.guard.check()
    }
}

pub fn start_download_pixels(cuda: &CudaOps, x: &Tensor, depth: Depth) -> Result<Box<dyn PendingDownload<Pixels>>> {
    let x = transfer::on_device(cuda, x)?;
    let bytes = x.count() * depth.bytes();
    let codes = cuda.lend(Lane::Compute, "send_pixels", x.shape(), bytes)?;
    launch(cuda, "send_pixels", &x, codes.ptr(), depth)?;
    let (guard, parts) =
        (Guard::new(cuda, x.dtype())?, transfer::leave(cuda, &codes, codes.ptr(), bytes, part(bytes))?);
    Ok(Box::new(PendingPixels { parts, depth, count: x.count(), guard }))
}
