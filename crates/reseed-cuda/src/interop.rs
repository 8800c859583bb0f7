//! Memory that the engine shares with other libraries on the same GPU: their arrays, and results that they receive.
//!
//! All libraries of a process use the primary context of a GPU, so that an address means the same to each of them. What
//! differs is the order of work: every library has streams of its own.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use half::f16;
use reseed_ops::{Error, Result, SampleType, Shape};

use crate::driver::{Driver, Ptr};
use crate::stream::{Event, LastCopies, Stream};

/// Type of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayType {
    /// Codes up to 255.
    U8,
    /// Codes up to 65535.
    U16,
    /// Half floats.
    F16,
    /// Floats.
    F32,
}

impl ArrayType {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            ArrayType::U8 => 1,
            ArrayType::U16 | ArrayType::F16 => 2,
            ArrayType::F32 => 4,
        }
    }

    /// The type of samples of frames in such an array.
    pub fn samples(self) -> SampleType {
        match self {
            ArrayType::U8 => SampleType::U8,
            ArrayType::U16 => SampleType::U16,
            ArrayType::F16 | ArrayType::F32 => SampleType::F32,
        }
    }

    /// As names of kernels have it.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            ArrayType::U8 => "u8",
            ArrayType::U16 => "u16",
            ArrayType::F16 => "f16",
            ArrayType::F32 => "f32",
        }
    }
}

/// Where the elements of an array are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayLayout {
    /// Address of the first element.
    pub address: u64,
    /// Type of the elements.
    pub dtype: ArrayType,
    /// Frames, rows, columns and channels.
    pub shape: [usize; 4],
    /// Elements from one to the next of each.
    pub strides: [isize; 4],
}

impl ArrayLayout {
    /// The bytes that hold the elements, from the first element on.
    fn span(&self) -> Range<isize> {
        let last = |(side, stride): (&usize, &isize)| (side.saturating_sub(1)) as isize * stride;
        let ends = self.shape.iter().zip(&self.strides).map(last);
        let (low, high) = ends.fold((0, 1), |(low, high), end| (low + end.min(0), high + end.max(0)));
        let bytes = self.dtype.bytes() as isize;
        bytes * low..bytes * high
    }
}

impl ArrayLayout {
    /// The elements of one frame in order, from the bytes of its span. Half floats become floats.
    fn dense(&self, span: Vec<u8>) -> Vec<u8> {
        let ArrayLayout { dtype, shape: [_, h, w, channels], strides, .. } = *self;
        let [row, column] = [w * channels, channels].map(|stride| stride as isize);
        if dtype != ArrayType::F16 && strides[1..] == [row, column, 1] {
            return span;
        }
        let (first, bytes) = (-self.span().start, dtype.bytes());
        let mut dense = Vec::with_capacity(h * w * channels * dtype.samples().bytes());
        let indices = (0..h).flat_map(|y| (0..w).flat_map(move |x| (0..channels).map(move |c| [y, x, c])));
        for index in indices {
            let element: isize = index.iter().zip(&strides[1..]).map(|(i, stride)| *i as isize * stride).sum();
            let element = &span[(first + element * bytes as isize) as usize..][..bytes];
            match (dtype, element) {
                (ArrayType::F16, &[low, high]) => {
                    dense.extend(f16::from_ne_bytes([low, high]).to_f32().to_ne_bytes());
                }
                _ => dense.extend(element),
            }
        }
        dense
    }
}

/// An array of another library in the memory of a GPU. It is read in place.
pub struct ForeignArray {
    layout: ArrayLayout,
    driver: Arc<Driver>,
    /// Reached when the work that the other library has queued on the array is done.
    ready: Arc<Event>,
    /// The last kernels that read it.
    readers: LastCopies,
    /// Dropped when they have ended.
    owner: Option<Box<dyn Any + Send + Sync>>,
}

