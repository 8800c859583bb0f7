//! Work on frames: [`CudaFrames`] implements [`FrameOps`], and [`CudaLoader`] makes the input of the networks.
//!
//! Copies and kernels are queued on one stream in order, so that a buffer can be reused without waiting. All buffers
//! are parts of one allocation, and the frames that wait for their turn parts of another.

mod alpha;
mod arrays;
mod color;
mod kept;
mod layout;
mod limit;
mod load;
mod rank;
mod resize;
mod staging;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use reseed_ops::{
    ColorTransfer, DeviceResult, FrameOps, FrameResult, FrameResults, FrameSamples, FrameSlice, FrameSpec, FrameValues,
    PendingFrames, Result, Tensor,
};

use crate::device_memory::Allocation;
use crate::driver::Ptr;
use crate::launch::{Argument, Grid};
use crate::ops::CudaOps;
use crate::pinned::Pinned;
use crate::stream::{Event, Stream};
use alpha::AlphaFilter;
pub use arrays::{ArrayFrame, BufferFrame};
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
    alpha: Option<AlphaFilter>,
    /// Weights of `spec.steps`, and of the low band down and up.
    steps: Vec<Table>,
    low_band: Option<[Table; 2]>,
    /// Held during a slice, which uses all buffers.
    busy: Mutex<()>,
}

impl CudaOps {
    /// Bytes of device memory that the work on frames needs.
    pub fn frame_bytes(spec: &FrameSpec) -> usize {
        Layout::new(spec).bytes + KeptFrames::bytes(spec.kept, spec.output) + AlphaFilter::bytes(spec)
    }

