//! The device that computes nothing: it counts shapes, bytes and arithmetic. A model plans its memory with it.

mod ops;
mod residency;
mod state;
mod work;

use std::sync::{Arc, Mutex};

pub use residency::strip_rows;
pub use state::{SpeedModel, TraceReport};
use state::{TraceState, TracedBuffer, lock};
use work::Int8Products;
pub use work::{Work, Workspace};

use crate::cost::Cost;
use crate::device::Device;
use crate::error::Result;
use crate::math_mode::MathMode;
use crate::pixels::{Depth, Pixels};
use crate::precision::Precision;
use crate::shape::{DType, Shape};
use crate::tensor::Tensor;
use crate::timing::{CopyTime, DeviceTimer, HostTimer, Timing};
use crate::transfer::{PendingDownload, Transfer};
use crate::weights::{ConvSpec, LinearSpec};

/// Number of weights that a device packs for a convolution.
pub type Kernels = fn(&ConvSpec) -> usize;

/// Counts what another device would allocate, copy and compute.
pub struct TraceOps {
    dtype: DType,
    weights: DType,
    quantized: bool,
    kernels: Kernels,
    int8: Int8Products,
    workspace: Workspace,
    state: Arc<Mutex<TraceState>>,
}

impl TraceOps {
    /// A device whose activations are of `dtype`, whose weights are of `weights`, and whose ops need `workspace`.
    pub fn new(dtype: DType, weights: DType, workspace: Workspace) -> TraceOps {
        let state = Arc::new(Mutex::new(TraceState::new(SpeedModel::default())));
        TraceOps {
            dtype,
            weights,
            quantized: false,
            kernels: ConvSpec::weights,
            int8: Box::new(|_| false),
            workspace,
            state,
        }
    }

    /// Sets the speed.
    pub fn with_speed(self, speed: SpeedModel) -> TraceOps {
        lock(&self.state).speed = speed;
        self
    }

    /// Places buffers of at least `large` bytes at the end of the memory, as [`crate::Arena`] does.
    pub fn with_large_buffers(self, large: usize) -> TraceOps {
        lock(&self.state).place_at_end(large);
        self
    }

    /// Keeps quantized matrices as they are stored, as devices do that convert them next to their use.
    pub fn with_quantized_weights(self) -> TraceOps {
        TraceOps { quantized: true, ..self }
    }

    /// Packs `kernels` numbers for a convolution.
    pub fn with_kernels(self, kernels: Kernels) -> TraceOps {
        TraceOps { kernels, ..self }
    }

    /// Multiplies in 8 bits in the layers for which `int8` returns true.
    pub fn with_int8_products(self, int8: impl Fn(&LinearSpec) -> bool + Send + Sync + 'static) -> TraceOps {
        TraceOps { int8: Box::new(int8), ..self }
    }

    /// The speed that times are computed with.
    pub fn speed(&self) -> SpeedModel {
        lock(&self.state).speed
    }

    /// What has been counted so far.
    pub fn report(&self) -> TraceReport {
        lock(&self.state).report
    }

    fn alloc(&self, shape: impl Into<Shape>, dtype: DType) -> Tensor {
        self.filled(shape.into(), dtype, |state, free| {
            state.wait(free);
            0
        })
    }

    /// A tensor whose contents are complete at the time that `ready` returns.
    fn filled(&self, shape: Shape, dtype: DType, ready: impl FnOnce(&mut TraceState, u64) -> u64) -> Tensor {
        Tensor::new(shape, dtype, Arc::new(self.buffer(shape.count() * dtype.bytes(), ready)))
    }

    fn buffer(&self, bytes: usize, ready: impl FnOnce(&mut TraceState, u64) -> u64) -> TracedBuffer {
        let mut state = lock(&self.state);
        let (at, free) = state.place(bytes);
        TracedBuffer { at, bytes, ready: ready(&mut state, free), leaving: 0.into(), state: self.state.clone() }
    }

    /// `x` itself when its memory may be overwritten.
    fn writable(&self, mut x: Tensor) -> Tensor {
        if x.is_unique() { x } else { self.alloc(x.shape(), x.dtype()) }
    }

    fn count(&self, cost: Cost) {
        lock(&self.state).run(cost);
    }

    /// Counts the workspace of an op.
    fn work(&self, work: Work) {
        let bytes = (self.workspace)(&work);
        if bytes > 0 {
            let mut state = lock(&self.state);
            let at = state.allocate(bytes);
            state.free(at, bytes, 0);
        }
    }

    /// Counts weights that stay on the device.
    fn weights(&self, values: usize) {
        lock(&self.state).report.weights += values * self.weights.bytes();
    }

    fn matrix_bytes(&self, spec: &LinearSpec) -> usize {
        spec.bytes(self.weights.bytes())
    }
}

impl Device for TraceOps {
    fn name(&self) -> String {
        "trace".into()
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn precision(&self) -> Precision {
        self.dtype.into()
    }

    fn math_mode(&self) -> MathMode {
        MathMode::default()
    }
}

impl Timing for TraceOps {
    fn stage(&self, _: &str) {}

    fn timer(&self) -> Result<Box<dyn DeviceTimer>> {
        Ok(Box::new(HostTimer::start()))
    }

    fn finish(&self) -> Result<()> {
        lock(&self.state).finish();
        Ok(())
    }

    fn copy_time(&self) -> Result<CopyTime> {
        Ok(CopyTime::default())
    }
}

impl Transfer for TraceOps {
    fn upload(&self, shape: Shape, _: &[f32]) -> Result<Tensor> {
        Ok(self.alloc(shape, self.dtype))
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        Ok(vec![0.0; x.count()])
    }

    fn start_download(&self, x: &Tensor) -> Result<Box<dyn PendingDownload>> {
        Ok(Box::new(self.download(x)?))
    }

    fn upload_pixels(&self, shape: Shape, pixels: &Pixels) -> Result<Tensor> {
        let x = self.alloc(shape, self.dtype);
        self.work(Work::Pixels(x.count() * pixels.depth().bytes()));
        Ok(x)
    }

    fn start_download_pixels(&self, x: &Tensor, depth: Depth) -> Result<Box<dyn PendingDownload<Pixels>>> {
        self.work(Work::Pixels(x.count() * depth.bytes()));
        Ok(Box::new(Pixels::nearest(&self.download(x)?, depth)))
    }
}
