//! Frames as input of the networks: [`CudaLoader`] implements [`FrameLoader`].
//!
//! The memory between samples and tensor is that of tensors: the first layer of the encoder needs more.

use std::ops::Range;
use std::sync::Arc;

use reseed_ops::{Device, FrameLoader, FrameSamples, FrameSpec, Hw, Result, SampleType, Shape, Tensor};

use super::arrays::ArrayFrame;
use super::layout::table_bytes;
use super::resize::{Resampler, Table, sample_name};
use crate::device_memory::{Allocation, ArenaBuffer};
use crate::driver::Ptr;
use crate::launch::{Arg, args};
use crate::ops::{CudaOps, ptr, row_grid, upload_parts};
use crate::params::int;
use crate::stream::Stream;

/// Bytes of a part of an upload.
const PART: usize = 1 << 20;

/// Resamples frames on a GPU.
pub struct CudaLoader {
    cuda: Arc<CudaOps>,
    input: Hw,
    samples: SampleType,
    steps: Vec<Table>,
    /// The weights of the steps.
    _tables: Allocation,
}

/// As `kernels/frames.cu` declares it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Region {
    size: [i32; 2],
    start: [i32; 2],
    columns: i32,
}

impl Arg for Region {}

impl CudaOps {
    /// A loader of frames for the networks of this device.
    pub fn loader(self: &Arc<Self>, spec: &FrameSpec) -> Result<CudaLoader> {
        let bytes: usize = spec.steps.iter().flat_map(table_bytes).sum();
        let tables = self.allocate_weights(bytes.max(1))?;
        let mut at = tables.ptr();
        let steps = spec.steps.iter().map(|step| Table::upload(self.driver(), step, &mut at)).collect::<Result<_>>()?;
        Ok(CudaLoader { cuda: self.clone(), input: spec.input, samples: spec.samples, steps, _tables: tables })
    }
}

impl CudaLoader {
    /// Memory that is reused when what is queued on it has ended.
    fn memory(&self, bytes: usize) -> Result<ArenaBuffer> {
        self.cuda.buffer(Stream::Compute, "load", Shape::from([bytes]), bytes)
    }

    /// Queues the copy of samples.
    fn receive(&self, samples: FrameSamples) -> Result<ArenaBuffer> {
        let size = 3 * self.input.count() * self.samples.bytes();
        let memory = self.memory(size)?;
        match samples {
            FrameSamples::Host(bytes) => {
                assert_eq!(bytes.len(), size, "samples of {}", self.input);
                upload_parts(&self.cuda, &memory, bytes, PART, 1, |to, from| to.copy_from_slice(from))?;
            }
            FrameSamples::Device(samples) => {
                let frame = ArrayFrame::of(samples, self.input, self.samples);
                self.cuda.read_samples(Stream::Compute, memory.ptr(), &frame.foreign())?;
            }
        }
        Ok(memory)
    }

    /// Queues the resampling of a frame to a region of `rows` rows.
    fn resample(&self, y: Ptr, samples: Ptr, mut at: Region, rows: usize) -> Result<()> {
        let (driver, dtype, kind) = (self.cuda.driver(), self.cuda.dtype(), sample_name(self.samples));
        let grid = row_grid(rows, 3 * at.columns as usize);
        let Some(last) = self.steps.last() else {
            at.size = [int(self.input.h), int(self.input.w)];
            // SAFETY: arguments follow kernels/frames.cu in order and type; y holds the region.
            return unsafe { driver.launch(&format!("load_samples_{kind}_{dtype}"), grid, args![y, samples, at]) };
        };
        at.size = [int(last.to.h), int(last.to.w)];
        let pixels = |size: Hw| 3 * size_of::<f32>() * size.count();
        let middle = if self.steps.len() > 1 { self.steps[0].to } else { Hw::new(0, 0) };
        let longest = (self.input.h * last.to.w).max(self.input.h * middle.w).max(middle.h * last.to.w);
        let (along_x, between) = (self.memory(3 * size_of::<f32>() * longest)?, self.memory(pixels(middle).max(1))?);
        let resampler = Resampler { driver, stream: Stream::Compute, along_x: along_x.ptr() };
        let input = (samples, self.input);
        let from = resampler.last_along_x(kind, input, (&self.steps, between.ptr()), last.to.w)?;
        let ([starts, weights], name) = (last.rows, format!("load_rows_{dtype}"));
        // SAFETY: as above.
        unsafe { driver.launch(&name, grid, args![y, resampler.along_x, starts, weights, int(from), at]) }
    }
}

impl FrameLoader for CudaLoader {
    fn load(&self, inputs: &[FrameSamples], rows: Range<usize>, columns: Range<usize>) -> Result<Tensor> {
        let shape = Shape::from([inputs.len(), rows.len(), columns.len(), 3]);
        let x = self.cuda.empty("load", shape, self.cuda.dtype())?;
        let at = Region { size: [0; 2], start: [int(rows.start), int(columns.start)], columns: int(columns.len()) };
        for (i, input) in inputs.iter().enumerate() {
            let samples = self.receive(*input)?;
            self.resample(ptr(&x.frames(i, 1)), samples.ptr(), at, rows.len())?;
        }
        Ok(x)
    }
}