    /// Allocates memory for the work on frames. It counts as memory of weights.
    pub fn frames(self: &Arc<Self>, spec: FrameSpec) -> Result<CudaFrames> {
        let layout = Layout::new(&spec);
        let block = self.allocate_weights(layout.bytes)?;
        let (kept, alpha) = (KeptFrames::new(self, spec.kept, spec.output)?, AlphaFilter::new(self, &spec)?);
        let mut at = block.ptr().plus(layout.tables);
        let mut upload = |resize| Table::upload(self.driver(), resize, &mut at);
        let steps = spec.steps.iter().map(&mut upload).collect::<Result<_>>()?;
        let low_band = match &spec.low_band {
            Some(band) => Some([upload(&band.down)?, upload(&band.up)?]),
            None => None,
        };
        let (cuda, busy) = (self.clone(), Mutex::default());
        Ok(CudaFrames { cuda, spec, layout, block, kept, alpha, steps, low_band, busy })
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

    /// Whether results depend on the samples of the input.
    fn needs_input(&self) -> bool {
        self.low_band.is_some() || self.spec.limit.is_some() || self.spec.color != ColorTransfer::None
    }

    /// Copies the values of a restored frame. Returns the pinned memory of what comes from the host.
    fn receive_values(&self, to: Ptr, values: &FrameValues) -> Result<Option<Pinned>> {
        let bytes = self.count() * size_of::<f32>();
        match values {
            FrameValues::Host(values) => self.upload(to, bytemuck::cast_slice(values)).map(Some),
            FrameValues::Device(frame) => {
                let from = kept::address(&**frame);
                // SAFETY: both hold a frame. The next owner of its memory writes later on the same stream.
                unsafe { self.cuda.driver().copy(Stream::Frames, to, from, bytes) }?;
                Ok(None)
            }
        }
    }

    /// The part of the work that concerns the colours of one frame before others matter.
    fn start_color(&self, frame: usize) -> Result<()> {
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

    /// Queues the alpha of a frame, whose guide is the frame before its colours are corrected.
    /// Returns the pinned memory of its samples and of its result.
    fn start_alpha(&self, frame: usize, alpha: Option<&&[u8]>, mask: bool) -> Result<Option<[Pinned; 2]>> {
        let (Some(filter), Some(samples)) = (&self.alpha, alpha) else { return Ok(None) };
        let sent = self.upload(filter.samples(), samples)?;
        filter.run(self.content(frame), mask)?;
        Ok(Some([sent, self.download_alpha(filter)?]))
    }

    fn queue(&self, slice: &FrameSlice, results: &mut FrameResults) -> Result<()> {
        let FrameSlice { frames, inputs, shares, alphas, mask } = *slice;
        let joins = self.spec.color.joins_frames();
        let mut downloads = VecDeque::new();
        let places: Vec<_> = results.frames.iter().map(FrameResult::on_device).collect();
        let mut to: Vec<&mut [u8]> = results.frames.iter_mut().map(FrameResult::on_host).collect();
        to.extend(results.alphas.iter_mut().map(|bytes| &mut **bytes));
        // The staging memory of one frame is filled while that of the frame before is copied.
        let mut last = None;
        for (i, (frame, input)) in frames.iter().zip(inputs).enumerate() {
            let at = if joins { i } else { 0 };
            let values = self.receive_values(self.content(at), frame)?;
            let samples = if self.needs_input() { self.receive_samples(*input)? } else { None };
            self.blend_low_band(at, shares[i])?;
            self.limit_range(at)?;
            let alpha = self.start_alpha(at, alphas.get(i), mask)?;
            let (sent, alpha) = alpha.map_or((None, None), |[sent, alpha]| (Some(sent), Some(alpha)));
            last.replace([values, samples, sent]);
            downloads.extend(alpha.map(|alpha| (frames.len() + i, alpha)));
            self.start_color(at)?;
            if !joins {
                downloads.extend(self.send(0, places[i])?.map(|pinned| (i, pinned)));
            }
            staging::receive_until(ON_THE_WAY, &mut downloads, &mut to)?;
        }
        if joins {
            self.join(frames.len())?;
            for (i, place) in places.iter().enumerate() {
                downloads.extend(self.send(i, *place)?.map(|pinned| (i, pinned)));
                staging::receive_until(ON_THE_WAY, &mut downloads, &mut to)?;
            }
        }
        staging::receive_until(0, &mut downloads, &mut to)?;
        match places.iter().any(Option::is_some) {
            true => Event::record(self.cuda.driver(), Stream::Frames)?.wait(),
            false => Ok(()),
        }
    }

    /// Queues the copy of a finished frame: to its place on this device, or to the host. Returns the pinned memory of
    /// the latter.
    fn send(&self, frame: usize, place: Option<&dyn DeviceResult>) -> Result<Option<Pinned>> {
        match place {
            Some(place) => self.store(frame, place).map(|()| None),
            None => self.download(frame).map(Some),
        }
    }

    fn check(&self, slice: &FrameSlice, results: &FrameResults) {
        let FrameSpec { frames: most, input, output, samples, alpha, .. } = &self.spec;
        let (count, [whole, finished]) =
            (slice.frames.len(), [input, output].map(|size| size.count() * samples.bytes()));
        let counts = [slice.inputs.len(), slice.shares.len(), results.frames.len()];
        assert_eq!(counts, [count; 3], "inputs, shares and results of a slice");
        assert_eq!([slice.alphas.len(), results.alphas.len()], [if alpha.is_some() { count } else { 0 }; 2], "alphas");
        assert!(count <= *most, "a slice of {count} frames where {most} are the most");
        let complete = |frame: &FrameValues| match frame {
            FrameValues::Host(values) => values.len() == self.count(),
            FrameValues::Device(_) => true,
        };
        assert!(slice.frames.iter().all(complete), "frames of {output}");
        let whole_input = |samples: &FrameSamples| match samples {
            FrameSamples::Host(samples) => samples.len() == 3 * whole,
            FrameSamples::Device(_) => true,
        };
        assert!(slice.inputs.iter().all(whole_input), "samples of {input}");
        assert!(slice.alphas.iter().all(|samples| samples.len() == whole), "alpha of {input}");
        let whole_result = |result: &FrameResult| match result {
            FrameResult::Host(samples) => samples.len() == 3 * finished,
            FrameResult::Device(_) => true,
        };
        assert!(results.frames.iter().all(whole_result), "samples of {output}");
        assert!(results.alphas.iter().all(|samples| samples.len() == finished), "alpha of {output}");
    }
}

impl FrameOps for CudaFrames {
    fn keep(&self, decoded: &Tensor) -> Result<Option<PendingFrames>> {
        self.kept.as_ref().map_or(Ok(None), |kept| kept.keep(decoded))
    }

    fn finish(&self, slice: &FrameSlice, results: &mut FrameResults) -> Result<()> {
        self.check(slice, results);
        let _busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue(slice, results)
    }
}