impl ForeignArray {
    /// An array that lives as long as `owner`.
    ///
    /// # Safety
    /// As for `CudaOps::foreign_array`.
    pub(crate) unsafe fn new(
        driver: &Arc<Driver>,
        layout: ArrayLayout,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<ForeignArray> {
        let (driver, ready) = (driver.clone(), Event::record(driver, Stream::Compute)?);
        Ok(ForeignArray { layout, driver, ready, readers: LastCopies::default(), owner: Some(owner) })
    }

    /// Where the elements are.
    pub fn layout(&self) -> &ArrayLayout {
        &self.layout
    }

    /// Copies `to.len()` bytes from byte `from` after the start of the first element on, once they are ready. Panics
    /// where they leave the array.
    pub fn read(&self, from: isize, to: &mut [u8]) -> Result<()> {
        let (span, end) = (self.layout.span(), from + to.len() as isize);
        assert!(span.start <= from && end <= span.end, "bytes {from} to {end} of an array in {span:?}");
        self.ready.wait()?;
        // SAFETY: the bytes are between the first and the last element, and nothing writes the array.
        unsafe { self.driver.read(to, Ptr(self.layout.address.wrapping_add_signed(from as i64))) }
    }

    /// Copies the elements of a frame to the host, dense. Half floats become floats.
    pub(crate) fn fetch(&self, frame: usize) -> Result<Vec<u8>> {
        let ArrayLayout { dtype, shape: [_, h, w, channels], strides, .. } = self.layout;
        let one = ArrayLayout { shape: [1, h, w, channels], ..self.layout };
        let span = one.span();
        let mut copied = vec![0; (span.end - span.start) as usize];
        self.read(frame as isize * strides[0] * dtype.bytes() as isize + span.start, &mut copied)?;
        Ok(one.dense(copied))
    }

    /// Makes work that is queued on a stream from now on wait for the array.
    pub(crate) fn block(&self, driver: &Driver, stream: Stream) -> Result<()> {
        self.ready.block_on(driver, stream)
    }

    /// Keeps the array until the kernels that are queued now have ended.
    pub(crate) fn read_by(&self, kernels: Arc<Event>) {
        self.readers.add(kernels);
    }
}

impl Drop for ForeignArray {
    fn drop(&mut self) {
        // An error here is one of the context, which the next call that returns errors reports.
        self.readers.take().for_each(|kernels| drop(kernels.wait()));
        drop(self.owner.take());
    }
}

/// Memory of a result. It belongs to the caller: sessions and their plans do not count it, and it outlives them.
pub struct DeviceBuffer {
    at: Ptr,
    bytes: usize,
    driver: Arc<Driver>,
}

impl DeviceBuffer {
    /// Memory with undefined contents.
    pub(crate) fn new(driver: Arc<Driver>, bytes: usize) -> Result<DeviceBuffer> {
        let (op, device, shape) = ("result", driver.label.clone(), Shape::from([bytes]));
        let at = driver.alloc(bytes)?.ok_or(Error::OutOfMemory { op, device, shape, bytes })?;
        Ok(DeviceBuffer { at, bytes, driver })
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.at.0
    }

    /// Index of its GPU.
    pub fn ordinal(&self) -> usize {
        self.driver.info.ordinal
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of `bytes` bytes from `at` on. Panics where they leave the memory.
    pub(crate) fn part(&self, at: usize, bytes: usize) -> Ptr {
        let end = at.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "{bytes} bytes at {at} of {}", self.bytes);
        self.at.plus(at)
    }

    /// Copies bytes to it.
    pub fn write(&self, at: usize, from: &[u8]) -> Result<()> {
        // SAFETY: `part` checks that the memory holds these bytes.
        unsafe { self.driver.write(self.part(at, from.len()), from) }
    }

    /// Copies bytes from it.
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<()> {
        // SAFETY: `part` checks that the memory holds these bytes.
        unsafe { self.driver.read(to, self.part(at, to.len())) }
    }

    /// A copy of a part of it.
    pub fn copy(&self, at: usize, bytes: usize) -> Result<DeviceBuffer> {
        let (from, copy) = (self.part(at, bytes), DeviceBuffer::new(self.driver.clone(), bytes)?);
        // SAFETY: both hold these bytes and are different allocations.
        unsafe { self.driver.copy(Stream::Compute, copy.at, from, bytes) }?;
        self.driver.synchronize()?;
        Ok(copy)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it; the driver waits for work of other libraries that still uses it.
        unsafe { self.driver.free(self.at) };
    }
}

impl Driver {
    /// Copies memory that is shared with other libraries to the host, and waits.
    ///
    /// # Safety
    /// `from` holds that many bytes, and nothing that is queued writes them.
    unsafe fn read(&self, to: &mut [u8], from: Ptr) -> Result<()> {
        // SAFETY: the caller's promise; `to` outlives the copy because we wait for it.
        unsafe { self.download(Stream::Interop, to.as_mut_ptr().cast(), from, to.len()) }?;
        self.wait_for(Stream::Interop)
    }

    /// Copies from the host to memory that is shared with other libraries, and waits.
    ///
    /// # Safety
    /// `to` holds that many bytes, and nothing that is queued uses them.
    unsafe fn write(&self, to: Ptr, from: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise; `from` outlives the copy because we wait for it.
        unsafe { self.upload(Stream::Interop, to, from.as_ptr().cast(), from.len()) }?;
        self.wait_for(Stream::Interop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_in_order_whatever_the_strides() {
        let (h, w) = (2, 3);
        let pixels: Vec<u8> = (0..18).collect();
        let planes: Vec<u8> = (0..3).flat_map(|c| pixels.iter().skip(c).step_by(3)).copied().collect();
        let flipped: Vec<u8> = pixels.chunks_exact(9).rev().flatten().copied().collect();
        let layout = |dtype, strides| ArrayLayout { address: 0, dtype, shape: [1, h, w, 3], strides };
        for (bytes, strides) in [(pixels.clone(), [18, 9, 3, 1]), (planes, [18, 3, 1, 6]), (flipped, [18, -9, 3, 1])] {
            assert_eq!(layout(ArrayType::U8, strides).dense(bytes), pixels, "{strides:?}");
        }
        let halves: Vec<f16> = (0..18u8).map(|i| f16::from_f32(i.into())).collect();
        let floats: Vec<f32> = (0..18u8).map(f32::from).collect();
        let dense = layout(ArrayType::F16, [18, 9, 3, 1]).dense(bytemuck::cast_slice(&halves).to_vec());
        assert_eq!(dense, bytemuck::cast_slice::<_, u8>(&floats));
    }
}
