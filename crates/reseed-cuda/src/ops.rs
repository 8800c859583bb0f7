//! The ops: each checks its operands, allocates its result and queues kernels.
//!
//! Only downloads wait. Memory that a queued kernel uses may be freed at once: it is reused only by work queued later.

mod attention;
mod attention_512;
mod axpby;
mod blend_add;
mod conv;
mod conv_gemm;
mod conv_hopper;
mod conv_int8;
mod conv_kernels;
mod conv_patch;
mod conv_stem;
mod conv_winograd;
mod conv_winograd_2d;
mod convolution;
mod dequantize;
mod fold;
mod gated_add;
mod gather_rows;
mod gelu;
mod group_norm;
mod interop;
mod layers;
mod linear;
mod linear_int8;
mod margin;
mod memory;
mod offloaded;
mod pixels;
mod qk_norm_rope;
mod rms_norm_modulate;
mod speed_model;
mod swiglu;
mod tail;
mod timing;
mod transfer;
mod tuned;
mod upsample;
mod vectors;
mod weights;
mod window_attention;
mod workspace;

use std::sync::Arc;

use reseed_ops::{
    Activation, Conv, ConvData, ConvOutput, ConvSpec, DType, Depth, Device, Epilogue, Error, HostMatmul, Linear,
    LinearData, LinearSpec, MathMode, MlpActivation, Norm, Ops, Packed, Payload, PendingDownload, Pixels, Placement,
    Precision, Qkv, Read, Residency, Result, Rotary, RotaryData, Rows, Shape, Stats, TemporalCache, Tensor, TraceOps,
    Transfer, Upsample, UpsampleData, UpsampleSpec, Vector, merge,
};

pub(crate) use memory::{ptr, row_grid, stride_grid};

use crate::device_memory::DeviceMemory;
use crate::driver::{DeviceInfo, Driver};
use crate::stream::{Event, Stream};
use conv_kernels::{ConvKernels, Winograd};
use conv_winograd::WinogradWeights;
pub use interop::{ForeignFrame, FrameRegion, NanFlag, QueuedWork};
use margin::free_memory_margin;
use offloaded::Offloaded;
pub use timing::Timestamp;
pub(crate) use transfer::{Guard, upload_parts};
use tuned::Tuner;

/// One NVIDIA GPU.
pub struct CudaOps {
    driver: Arc<Driver>,
    memory: Arc<DeviceMemory>,
    dtype: DType,
    /// Whether products of f32 run on tensor cores.
    tf32: bool,
    /// Accuracy that is kept, and the kernels that follow from it.
    math: MathMode,
    conv: ConvKernels,
    /// Merges the weights of upsamplers on the host.
    matmul: HostMatmul,
    /// Measured choices for linear layers, if any.
    tuner: Option<Arc<Tuner>>,
    /// Transformed weights of Winograd convolutions.
    winograd: Arc<WinogradWeights>,
}

impl CudaOps {
    /// GPU `ordinal`, with activations and weights of `precision`; sums are f32.
    ///
    /// `matmul` merges the weights of upsamplers on the host.
    pub fn new(ordinal: usize, precision: impl Into<Precision>, matmul: HostMatmul) -> Result<CudaOps> {
        let driver = Driver::new(ordinal)?;
        CudaOps::on(driver.clone(), DeviceMemory::new(driver, None), precision.into(), matmul)
    }

    /// The same GPU, with nothing allocated yet and at most `limit` bytes of its memory in use.
    pub fn within(self, limit: Option<usize>) -> CudaOps {
        CudaOps { memory: DeviceMemory::new(self.driver.clone(), limit), ..self }
    }

    /// The same GPU in another precision. Both share memory that tensors free.
    pub fn with_precision(&self, precision: impl Into<Precision>) -> Result<CudaOps> {
        let other = CudaOps::on(self.driver.clone(), self.memory.clone(), precision.into(), self.matmul)?;
        Ok(CudaOps { tuner: self.tuner.clone(), ..other.with_math(self.math) })
    }

    fn on(driver: Arc<Driver>, memory: Arc<DeviceMemory>, precision: Precision, matmul: HostMatmul) -> Result<CudaOps> {
        if matches!(precision, Precision::Bf16 | Precision::Tf32) && !driver.kernels.ampere {
            let (device, capability) = (driver.label.clone(), driver.info.capability);
            return Err(Error::UnsupportedPrecision { device, precision, capability, needed: (8, 0) });
        }
        let math = MathMode::default();
        Ok(CudaOps {
            math,
            conv: ConvKernels::of(&driver.kernels, precision.dtype(), math),
            driver,
            memory,
            dtype: precision.dtype(),
            tf32: precision == Precision::Tf32,
            matmul,
            tuner: None,
            winograd: Arc::default(),
        })
    }

