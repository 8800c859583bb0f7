//! Conversion between arrays of other libraries and tensors, on the GPU.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use reseed_ops::{Result, SampleType, Shape, Tensor};

use super::CudaOps;
use super::memory::{ptr, stride_grid};
use super::transfer::Guard;
use crate::driver::Ptr;
use crate::interop::{ArrayLayout, ArrayType, DeviceBuffer, ForeignArray};
use crate::launch::{Arg, args};
use crate::params::{int, long};
use crate::stream::{Event, Stream};

/// Channels of a frame that networks see.
const RGB: usize = 3;

/// One frame of an array.
#[derive(Clone, Copy)]
pub struct ForeignFrame<'a> {
    /// The array.
    pub array: &'a ForeignArray,
    /// Its index in the array.
    pub index: usize,
    /// Its number among all frames, for [`NanFlag`].
    pub number: usize,
}

/// Rows and columns of a frame; beyond its size there is black.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRegion {
    /// Rows.
    pub rows: Range<usize>,
    /// Columns.
    pub columns: Range<usize>,
}

/// As `kernels/interop.cu` declares it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Region {
    strides: [i64; 3],
    size: [i32; 2],
    start: [i32; 2],
    extent: [i32; 2],
}

impl Arg for Region {}

impl ForeignFrame<'_> {
    /// The name of a kernel for elements of the array's type.
    fn kernel(&self, stem: &str) -> String {
        format!("{stem}_{}", self.array.layout().dtype.suffix())
    }

    /// Pixels of the frame, which has RGB.
    fn pixels(&self) -> usize {
        let [_, h, w, channels] = self.array.layout().shape;
        assert_eq!(channels, RGB, "channels of a frame");
        assert_countable(h * w * RGB);
        h * w
    }

    /// The address of the frame, and all of it as a region.
    fn whole(&self) -> (Ptr, Region) {
        let [_, h, w, _] = self.array.layout().shape;
        self.region(&FrameRegion { rows: 0..h, columns: 0..w })
    }

    /// The address of the frame and the region of it.
    fn region(&self, region: &FrameRegion) -> (Ptr, Region) {
        let layout = self.array.layout();
        let [frames, h, w, channels] = layout.shape;
        assert!(self.index < frames, "frame {} of {frames}", self.index);
        let [frame, row, column, channel] = layout.strides;
        let offset = self.index as isize * frame * layout.dtype.bytes() as isize;
        // Grey frames are read three times.
        let channel = if channels == 1 { 0 } else { channel };
        let FrameRegion { rows, columns } = region;
        let at = Region {
            strides: [row, column, channel].map(|stride| stride as i64),
            size: [int(h), int(w)],
            start: [int(rows.start), int(columns.start)],
            extent: [int(rows.len()), int(columns.len())],
        };
        (Ptr(layout.address.wrapping_add_signed(offset as i64)), at)
    }
}

/// Position of the first NaN of imported frames.
pub struct NanFlag(DeviceBuffer);

impl NanFlag {
    /// None so far.
    pub fn new(cuda: &CudaOps) -> Result<NanFlag> {
        let flag = cuda.device_buffer(size_of::<u64>())?;
        flag.write(0, &0u64.to_ne_bytes())?;
        Ok(NanFlag(flag))
    }

    /// Its index among the values of all frames, three per pixel. Completed imports count.
    pub fn first(&self) -> Result<Option<u64>> {
        let mut found = [0; 8];
        self.0.read(0, &mut found)?;
        let found = u64::from_ne_bytes(found);
        Ok((found != 0).then_some(!found))
    }
}

/// Work that is queued.
pub struct QueuedWork {
    end: Arc<Event>,
    guard: Guard,
}

impl QueuedWork {
    /// Waits for it. An error where values have left the range of f16.
    pub fn wait(self) -> Result<()> {
        self.end.wait()?;
        self.guard.check()
    }
}

