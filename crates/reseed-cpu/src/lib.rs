//! The CPU device. Each op chooses by level; the reference level is the definition.

mod amx;
mod attention;
mod blocked;
mod conv;
mod elementwise;
mod finish;
mod gather_rows;
mod gemm;
mod group_norm;
mod kernel;
mod level;
mod leveled;
mod linear;
mod matmul;
mod memory;
mod merged;
mod pairs;
mod panels;
mod peak;
mod pixels;
mod qk_norm_rope;
mod rms_norm_modulate;
mod simd;
mod small;
mod stats;
mod transpose;
mod upsample;
mod widen;
mod workspace;

use std::sync::{Arc, Mutex, PoisonError};

use half::{bf16, f16};
use rayon::prelude::*;

use gemm::narrow_width;
pub use level::Level;
pub use matmul::matmul;
use memory::{Element, Pool, Values, with_element};
use panels::{Panels, Weights};
use reseed_ops::reference::{self, Clip};
use reseed_ops::{
    Activation, Conv, ConvData, ConvOutput, ConvSpec, CopyTime, DType, Depth, Device, DeviceTimer, Epilogue, Error,
    HostTimer, Kernels, Linear, LinearData, LinearSpec, Norm, Ops, Packed, Payload, PendingDownload, Pixels, Placement,
    Precision, Qkv, Read, Residency, Result, Rotary, RotaryData, Rows, Shape, Stats, TemporalCache, Tensor, Timing,
    TraceOps, Transfer, Upsample, UpsampleData, UpsampleSpec, Vector,
};
use widen::narrowest;

/// The CPU, at one level, with its own threads.
pub struct CpuOps {
    level: Level,
    dtype: DType,
    threads: rayon::ThreadPool,
    memory: Arc<Pool>,
    /// Where statistics of blocks stood, for the next op.
    measured: Mutex<Vec<[f64; 2]>>,
}

impl CpuOps {
    /// The best level of this machine (capped by `RESEED_CPU`), on `threads` threads or one per core.
    pub fn new(dtype: DType, threads: Option<usize>) -> Result<CpuOps> {
        CpuOps::at(Level::detect()?, dtype, threads)
    }

    /// A chosen level; it must be one of [`Level::available`].
    pub fn at(level: Level, dtype: DType, threads: Option<usize>) -> Result<CpuOps> {
        assert!(Level::available().any(|have| have == level), "this machine has no {level}");
        let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let threads = pool.map_err(|e| Error::Threads { threads, reason: e.to_string() })?;
        let level = if dtype == DType::Bf16 { level } else { level.simd() };
        Ok(CpuOps { level, dtype, threads, memory: Arc::default(), measured: Mutex::default() })
    }

    /// The level in use: tiles are for bf16 alone.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The level of kernels that know no tiles.
    fn simd(&self) -> Level {
        self.level.simd()
    }

    /// Whether products run on tiles.
    fn tiles(&self) -> bool {
        self.level == Level::Amx
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// Floating-point operations a second that one core's multiply-adds reach when nothing comes from memory.
    pub fn peak(&self) -> f64 {
        self.install(|| peak::peak(self.level))
    }

    /// A device that computes nothing and counts what this one would take.
    pub fn trace(&self) -> TraceOps {
        let (packed, kernels): (_, Kernels) = match self.tiles() {
            true => (DType::Bf16, amx::pairs::weights),
            false => (DType::F32, ConvSpec::weights),
        };
        TraceOps::new(self.dtype, packed, workspace::of(self.threads(), packed, kernels)).with_kernels(kernels)
    }

    fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.threads.install(work)
    }

    fn room(&self, op: &'static str, shape: Shape, dtype: DType) -> Result<Tensor> {
        memory::room(&self.memory, op, shape, dtype)
    }

    fn writable(&self, op: &'static str, x: Tensor) -> Result<Tensor> {
        memory::writable(&self.memory, op, x)
    }

