//! Takes the place of the CUDA device in builds without it.

use std::convert::Infallible;
use std::path::PathBuf;

use reseed_ops::{FrameLoader, FrameOps, FrameSpec, Precision};

use super::{ComputeOptions, DeviceHandle, Tuning};
use crate::error::{Error, Result};

/// A GPU; this build has none.
#[derive(Clone)]
pub enum Gpu {}

/// A GPU of this machine; this build looks for none.
pub struct GpuInfo(Infallible);

impl Gpu {
    /// Most bytes of its memory that were allocated at once.
    pub fn peak_bytes(&self) -> usize {
        match *self {}
    }

    /// Whether it computes in bf16.
    pub fn has_bf16(&self) -> bool {
        match *self {}
    }

    /// The work on finished frames within the budget.
    pub fn fitted(&self, _: FrameSpec) -> Option<FrameSpec> {
        match *self {}
    }

    /// Bytes for the work on finished frames.
    pub fn frame_bytes(&self, _: &FrameSpec) -> usize {
        match *self {}
    }

    /// Resizes frames on the GPU.
    pub fn loader(&self, _: &FrameSpec) -> Option<Box<dyn FrameLoader>> {
        match *self {}
    }

    /// Memory for the work on finished frames.
    pub fn frames(&self, _: FrameSpec) -> Option<Box<dyn FrameOps>> {
        match *self {}
    }

    pub(super) fn with_precision(&self, _: Precision, _: &ComputeOptions) -> Result<DeviceHandle> {
        match *self {}
    }
}

/// None.
pub fn gpus() -> Result<Vec<GpuInfo>> {
    Ok(Vec::new())
}

/// None.
pub fn gpu_free_bytes(_: usize) -> Option<usize> {
    None
}

pub fn open(options: &ComputeOptions) -> Result<DeviceHandle> {
    Err(Error::NotBuilt { name: options.device.clone(), feature: "cuda" })
}

/// Nothing.
pub fn tuning() -> Tuning {
    Tuning { library: Err("this build has no CUDA support".into()), measured: Ok((0, 0)), record: PathBuf::new() }
}

/// None.
pub fn kernel_stamp() -> Option<&'static str> {
    None
}