impl CudaOps {
    /// The handle of the stream of kernels, for libraries that order their work before it.
    pub fn stream_handle(&self) -> usize {
        self.driver.handle(Stream::Compute) as usize
    }

    /// An array of another library on this GPU, which lives as long as `owner`.
    ///
    /// # Safety
    /// Every element that the layout reaches is in the memory of this GPU and lives as long as `owner`. Work that
    /// writes it comes before the work that is queued on [`CudaOps::stream_handle`] now, and nothing writes it while
    /// the array lives.
    pub unsafe fn foreign_array(&self, layout: ArrayLayout, owner: Box<dyn Any + Send + Sync>) -> Result<ForeignArray> {
        // SAFETY: the caller's promise.
        unsafe { ForeignArray::new(&self.driver, layout, owner) }
    }

    /// Memory for a result, with undefined contents.
    pub fn device_buffer(&self, bytes: usize) -> Result<DeviceBuffer> {
        DeviceBuffer::new(self.driver.clone(), bytes)
    }

    /// The work that is queued so far.
    pub fn queued_work(&self) -> Result<QueuedWork> {
        Ok(QueuedWork { end: Event::record(&self.driver, Stream::Compute)?, guard: Guard::new(self, self.dtype)? })
    }

    /// A tensor `[T, H, W, 3]` of a region of frames. Values are 2 u - 1, where u is a code over its maximum or a float
    /// clamped to 0 to 1, as the host converts them. Grey becomes RGB, and alpha is not read.
    pub fn import_frames(&self, frames: &[ForeignFrame], region: &FrameRegion, nan: &NanFlag) -> Result<Tensor> {
        self.import(frames, region, RGB, |frame, to| {
            let (dtype, [_, h, w, channels]) = (frame.array.layout().dtype, frame.array.layout().shape);
            assert!(channels == 1 || channels >= RGB, "{channels} channels");
            let name = format!("import_frames_{}_{}", dtype.suffix(), self.dtype);
            let ((from, at), first) = (frame.region(region), long(frame.number * h * w * RGB));
            let grid = stride_grid(region.rows.len() * region.columns.len());
            let found = nan.0.part(0, size_of::<u64>());
            // SAFETY: arguments follow kernels/interop.cu in order and type; `to` holds the region, and the kernel
            // reads elements of the frame alone.
            unsafe { self.driver.launch(&name, grid, args![to, from, at, found, first]) }
        })
    }

    /// Queues a dense copy of the samples of a frame. Half floats become floats.
    pub(crate) fn read_samples(&self, stream: Stream, to: Ptr, frame: &ForeignFrame) -> Result<()> {
        let (name, (from, at), pixels) = (frame.kernel("read_samples"), frame.whole(), frame.pixels());
        frame.array.block(&self.driver, stream)?;
        // SAFETY: arguments follow kernels/interop.cu in order and type; callers pass memory for the samples, and the
        // kernel reads elements of the frame alone.
        unsafe { self.driver.launch_on(stream, &name, stride_grid(pixels), args![to, from, at]) }?;
        frame.array.read_by(Event::record(&self.driver, stream)?);
        Ok(())
    }

    /// The position of the first NaN of frames, as [`NanFlag::first`] returns it.
    pub fn find_nan(&self, frames: &[ForeignFrame]) -> Result<Option<u64>> {
        let nan = NanFlag::new(self)?;
        let floats = |frame: &&ForeignFrame| frame.array.layout().dtype.samples() == SampleType::F32;
        for frame in frames.iter().filter(floats) {
            let (name, (from, at), pixels) = (frame.kernel("find_nan"), frame.whole(), frame.pixels());
            let (found, first) = (nan.0.part(0, size_of::<u64>()), long(frame.number * pixels * RGB));
            frame.array.block(&self.driver, Stream::Compute)?;
            // SAFETY: as above.
            unsafe { self.driver.launch(&name, stride_grid(pixels), args![from, at, found, first]) }?;
        }
        Event::record(&self.driver, Stream::Compute)?.wait()?;
        nan.first()
    }