    /// Room for statistics of blocks, with anything in it; to be given back with [`CpuOps::keep_room`].
    fn measured(&self, count: usize) -> Vec<[f64; 2]> {
        let mut measured = std::mem::take(&mut *self.measured.lock().unwrap_or_else(PoisonError::into_inner));
        measured.resize(count, [0.0; 2]);
        measured
    }

    fn keep_room(&self, measured: Vec<[f64; 2]>) {
        *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = measured;
    }

    /// Weights as this device's type would hold them.
    fn round(&self, values: &mut [f32]) {
        match self.dtype {
            DType::F32 => {}
            DType::F16 => self.install(|| values.par_iter_mut().for_each(|v| *v = f16::from_f32(*v).to_f32())),
            DType::Bf16 => self.install(|| values.par_iter_mut().for_each(|v| *v = bf16::from_f32(*v).to_f32())),
        }
    }

    /// Weights `[c_out, c_in, taps]` as panels whose rows are ordered (tap, channel).
    fn panels(&self, weight: &[f32], c_in: usize, c_out: usize) -> Weights {
        let taps = weight.len() / (c_in * c_out);
        let (k, width) = (taps * c_in, narrow_width(self.simd(), c_out));
        self.install(|| {
            let dtype = narrowest(weight);
            let mut data = Values::zeros(c_out.div_ceil(width) * k * width, dtype);
            with_element!(dtype, E => {
                data.elements_mut::<E>().par_chunks_mut(k * width).enumerate().for_each(|(panel, to)| {
                    let first = panel * width;
                    for i in 0..k {
                        let row = i % taps * c_in + i / taps;
                        let to = &mut to[row * width..][..width.min(c_out - first)];
                        to.iter_mut().enumerate().for_each(|(o, v)| *v = E::from_f32(weight[(first + o) * k + i]));
                    }
                })
            });
            Panels { k, n: c_out, width, data }
        })
    }

    fn unpack<'a, T: 'static>(&self, packed: &'a Packed) -> &'a T {
        packed.downcast_ref().expect("weights must stay on the device that packed them")
    }

    fn clip(&self, x: &Tensor) -> Clip {
        let data = memory::download(x).into_iter().map(f64::from).collect();
        Clip { thw: x.thw(), channels: x.channels(), data }
    }

    fn doubles(&self, x: &Tensor) -> Vec<f64> {
        memory::download(x).into_iter().map(f64::from).collect()
    }

    /// Rounds what the reference computed.
    fn rounded(&self, shape: Shape, values: &[f64]) -> Result<Tensor> {
        let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        memory::upload(&self.memory, shape, self.dtype, &values)
    }

    fn stats(&self, stats: Option<Vec<f32>>, frames: usize) -> Result<Option<Stats>> {
        let upload =
            |v: Vec<f32>| memory::upload(&self.memory, Shape::from([frames, v.len() / frames / 2, 2]), DType::F32, &v);
        stats.map(upload).transpose()
    }

    /// Rounds what the reference computed; statistics are those of the rounded values.
    fn plain_result(&self, y: &Clip, groups: Option<usize>) -> Result<ConvOutput> {
        let values: Vec<f32> = y.data.iter().map(|&v| v as f32).collect();
        let tensor = memory::upload(&self.memory, Shape::clip(y.thw, y.channels), self.dtype, &values)?;
        let stats = groups.map(|groups| reference::stats(&self.clip(&tensor), groups));
        let stats = stats.map(|s| s.iter().map(|&v| v as f32).collect());
        Ok(ConvOutput { stats: self.stats(stats, y.thw.t)?, tensor })
    }
}

impl Device for CpuOps {
    fn name(&self) -> String {
        format!("cpu {}, {} threads", self.level, self.threads())
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn precision(&self) -> Precision {
        self.dtype.into()
    }
}

/// Device memory is host memory: nothing moves.
impl Residency for CpuOps {
    fn offload(&self, payload: Payload) -> Result<Payload> {
        Ok(payload)
    }

    fn prefetch(&self, payload: Payload) -> Result<Payload> {
        Ok(payload)
    }

