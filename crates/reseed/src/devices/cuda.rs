//! NVIDIA GPUs.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use reseed_cpu::CpuOps;
use reseed_cuda::{ArrayLayout, CudaOps, DeviceBuffer, ForeignArray, Timestamp};
use reseed_ops::{Ceiling, Device, FrameLoader, FrameOps, FrameSpec, Precision};

use super::{ComputeOptions, DeviceHandle, Tuning, checked, unknown};
use crate::error::Result;
use crate::paths;

pub use reseed_cuda::DeviceInfo as GpuInfo;

/// Most of the budget that the work on finished frames may take.
const FRAMES_PART: usize = 16;

/// A GPU, for its memory and its clock.
#[derive(Clone)]
pub struct Gpu(Arc<CudaOps>);

impl Gpu {
    /// Most bytes of its memory that were allocated at once, with the driver's own.
    pub fn peak_bytes(&self) -> usize {
        self.0.peak_bytes()
    }

    /// Whether it computes in bf16, as GPUs from Ampere on do.
    pub fn has_bf16(&self) -> bool {
        self.0.info().capability >= (8, 0)
    }

    /// The time when the kernels queued so far are done.
    pub fn timestamp(&self) -> Result<Timestamp> {
        Ok(self.0.timestamp()?)
    }

    /// Its index, as in `cuda:0`.
    pub fn ordinal(&self) -> usize {
        self.0.info().ordinal
    }

    /// The handle of its stream of kernels. Another library that orders its work before this stream may then hand over
    /// an array.
    pub fn stream_handle(&self) -> usize {
        self.0.stream_handle()
    }

    /// An array of another library on this GPU.
    ///
    /// # Safety
    /// As for [`CudaOps::foreign_array`].
    pub unsafe fn array(&self, layout: ArrayLayout, owner: Box<dyn Any + Send + Sync>) -> Result<ForeignArray> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.0.foreign_array(layout, owner) }?)
    }

    /// Memory for a result, with undefined contents.
    pub fn buffer(&self, bytes: usize) -> Result<DeviceBuffer> {
        Ok(self.0.device_buffer(bytes)?)
    }

    /// The device itself, for tensors of arrays.
    pub(crate) fn ops(&self) -> &CudaOps {
        &self.0
    }

    /// The work on finished frames, with as many frames that stay on the GPU as have room; `None` where it takes too
    /// large a part of the budget without any.
    pub fn fitted(&self, spec: FrameSpec) -> Option<FrameSpec> {
        let bytes = |kept| CudaOps::frame_bytes(&FrameSpec { kept, ..spec.clone() });
        let room = (self.0.budget() / FRAMES_PART).checked_sub(bytes(0))?;
        let kept = spec.kept.min(room / (bytes(1) - bytes(0)));
        Some(FrameSpec { kept, ..spec })
    }

    /// Bytes for the work on finished frames.
    pub fn frame_bytes(&self, spec: &FrameSpec) -> usize {
        CudaOps::frame_bytes(spec)
    }

    /// Memory for the work on finished frames, where it is free.
    pub fn frames(&self, spec: FrameSpec) -> Option<Box<dyn FrameOps>> {
        Some(Box::new(self.0.frames(spec).ok()?))
    }

    /// Resizes frames on the GPU; `None` where it has no memory for the weights.
    pub fn loader(&self, spec: &FrameSpec) -> Option<Box<dyn FrameLoader>> {
        Some(Box::new(self.0.loader(spec).ok()?))
    }

    pub(super) fn with_precision(&self, precision: Precision, options: &ComputeOptions) -> Result<DeviceHandle> {
        device(self.0.with_precision(precision)?, options, Vec::new())
    }
}

/// The GPUs of this machine.
pub fn gpus() -> Result<Vec<GpuInfo>> {
    Ok(reseed_cuda::devices()?)
}

/// Free bytes of a GPU that this process uses, where the driver knows.
pub fn gpu_free_bytes(ordinal: usize) -> Option<usize> {
    reseed_cuda::free_bytes(ordinal).ok().flatten()
}

pub fn open(options: &ComputeOptions) -> Result<DeviceHandle> {
    let number = match options.device.split_once(':') {
        None => Some(0),
        Some((_, number)) => number.parse().ok(),
    };
    let number = number.ok_or_else(|| unknown(options))?;
    let cuda = CudaOps::new(number, options.dtype.unwrap_or(Precision::F16), reseed_cpu::matmul)?;
    let mut cuda = cuda.within(options.budget).with_math(options.math);
    let warnings = match options.measured_kernels || options.tune {
        true => cuda.tune(&tuning_record(), options.tune)?,
        false => Vec::new(),
    };
    device(cuda, options, warnings)
}

fn device(cuda: CudaOps, options: &ComputeOptions, warnings: Vec<String>) -> Result<DeviceHandle> {
    let cuda = Arc::new(cuda);
    let gpu = cuda.clone();
    let ceiling = options.profile.then(|| Ceiling::measure(&*cuda)).transpose()?;
    let ops: Arc<dyn Device> = match &options.check {
        Some(report) => {
            checked(CpuOps::new(cuda.dtype(), options.threads)?.with_math(options.math), cuda.clone(), report.clone())
        }
        None => cuda.clone(),
    };
    Ok(DeviceHandle {
        trace: cuda.tracer(),
        room: Box::new(move || Ok(Some(gpu.room_for_tensors()?))),
        slice: None,
        lanes: 1,
        gpu: Some(Gpu(cuda.clone())),
        ceiling,
        ops,
        // The same GPU at another place computes alike.
        class: cuda.name().split_once(' ').map_or_else(|| cuda.name(), |(_, model)| model.into()),
        warnings,
    })
}

/// The record of measured kernels, in the user's cache.
fn tuning_record() -> PathBuf {
    paths::cache().join("reseed").join("linear.txt")
}

/// The state of measured kernels.
pub fn tuning() -> Tuning {
    let record = tuning_record();
    Tuning { library: reseed_cuda::library(), measured: reseed_cuda::recorded(&record), record }
}

/// Identifies the embedded kernels.
pub fn kernel_stamp() -> Option<&'static str> {
    Some(reseed_cuda::kernel_stamp())
}