    /// The GPU.
    pub fn info(&self) -> &DeviceInfo {
        &self.driver.info
    }

    /// Most bytes of device memory that were in use at once, with those of the driver's context.
    pub fn peak_bytes(&self) -> usize {
        self.driver.overhead + self.memory.peak()
    }

    /// Free and total bytes of device memory.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.driver.memory()
    }

    /// Bytes of device memory that may be used: the limit, or all.
    pub fn budget(&self) -> usize {
        self.memory.limit.unwrap_or(self.driver.info.memory)
    }

    /// Bytes that tensors may use in addition to the loaded weights: within the limit, or within the free memory less a
    /// margin for other processes.
    pub fn room_for_tensors(&self) -> Result<usize> {
        let ((free, all), (tensors, weights), limit) =
            (self.driver.memory()?, self.memory.allocated(), self.memory.limit);
        let margin = if limit.is_some() { 0 } else { free_memory_margin(all) };
        let available = free.saturating_sub(margin) + tensors;
        // The driver allocates more when kernels are first used, and for tables of pinned host memory.
        let later = |limit: usize| (40 << 20) + limit / 512 + self.library_bytes();
        let allowed =
            limit.map_or(available, |limit| limit.saturating_sub(self.driver.overhead + weights + later(limit)));
        Ok(available.min(allowed))
    }

    /// The time at which the kernels queued so far end.
    pub fn timestamp(&self) -> Result<Timestamp> {
        Ok(Timestamp(Event::record(&self.driver, Stream::Compute)?))
    }

    /// Creates devices that compute nothing and count the memory and time that this one would need.
    pub fn tracer(&self) -> Box<dyn Fn() -> TraceOps + Send + Sync> {
        let (dtype, hopper, library) = (self.dtype, self.driver.kernels.hopper, self.tuner.is_some());
        let (speed, wide) = (speed_model::of(&self.driver, self.precision(), self.conv), self.memory.wide);
        let (winograd, math) = (self.conv.winograd, self.math);
        let kernels = if winograd == Winograd::Plane { conv_winograd_2d::packed_weights } else { ConvSpec::weights };
        let new = move || {
            let workspace = workspace::of(dtype, hopper, winograd, library);
            TraceOps::new(dtype, dtype, workspace).with_kernels(kernels)
        };
        let int8 = move |spec: &LinearSpec| linear_int8::supports(dtype, math, spec);
        Box::new(move || {
            let trace = new().with_quantized_weights().with_int8_products(int8);
            trace.with_speed(speed).with_large_buffers(wide)
        })
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    pub(crate) fn device_memory(&self) -> &Arc<DeviceMemory> {
        &self.memory
    }

    fn unpack<'a, T: 'static>(&self, packed: &'a Packed) -> &'a T {
        packed.downcast_ref().expect("weights must stay on the device that packed them")
    }
}

impl Device for CudaOps {
    fn name(&self) -> String {
        self.driver.label.clone()
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn precision(&self) -> Precision {
        if self.tf32 { Precision::Tf32 } else { self.dtype.into() }
    }

    fn math_mode(&self) -> MathMode {
        self.math
    }
}

impl Residency for CudaOps {
    fn offload(&self, payload: Payload) -> Result<Payload> {
        Ok(match payload {
            Payload::Tensor(x) => Payload::Tensor(offloaded::offload(self, &x)?),
            Payload::Conv(conv) => Payload::Conv(layers::offload_conv(self, conv)?),
            Payload::Linear(linear) => Payload::Linear(layers::offload_linear(self, linear)?),
            Payload::Upsample(upsample) => Payload::Upsample(layers::offload_upsample(self, upsample)?),
        })
    }

    fn prefetch(&self, payload: Payload) -> Result<Payload> {
        Ok(match payload {
            Payload::Tensor(x) => Payload::Tensor(offloaded::prefetch(self, &x)?),
            Payload::Conv(conv) => Payload::Conv(layers::prefetch_conv(self, conv)?),
            Payload::Linear(linear) => Payload::Linear(layers::prefetch_linear(self, linear)?),
            Payload::Upsample(upsample) => Payload::Upsample(layers::prefetch_upsample(self, upsample)?),
        })
    }

    fn reserve(&self, bytes: usize) -> Result<()> {
        let refused = || Error::OutOfMemory {
            op: "reserve",
            device: self.driver.label.clone(),
            shape: Shape::from([bytes]),
            bytes,
        };
        if self.memory.reserve(bytes)? { Ok(()) } else { Err(refused()) }
    }
}

impl Transfer for CudaOps {
    fn upload(&self, shape: Shape, values: &[f32]) -> Result<Tensor> {
        transfer::upload(self, shape, values)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        transfer::start_download(self, x)?.wait(&mut values)?;
        Ok(values)
    }

    fn start_download(&self, x: &Tensor) -> Result<Box<dyn PendingDownload>> {
        transfer::start_download(self, x)
    }

    fn upload_pixels(&self, shape: Shape, pixels: &Pixels) -> Result<Tensor> {
        pixels::upload_pixels(self, shape, pixels)
    }

    fn start_download_pixels(&self, x: &Tensor, depth: Depth) -> Result<Box<dyn PendingDownload<Pixels>>> {
        pixels::start_download_pixels(self, x, depth)
    }
}

impl Ops for CudaOps {
    fn conv_weights(&self, spec: ConvSpec, read: Read<ConvData>) -> Result<Conv> {
        Ok(Conv { spec, executed: self.executed(&spec), packed: conv::pack(self, &spec, &read()?)? })
    }

    fn linear_weights(&self, spec: LinearSpec, read: Read<LinearData>) -> Result<Linear> {
        let int8 = linear_int8::supports(self.dtype, self.math, &spec);
        let pack = if int8 { linear_int8::pack } else { linear::pack };
        Ok(Linear { spec: spec.with_int8(int8), packed: pack(self, &spec, read()?)? })
    }

    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm> {
        Ok(Norm { channels, groups, eps, int8: false, packed: group_norm::pack(self, channels, &read()?, &[])? })
    }

    fn norm_conv_weights(
        &self,
        groups: usize,
        eps: f32,
        spec: ConvSpec,
        norm: Read<ConvData>,
        conv: Read<ConvData>,
    ) -> Result<(Norm, Conv)> {
        let (norm, conv) = (norm()?, conv()?);
        let bytes = match self.conv.int8 && conv_int8::fits(&spec) {
            true => conv_int8::pack(self, (groups, eps), spec, &norm, &conv)?,
            false => None,
        };
        if let Some(packed) = bytes {
            return Ok(packed);
        }
        let packed = group_norm::pack(self, spec.c_in, &norm, &[])?;
        let norm = Norm { channels: spec.c_in, groups, eps, int8: false, packed };
        Ok((norm, Conv { spec, executed: self.executed(&spec), packed: conv::pack(self, &spec, &conv)? }))
    }

    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample> {
        let packed = upsample::pack(self, &spec, &merge(&spec, &read()?, self.matmul))?;
        Ok(Upsample { spec, executed: self.executed(&spec.phase()), packed })
    }

    fn vector(&self, len: usize, read: Read<Vec<f32>>) -> Result<Vector> {
        vectors::vector(self, len, &read()?)
    }

    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows> {
        vectors::rows(self, per, rows)
    }

    fn rotary(&self, data: &RotaryData) -> Result<Rotary> {
        vectors::rotary(self, data)
    }

    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        conv::run(self, cache, x, conv, epilogue)
    }

    fn upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        groups: Option<usize>,
    ) -> Result<ConvOutput> {
        upsample::run(self, cache, x, upsample, groups)
    }

    fn tail(&self, cache: Option<Tensor>, x: Tensor, frames: usize) -> Result<Tensor> {
        match x.is_on::<Offloaded>() {
            true => Ok(offloaded::tail(cache, &x, frames)),
            false => tail::run(self, cache, x, frames),
        }
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        group_norm::run(self, x, stats, norm, act)
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        match linear.spec.int8 {
            true => linear_int8::run(self, x, None, linear, residual),
            false => linear::run(self, x, linear, residual),
        }
    }

    fn activated_linear(&self, x: Tensor, act: MlpActivation, linear: &Linear) -> Result<Tensor> {
        match linear.spec.int8 {
            true => linear_int8::run(self, &x, Some(act), linear, None),
            false => self.linear(&act.run(self, x)?, linear, None),
        }
    }

    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        attention::run(self, qkv, heads, lengths)
    }

    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        rms_norm_modulate::run(self, x, norm)
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
        gated_add::run(self, x, h, gate)
    }

    fn swiglu(&self, x: &Tensor) -> Result<Tensor> {
        swiglu::run(self, x)
    }

    fn gelu(&self, x: Tensor) -> Result<Tensor> {
        gelu::run(self, x)
    }

    fn qk_norm_rope(&self, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor> {
        qk_norm_rope::run(self, streams, rows, rotary, eps)
    }

    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor> {
        gather_rows::run(self, x, rows)
    }

    fn axpby(&self, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
        axpby::run(self, a, x, b, y)
    }

    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
        blend_add::run(self, canvas, tile, at)
    }
}
