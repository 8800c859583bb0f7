//! Frames in GPU memory, as another library would have them.

use std::sync::Arc;

use reseed_cuda::{ArrayFrame, ArrayLayout, ArrayType, BufferFrame, CudaOps};
use reseed_media::{Depth, Frame, Size};
use reseed_ops::{DeviceResult, DeviceSamples, Hw, Result};
use reseed_testing::frames::Planes;

/// A copy of a frame.
pub fn samples(cuda: &CudaOps, frame: &Frame, planes: Planes) -> Result<Box<dyn DeviceSamples>> {
    let (Size { h, w }, dtype) = (frame.size, array_type(frame.depth()));
    let (bytes, n) = (frame.samples.as_bytes(), dtype.bytes());
    let pixels: Vec<&[u8]> = bytes.chunks_exact(3 * n).collect();
    let (elements, strides) = match planes {
        Planes::Interleaved => (bytes.to_vec(), [3 * h * w, 3 * w, 3, 1]),
        Planes::Separate => {
            let channel = |c: usize| pixels.iter().flat_map(move |pixel| &pixel[c * n..(c + 1) * n]).copied();
            ((0..3).flat_map(channel).collect(), [3 * h * w, w, 1, h * w])
        }
    };
    let buffer = cuda.device_buffer(elements.len())?;
    buffer.write(0, &elements)?;
    let strides = strides.map(|stride| stride as isize);
    let layout = ArrayLayout { address: buffer.address(), dtype, shape: [1, h, w, 3], strides };
    // SAFETY: the buffer holds the elements, is written, and lives as long as the array.
    let array = unsafe { cuda.foreign_array(layout, Box::new(buffer)) }?;
    let frame = ArrayFrame::all(&[Arc::new(array)]).next();
    Ok(Box::new(frame.expect("one frame")))
}

/// Memory for a finished frame.
pub fn result(cuda: &CudaOps, Size { h, w }: Size, depth: Depth) -> Result<Box<dyn DeviceResult>> {
    let dtype = array_type(depth);
    let buffer = cuda.device_buffer(3 * h * w * dtype.bytes())?;
    Ok(Box::new(BufferFrame::new(Arc::new(buffer), 0, Hw::new(h, w), dtype)))
}

fn array_type(depth: Depth) -> ArrayType {
    match depth {
        Depth::Eight => ArrayType::U8,
        Depth::Sixteen => ArrayType::U16,
        Depth::Float => ArrayType::F32,
    }
}
