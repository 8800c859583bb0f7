//! Work on finished frames: [`CudaFrames`] implements [`FrameOps`].
//!
//! Copies and kernels are queued on one stream in order, so that a buffer can be reused without waiting. All buffers
//! are parts of one allocation.

mod color;
mod layout;
mod rank;
mod resize;
mod staging;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use reseed_ops::{ColorTransfer, FrameOps, FrameSpec, Pixels, Result};

use crate::device_memory::{Allocation, DeviceMemory};
use crate::driver::{Driver, Ptr};
use crate::launch::{Argument, Grid};
use crate::ops::CudaOps;
use crate::stream::Stream;
use layout::Layout;
use resize::Table;
use staging::Download;

/// Finished frames on their way to the host, at most.
const ON_THE_WAY: usize = 4;

/// Work on finished frames, with device memory of its own.
pub struct CudaFrames {
    driver: Arc<Driver>,
    memory: Arc<DeviceMemory>,
    spec: FrameSpec,
    layout: Layout,
    block: Allocation,
    /// Weights of `spec.steps`, and of the low band down and up.
    steps: Vec<Table>,
    low_band: Option<[Table; 2]>,
    /// Held during a slice, which uses all buffers.
    busy: Mutex<()>,
}

impl CudaOps {
    /// Bytes of device memory that the work on frames needs.
    pub fn frame_bytes(spec: &FrameSpec) -> usize {
        Layout::new(spec).bytes
    }

    /// Allocates memory for the work on frames. It counts as memory of weights.
    pub fn frames(&self, spec: FrameSpec) -> Result<CudaFrames> {
        let layout = Layout::new(&spec);
        let block = self.allocate_weights(layout.bytes)?;
        let (driver, memory) = (self.driver().clone(), self.device_memory().clone());
        let mut at = block.ptr().plus(layout.tables);
        let mut upload = |resize| Table::upload(&driver, resize, &mut at);
        let steps = spec.steps.iter().map(&mut upload).collect::<Result<_>>()?;
        let low_band = match &spec.low_band {
            Some(band) => Some([upload(&band.down)?, upload(&band.up)?]),
            None => None,
        };
        Ok(CudaFrames { driver, memory, spec, layout, block, steps, low_band, busy: Mutex::default() })
    }
}

impl CudaFrames {
    /// Queues a kernel.
    ///
    /// # Safety
    /// As for [`Driver::launch`].
    unsafe fn launch(&self, name: &str, grid: Grid, args: &mut [Argument]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.driver.launch_on(Stream::Frames, name, grid, args) }
    }

    fn at(&self, offset: usize) -> Ptr {
        self.block.ptr().plus(offset)
    }

    /// Values of a frame.
    fn count(&self) -> usize {
        3 * self.spec.output.count()
    }

    fn content(&self, frame: usize) -> Ptr {
        self.at(self.layout.content).plus(frame * self.count() * size_of::<f32>())
    }

    fn style(&self, frame: usize) -> Ptr {
        self.at(self.layout.style).plus(frame * self.count() * size_of::<f32>())
    }

    /// Codes of an input frame, or of a result.
    fn codes(&self) -> Ptr {
        self.at(self.layout.scratch.codes)
    }

    /// The type of codes, as names of kernels have it.
    fn code_type(&self) -> String {
        format!("u{}", 8 * self.spec.depth.bytes())
    }

    /// The part of the work that concerns one frame before others matter.
    fn start(&self, frame: usize, strength: f32) -> Result<()> {
        self.blend_low_band(frame, strength)?;
        match self.spec.color {
            ColorTransfer::None => Ok(()),
            ColorTransfer::Hsv | ColorTransfer::WaveletAdaptive => self.resize_input(frame),
            ColorTransfer::Lab | ColorTransfer::Wavelet => {
                self.resize_input(frame)?;
                self.wavelet(frame)
            }
            ColorTransfer::Adain => {
                self.resize_input(frame)?;
                self.adain(frame)
            }
        }
    }

    /// The part that concerns all frames of a slice together.
    fn join(&self, frames: usize) -> Result<()> {
        match self.spec.color {
            ColorTransfer::Lab => self.lab(frames),
            ColorTransfer::Hsv => self.hsv(frames),
            ColorTransfer::WaveletAdaptive => self.wavelet_adaptive(frames),
            ColorTransfer::Wavelet | ColorTransfer::Adain | ColorTransfer::None => Ok(()),
        }
    }

    fn queue(&self, frames: &[Vec<f32>], inputs: &[&[u8]], strengths: &[f32], results: &mut [Pixels]) -> Result<()> {
        let joins = self.spec.color.joins_frames();
        let mut downloads: VecDeque<Download> = VecDeque::new();
        let mut results = results.iter_mut();
        // The staging memory of one frame is filled while that of the frame before is copied.
        let mut last = None;
        for (i, (frame, input)) in frames.iter().zip(inputs).enumerate() {
            let at = if joins { i } else { 0 };
            let values = self.upload(self.content(at), bytemuck::cast_slice(frame))?;
            let codes = self.upload(self.codes(), input)?;
            last.replace([values, codes]);
            self.start(at, strengths[i])?;
            if !joins {
                downloads.push_back(self.download(0)?);
                self.receive(&mut downloads, ON_THE_WAY, &mut results)?;
            }
        }
        if joins {
            self.join(frames.len())?;
            for i in 0..frames.len() {
                downloads.push_back(self.download(i)?);
                self.receive(&mut downloads, ON_THE_WAY, &mut results)?;
            }
        }
        self.receive(&mut downloads, 0, &mut results)
    }
}

impl FrameOps for CudaFrames {
    fn finish(&self, frames: &[Vec<f32>], inputs: &[&[u8]], strengths: &[f32], results: &mut [Pixels]) -> Result<()> {
        let FrameSpec { frames: most, input, depth, .. } = &self.spec;
        assert_eq!((inputs.len(), results.len()), (frames.len(), frames.len()), "inputs and results of a slice");
        assert_eq!(strengths.len(), frames.len(), "strengths of a slice");
        assert!(frames.len() <= *most, "a slice of {} frames where {most} are the most", frames.len());
        assert!(frames.iter().all(|frame| frame.len() == self.count()), "frames of {}", self.spec.output);
        assert!(inputs.iter().all(|codes| codes.len() == 3 * input.count() * depth.bytes()), "codes of {input}");
        let _busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue(frames, inputs, strengths, results)
    }
}
