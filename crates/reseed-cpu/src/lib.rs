//! The CPU device of the Reseed engine.
//!
//! [`CpuOps`] implements the ops of [`reseed_ops`] in host memory, on its own thread pool. Activations are f32, f16 or
//! bf16; sums are f32. At every level the same input gives the same bytes, whatever the number of threads.
//!
//! ```
//! use reseed_cpu::CpuOps;
//! use reseed_ops::{DType, Ops, Shape, Transfer};
//!
//! let cpu = CpuOps::new(DType::F32, Some(2))?;
//! let x = cpu.upload(Shape::from([1, 2]), &[1.0, 2.0])?;
//! let y = cpu.upload(Shape::from([1, 2]), &[10.0, 20.0])?;
//! let sum = cpu.axpby(2.0, &x, 0.5, y)?; // 2 x + 0.5 y
//! assert_eq!(cpu.download(&sum)?, [7.0, 14.0]);
//! # Ok::<(), reseed_ops::Error>(())
//! ```
//!
//! # Levels
//!
//! Every op selects its kernel by [`Level`]. The reference level is the definition of the ops; the conformance tests
//! compare every other level with it. The environment variable `RESEED_CPU` caps the level.
//!
//! | level | instructions | element types | tested on hardware |
//! |---|---|---|---|
//! | `reference` | plain loops in f64 | f32, f16, bf16 | yes |
//! | `portable` | plain Rust, vectorised by the compiler | f32, f16, bf16 | yes |
//! | `neon` | NEON | f32, f16, bf16 | no: in an emulator |
//! | `neon-bf16` | NEON and products of bf16 matrices (`bfmmla`) | bf16; others use `neon` | no: in an emulator |
//! | `avx2` | AVX2, FMA, F16C | f32, f16, bf16 | yes, on a Xeon with AVX-512 |
//! | `avx512` | AVX-512 F, VL, BW, DQ | f32, f16, bf16 | yes, on a Xeon with AVX-512 |
//! | `amx` | AVX-512 BF16 and AMX tiles; Linux only | bf16; others use `avx512` | yes, on a Xeon with AMX |
//!
//! # Modules
//!
//! One module per op. The modules use three folders in this order: `tiles` (kernels on matrix instructions for
//! bf16), `simd` (kernels on SIMD registers and the parts that both share) and `host` (levels, element types, memory).
#![deny(missing_docs)]

mod attention;
mod axpby;
mod blend_add;
mod conv;
mod cpu_ops;
mod epilogue;
mod gated_add;
mod gather_rows;
mod gelu;
mod group_norm;
mod host;
mod linear;
mod linear_int8;
mod matmul;
mod packed_weights;
mod peak;
mod pixels;
mod qk_norm_rope;
mod rms_norm_modulate;
mod simd;
mod swiglu;
mod tail;
mod tiles;
mod upsample;
mod upsample_merge;
mod workspace;

use std::sync::Arc;

pub use cpu_ops::CpuOps;
pub use host::level::Level;
use host::memory;
pub use matmul::matmul;
use reseed_ops::int8::as_bytes;
use reseed_ops::{
    Activation, Conv, ConvData, ConvOutput, ConvSpec, CopyTime, DType, Depth, Device, DeviceTimer, Epilogue, HostTimer,
    Linear, LinearData, LinearSpec, MathMode, MlpActivation, Norm, Ops, Payload, PendingDownload, Pixels, Placement,
    Precision, Qkv, Read, Residency, Result, Rotary, RotaryData, Rows, Shape, Stats, TemporalCache, Tensor, Timing,
    Transfer, Upsample, UpsampleData, UpsampleSpec, Vector,
};

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

    /// Winograd in f32 rounds little more than direct sums do, which are always f32: modes differ in products of 8-bit
    /// integers alone.
    fn math_mode(&self) -> MathMode {
        self.math
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
        Ok(Conv { spec, executed: self.executed(&spec), packed: conv::pack(self, &spec, read()?) })
    }

    fn linear_weights(&self, spec: LinearSpec, read: Read<LinearData>) -> Result<Linear> {
        let LinearSpec { d_in, d_out, quant, int8 } = spec;
        if int8 && self.math.is_fast() && as_bytes(quant) {
            return Ok(Linear { spec: spec.with_int8(true), packed: linear_int8::pack(self, &spec, read()?) });
        }
        Ok(Linear { spec: LinearSpec::floats(d_in, d_out), packed: linear::pack(self, d_in, d_out, read()?.floats()) })
    }

    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm> {
        let data = read()?;
        assert_eq!((data.weight.len(), data.bias.len()), (channels, channels), "gain and shift of a norm");
        Ok(Norm { channels, groups, eps, int8: false, packed: Arc::new(data) })
    }

    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample> {
        let packed = upsample::pack(self, &spec, read()?);
        Ok(Upsample { spec, executed: self.executed_in_upsampler(&spec), packed })
    }

    fn vector(&self, len: usize, read: Read<Vec<f32>>) -> Result<Vector> {
        let values = read()?;
        assert_eq!(values.len(), len, "length of a vector");
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
        tail::run(self, cache, x, frames)
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        group_norm::run(self, x, stats, norm, act)
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        match linear.spec.int8 {
            true => linear_int8::run(self, x, linear, residual),
            false => linear::run(self, x, linear, residual),
        }
    }

    fn activated_linear(&self, x: Tensor, act: MlpActivation, linear: &Linear) -> Result<Tensor> {
        self.linear(&act.run(self, x)?, linear, None)
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