    fn reserve(&self, _: usize) -> Result<()> {
        Ok(())
    }
}

/// Results are complete when a call returns.
impl Timing for CpuOps {
    fn stage(&self, _: &str) {}

    fn timer(&self) -> Result<Box<dyn DeviceTimer>> {
        Ok(Box::new(HostTimer::start()))
    }

    fn finish(&self) -> Result<()> {
        Ok(())
    }

    fn copy_time(&self) -> Result<CopyTime> {
        Ok(CopyTime::default())
    }
}

impl Transfer for CpuOps {
    fn upload(&self, shape: Shape, values: &[f32]) -> Result<Tensor> {
        memory::upload(&self.memory, shape, self.dtype, values)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        Ok(memory::download(x))
    }

    fn start_download(&self, x: &Tensor) -> Result<Box<dyn PendingDownload>> {
        Ok(Box::new(memory::download(x)))
    }

    fn upload_pixels(&self, shape: Shape, pixels: &Pixels) -> Result<Tensor> {
        pixels::upload_pixels(self, shape, pixels)
    }

    fn start_download_pixels(&self, x: &Tensor, depth: Depth) -> Result<Box<dyn PendingDownload<Pixels>>> {
        Ok(Box::new(pixels::download_pixels(self, x, depth)?))
    }
}

impl Ops for CpuOps {
    fn conv_weights(&self, spec: ConvSpec, read: Read<ConvData>) -> Result<Conv> {
        Ok(Conv { spec, packed: conv::pack(self, &spec, read()?) })
    }

    fn linear_weights(&self, spec: LinearSpec, read: Read<LinearData>) -> Result<Linear> {
        let LinearSpec { d_in, d_out, .. } = spec;
        Ok(Linear { spec: LinearSpec::floats(d_in, d_out), packed: linear::pack(self, d_in, d_out, read()?.floats()) })
    }

    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm> {
        let data = read()?;
        assert_eq!((data.weight.len(), data.bias.len()), (channels, channels), "gain and shift of a norm");
        Ok(Norm { channels, groups, eps, packed: Arc::new(data) })
    }

    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample> {
        Ok(Upsample { spec, packed: upsample::pack(self, &spec, read()?) })
    }

    fn vector(&self, len: usize, read: Read<Vec<f32>>) -> Result<Vector> {
        let values = read()?;
        assert_eq!(values.len(), len, "numbers of a vector");
        Ok(Vector { len, packed: Arc::new(values) })
    }

    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows> {
        Ok(Rows::new(per, rows, Arc::new(rows.to_vec())))
    }

    fn rotary(&self, data: &RotaryData) -> Result<Rotary> {
        Ok(qk_norm_rope::pack(data))
    }

    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        conv::run(self, cache, x, conv, epilogue)
    }

    fn norm_conv(&self, x: ConvOutput, norm: &Norm, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let h = self.group_norm(x.tensor, x.stats, norm, Activation::Silu)?;
        self.conv(TemporalCache::Start, &h, conv, epilogue)
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
        small::tail(self, cache, x, frames)
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        group_norm::run(self, x, stats, norm, act)
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        linear::run(self, x, linear, residual)
    }

    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        attention::run(self, qkv, heads, lengths)
    }

    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        rms_norm_modulate::run(self, x, norm)
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
        elementwise::gated_add(self, x, h, gate)
    }

    fn swiglu(&self, x: &Tensor) -> Result<Tensor> {
        elementwise::swiglu(self, x)
    }

    fn gelu(&self, x: Tensor) -> Result<Tensor> {
        elementwise::gelu(self, x)
    }

    fn qk_norm_rope(&self, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor> {
        qk_norm_rope::run(self, streams, rows, rotary, eps)
    }

    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor> {
        gather_rows::run(self, x, rows)
    }

    fn axpby(&self, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
        elementwise::axpby(self, a, x, b, y)
    }

    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
        small::blend_add(self, canvas, tile, at)
    }
}
