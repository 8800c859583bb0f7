//! Frames between host and GPU as pixel codes, which are smaller than values; the GPU converts them.

use reseed_ops::{Depth, PendingDownload, Pixels, Result, Shape, Tensor};

use super::CudaOps;
use super::memory::{ptr, stride_grid};
use super::transfer::{self, Guard};
use crate::driver::Ptr;
use crate::launch::args;
use crate::params::long;
use crate::pinned::Pinned;
use crate::stream::Stream;

/// Bytes of a part: several parts, so that several threads copy, but few, since each costs as much time in the driver
/// as half a megabyte on the bus.
fn part(bytes: usize) -> usize {
    (bytes / 6).clamp(1 << 20, 4 << 20)
}

/// Queues the conversion between `x` and its codes.
fn launch(cuda: &CudaOps, op: &str, x: &Tensor, codes: Ptr, depth: Depth) -> Result<()> {
    let (to, from) = if op == "upload_pixels" { (ptr(x), codes) } else { (codes, ptr(x)) };
    let name = format!("{op}_u{}_{}", 8 * depth.bytes(), x.dtype());
    // A thread converts sixteen codes or eight at a time.
    let grid = stride_grid(x.count().div_ceil(4));
    // SAFETY: arguments follow kernels/pixels.cu in order and type; the callers allocated memory for as many codes.
    unsafe { cuda.driver.launch(&name, grid, args![to, from, long(x.count())]) }
}

pub fn upload_pixels(cuda: &CudaOps, shape: Shape, pixels: &Pixels) -> Result<Tensor> {
    assert_eq!(shape.count(), pixels.len(), "upload of {shape}");
    // The tensor first, so that freeing the codes leaves no gap before it.
    let x = cuda.empty("upload_pixels", shape, cuda.dtype)?;
    let codes = cuda.buffer(Stream::Upload, "upload_pixels", shape, pixels.bytes().len())?;
    let bytes = pixels.bytes();
    transfer::upload_parts(cuda, &codes, bytes, part(bytes.len()), 1, <[u8]>::copy_from_slice)?;
    launch(cuda, "upload_pixels", &x, codes.ptr(), pixels.depth())?;
    Ok(x)
}

/// Frames that are being downloaded.
struct Sent {
    parts: Vec<Pinned>,
    depth: Depth,
    count: usize,
    guard: Guard,
}

impl PendingDownload<Pixels> for Sent {
    fn wait(self: Box<Self>, into: &mut Pixels) -> Result<()> {
        into.reset(self.depth, self.count);
        let bytes = into.bytes_mut();
        transfer::receive_parts(&self.parts, bytes, part(bytes.len()), <[u8]>::copy_from_slice)?;
        self.guard.check()
    }
}

pub fn start_download_pixels(cuda: &CudaOps, x: &Tensor, depth: Depth) -> Result<Box<dyn PendingDownload<Pixels>>> {
    let x = transfer::on_device(cuda, x)?;
    let bytes = x.count() * depth.bytes();
    let codes = cuda.buffer(Stream::Compute, "download_pixels", x.shape(), bytes)?;
    launch(cuda, "download_pixels", &x, codes.ptr(), depth)?;
    let (guard, parts) =
        (Guard::new(cuda, x.dtype())?, transfer::download_parts(cuda, &codes, codes.ptr(), bytes, part(bytes))?);
    Ok(Box::new(Sent { parts, depth, count: x.count(), guard }))
}
