//! Work on frames: [`CudaFrames`] implements [`FrameOps`], and [`CudaLoader`] makes the input of the networks.
//!
//! Copies and kernels are queued on one stream in order, so that a buffer can be reused without waiting. All buffers
//! are parts of one allocation, and the frames that wait for their turn parts of another.

mod color;
mod kept;
mod layout;
mod load;
mod rank;
mod resize;
mod staging;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use reseed_ops::{ColorTransfer, FrameOps, FrameSpec, FrameValues, PendingFrames, Result, Tensor};

use crate::device_memory::Allocation;
use crate::driver::Ptr;
use crate::launch::{Argument, Grid};
use crate::ops::CudaOps;
use crate::pinned::Pinned;
use crate::stream::Stream;
use kept::KeptFrames;
use layout::Layout;
pub use load::CudaLoader;
use resize::Table;

/// Finished frames on their way to the host, at most.
const ON_THE_WAY: usize = 4;

/// Work on finished frames, with device memory of its own.
pub struct CudaFrames {
    cuda: Arc<CudaOps>,
    spec: FrameSpec,
    layout: Layout,
    block: Allocation,
    kept: Option<Arc<KeptFrames>>,
    /// Weights of `spec.steps`, and of the low band down and up.
    steps: Vec<Table>,
    low_band: Option<[Table; 2]>,
    /// Held during a slice, which uses all buffers.
    busy: Mutex<()>,
}

impl CudaOps {
    /// Bytes of device memory that the work on frames needs.
    pub fn frame_bytes(spec: &FrameSpec) -> usize {
        Layout::new(spec).bytes + KeptFrames::bytes(spec.kept, spec.output)
    }

    /// Allocates memory for the work on frames. It counts as memory of weights.
    pub fn frames(self: &Arc<Self>, spec: FrameSpec) -> Result<CudaFrames> {
        let layout = Layout::new(&spec);
        let block = self.allocate_weights(layout.bytes)?;
        let kept = KeptFrames::new(self, spec.kept, spec.output)?;
        let mut at = block.ptr().plus(layout.tables);
        let mut upload = |resize| Table::upload(self.driver(), resize, &mut at);
        let steps = spec.steps.iter().map(&mut upload).collect::<Result<_>>()?;
        let low_band = match &spec.low_band {
            Some(band) => Some([upload(&band.down)?, upload(&band.up)?]),
            None => None,
        };
        Ok(CudaFrames { cuda: self.clone(), spec, layout, block, kept, steps, low_band, busy: Mutex::default() })
    }
}

impl CudaFrames {
    /// Queues a kernel.
    ///
    /// # Safety
    /// As for [`Driver::launch`].
    unsafe fn launch(&self, name: &str, grid: Grid, args: &mut [Argument]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.cuda.driver().launch_on(Stream::Frames, name, grid, args) }
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

    /// Samples of an input frame, or of a result.
    fn samples(&self) -> Ptr {
        self.at(self.layout.scratch.samples)
    }

    /// Copies the values of a restored frame. Returns the pinned memory of what comes from the host.
    fn receive_values(&self, to: Ptr, values: &FrameValues) -> Result<Vec<Pinned>> {
        let bytes = self.count() * size_of::<f32>();
        match values {
            FrameValues::Host(values) => self.upload(to, bytemuck::cast_slice(values)),
            FrameValues::Device(frame) => {
                let from = kept::address(&**frame);
                // SAFETY: both hold a frame. The next owner of its memory writes later on the same stream.
                unsafe { self.cuda.driver().copy(Stream::Frames, to, from, bytes) }?;
                Ok(Vec::new())
            }
        }
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

    fn queue(
        &self,
        frames: &[FrameValues],
        inputs: &[&[u8]],
        strengths: &[f32],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        let joins = self.spec.color.joins_frames();
        let mut downloads = VecDeque::new();
        let mut results = results.iter_mut().map(|result| &mut **result);
        // The staging memory of one frame is filled while that of the frame before is copied.
        let mut last = None;
        for (i, (frame, input)) in frames.iter().zip(inputs).enumerate() {
            let at = if joins { i } else { 0 };
            let values = self.receive_values(self.content(at), frame)?;
            let samples = self.upload(self.samples(), input)?;
            last.replace([values, samples]);
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

    fn check(&self, frames: &[FrameValues], inputs: &[&[u8]], results: &[&mut [u8]]) {
        let FrameSpec { frames: most, input, output, samples, .. } = &self.spec;
        assert_eq!((inputs.len(), results.len()), (frames.len(), frames.len()), "inputs and results of a slice");
        assert!(frames.len() <= *most, "a slice of {} frames where {most} are the most", frames.len());
        let whole = |frame: &FrameValues| match frame {
            FrameValues::Host(values) => values.len() == self.count(),
            FrameValues::Device(_) => true,
        };
        assert!(frames.iter().all(whole), "frames of {output}");
        assert!(inputs.iter().all(|codes| codes.len() == 3 * input.count() * samples.bytes()), "samples of {input}");
        assert!(results.iter().all(|result| result.len() == self.count() * samples.bytes()), "samples of {output}");
    }
}

impl FrameOps for CudaFrames {
    fn keep(&self, decoded: &Tensor) -> Result<Option<PendingFrames>> {
        self.kept.as_ref().map_or(Ok(None), |kept| kept.keep(decoded))
    }

    fn finish(
        &self,
        frames: &[FrameValues],
        inputs: &[&[u8]],
        strengths: &[f32],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        self.check(frames, inputs, results);
        assert_eq!(strengths.len(), frames.len(), "strengths of a slice");
        let _busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue(frames, inputs, strengths, results)
    }
}