    /// A tensor `[T, H, W, C]` of a region of latents of f32, divided by `factor`.
    pub fn import_latents(&self, latents: &[ForeignFrame], region: &FrameRegion, factor: f32) -> Result<Tensor> {
        let channels = latents.first().map_or(0, |latent| latent.array.layout().shape[3]);
        self.import(latents, region, channels, |latent, to| {
            let layout = latent.array.layout();
            assert_eq!((layout.dtype, layout.shape[3]), (ArrayType::F32, channels), "latents of f32");
            let name = format!("import_latents_{}", self.dtype);
            let (from, at) = latent.region(region);
            let grid = stride_grid(region.rows.len() * region.columns.len() * channels);
            // SAFETY: as above.
            unsafe { self.driver.launch(&name, grid, args![to, from, at, int(channels), factor]) }
        })
    }

    fn import(
        &self,
        frames: &[ForeignFrame],
        region: &FrameRegion,
        channels: usize,
        launch: impl Fn(&ForeignFrame, Ptr) -> Result<()>,
    ) -> Result<Tensor> {
        let shape = Shape::from([frames.len(), region.rows.len(), region.columns.len(), channels]);
        assert_countable(shape.count() / frames.len().max(1));
        let x = self.empty("import", shape, self.dtype)?;
        for (i, frame) in frames.iter().enumerate() {
            frame.array.block(&self.driver, Stream::Compute)?;
            launch(frame, ptr(&x.frames(i, 1)))?;
        }
        let end = Event::record(&self.driver, Stream::Compute)?;
        frames.iter().for_each(|frame| frame.array.read_by(end.clone()));
        Ok(x)
    }

    /// Writes the top left of frames `[T, H, W, 3]` with values in [-1, 1] to byte `at` of a buffer.
    pub fn export_frames(
        &self,
        x: &Tensor,
        size: [usize; 2],
        dtype: ArrayType,
        to: (&DeviceBuffer, usize),
    ) -> Result<()> {
        let ((buffer, at), [h, w]) = (to, size);
        let (thw, name) = (x.thw(), format!("export_frames_{}_{}", dtype.suffix(), x.dtype()));
        assert!(h <= thw.h && w <= thw.w && x.channels() == RGB, "{h}x{w} of {}", x.shape());
        let bytes = h * w * RGB * dtype.bytes();
        assert_countable(thw.h * thw.w * RGB);
        for i in 0..thw.t {
            let (to, from) = (buffer.part(at + i * bytes, bytes), ptr(&x.frames(i, 1)));
            let grid = stride_grid(h * w * RGB);
            // SAFETY: arguments follow kernels/interop.cu in order and type; `part` has checked the memory.
            unsafe { self.driver.launch(&name, grid, args![to, from, int(h), int(w), int(thw.w)]) }?;
        }
        Ok(())
    }

    /// Writes the first `channels` channels of a tensor, times `factor`, as f32 to byte `at` of a buffer.
    pub fn export_latents(&self, x: &Tensor, channels: usize, factor: f32, to: (&DeviceBuffer, usize)) -> Result<()> {
        assert!(channels <= x.channels(), "{channels} channels of {}", x.shape());
        let to = to.0.part(to.1, x.rows() * channels * ArrayType::F32.bytes());
        let (name, grid) = (format!("export_latents_{}", x.dtype()), stride_grid(x.rows() * channels));
        let (pixels, from) = (int(x.rows()), int(x.channels()));
        assert_countable(x.count());
        // SAFETY: arguments follow kernels/interop.cu in order and type; `part` has checked the memory of the values.
        unsafe { self.driver.launch(&name, grid, args![to, ptr(x), pixels, from, int(channels), factor]) }
    }
}

/// Kernels count the values of a launch in 32 bits.
fn assert_countable(values: usize) {
    assert!(values < 1 << 31, "{values} values in one launch");
}
