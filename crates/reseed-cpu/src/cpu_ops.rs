//! The CPU device and the helpers that its ops share.

use std::sync::{Arc, Mutex, PoisonError};

use half::{bf16, f16};
use rayon::prelude::*;

use crate::host::buffer::{Floats, Values};
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{self, Pool};
use crate::simd::convert::narrowest_exact;
use crate::simd::gemm::narrow_width;
use crate::simd::panels::{Panels, Weights};
use crate::simd::transpose::lanes;
use crate::simd::{winograd_phases, winograd_planes};
use crate::{peak, tiles, workspace};
use reseed_ops::reference::{self, Clip};
use reseed_ops::{
    ConvOutput, ConvSpec, DType, Error, Kernels, MathMode, Packed, Result, Shape, Stats, Tensor, TraceOps, UpsampleSpec,
};

/// The CPU at one level, with its own thread pool.
pub struct CpuOps {
    pub(crate) level: Level,
    pub(crate) dtype: DType,
    pub(crate) math: MathMode,
    threads: rayon::ThreadPool,
    pub(crate) memory: Arc<Pool>,
    /// Buffer for the statistics of blocks, reused from op to op.
    block_stats: Mutex<Vec<[f64; 2]>>,
    /// Buffer for transformed weights, reused from op to op.
    transformed_weights: Mutex<Option<Floats>>,
}

impl CpuOps {
    /// The best level of this machine, capped by the environment variable `RESEED_CPU`. Without `threads`, one thread
    /// per core.
    pub fn new(dtype: DType, threads: Option<usize>) -> Result<CpuOps> {
        CpuOps::at(Level::detect()?, dtype, threads)
    }

    /// A given level. Panics where it is not one of [`Level::available`]. Element types other than bf16 have
    /// no tiles and use the level below.
    pub fn at(level: Level, dtype: DType, threads: Option<usize>) -> Result<CpuOps> {
        assert!(Level::available().any(|have| have == level), "this CPU does not have the level {level}");
        let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let threads = pool.map_err(|e| Error::Threads { threads, reason: e.to_string() })?;
        let level = if dtype == DType::Bf16 { level } else { level.simd() };
        let math = MathMode::default();
        let (memory, block_stats, transformed_weights) = (Arc::default(), Mutex::default(), Mutex::default());
        Ok(CpuOps { level, dtype, math, threads, memory, block_stats, transformed_weights })
    }

    /// The same CPU in another mode: [`MathMode::Fast`] multiplies in 8 bits where layers allow it, without gain, to
    /// check other devices and to measure the loss.
    pub fn with_math(self, math: MathMode) -> CpuOps {
        CpuOps { math, ..self }
    }

    /// The level in use.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The level of the work on SIMD registers.
    pub(crate) fn simd(&self) -> Level {
        self.level.simd()
    }

    /// Whether products run on tiles.
    pub(crate) fn uses_tiles(&self) -> bool {
        self.level == Level::TILES
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// Peak FLOP/s of one core, measured with multiply-adds on registers.
    pub fn peak(&self) -> f64 {
        self.install(|| peak::peak(self.level))
    }

    /// A device that computes nothing and records the memory and the work of this one.
    pub fn trace(&self) -> TraceOps {
        let (packed, kernels): (_, Kernels) = match self.uses_tiles() {
            true => (DType::Bf16, tiles::winograd::packed_weights),
            false => (DType::F32, ConvSpec::weights),
        };
        let workspace = workspace::of(self.level, self.threads(), packed, kernels);
        TraceOps::new(self.dtype, packed, workspace).with_kernels(kernels)
    }

    /// Products that a convolution executes, relative to the direct algorithm: Winograd needs six for twelve along one
    /// axis, 36 for 144 over both, and that of tiles four for six.
    pub(crate) fn executed(&self, spec: &ConvSpec) -> f32 {
        let plain = (spec.taps.h, spec.taps.w, spec.stride.h, spec.stride.w) == (3, 3, 1, 1);
        match self.level {
            Level::Reference => 1.0,
            Level::TILES if tiles::winograd::supports(spec) => 4.0 / 6.0,
            Level::TILES => 1.0,
            level if winograd_planes::supports(level, spec) => 36.0 / 144.0,
            level if plain && spec.c_in >= lanes(level) => 6.0 / 12.0,
            _ => 1.0,
        }
    }

    /// The same of an upsampler: Winograd needs 16 for 36.
    pub(crate) fn executed_in_upsampler(&self, spec: &UpsampleSpec) -> f32 {
        match self.level {
            Level::Reference => 1.0,
            Level::TILES if tiles::conv::supports(spec.channels) => 1.0,
            level if winograd_phases::supports(level.simd(), spec.channels) => 16.0 / 36.0,
            _ => 1.0,
        }
    }

    /// Runs `work` on the thread pool.
    pub(crate) fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let (mut work, mut result) = (Some(work), None);
        // One type for all work: the code that enters the pool is compiled once.
        let run: &mut (dyn FnMut() + Send) = &mut || result = work.take().map(|work| work());
        self.threads.install(run);
        result.expect("the pool has run the work")
    }

    /// A tensor with unspecified values.
    pub(crate) fn allocate(&self, op: &'static str, shape: Shape, dtype: DType) -> Result<Tensor> {
        memory::allocate(&self.memory, op, shape, dtype)
    }

    /// `x` itself where nothing else shares its memory, otherwise a copy.
    pub(crate) fn writable(&self, op: &'static str, x: Tensor) -> Result<Tensor> {
        memory::writable(&self.memory, op, x)
    }

    /// A buffer for the statistics of blocks, with unspecified values. [`CpuOps::return_block_stats`] takes it back.
    pub(crate) fn take_block_stats(&self, count: usize) -> Vec<[f64; 2]> {
        let mut stats = std::mem::take(&mut *self.block_stats.lock().unwrap_or_else(PoisonError::into_inner));
        stats.resize(count, [0.0; 2]);
        stats
    }

    /// Takes back a buffer of [`CpuOps::take_block_stats`] for the next op.
    pub(crate) fn return_block_stats(&self, stats: Vec<[f64; 2]>) {
        *self.block_stats.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }

    /// A buffer for transformed weights. [`CpuOps::return_transformed_weights`] takes it back.
    pub(crate) fn take_transformed_weights(&self) -> Floats {
        let buffer = self.transformed_weights.lock().unwrap_or_else(PoisonError::into_inner).take();
        buffer.unwrap_or_else(|| Floats::zeros(0))
    }

    /// Takes back a buffer of [`CpuOps::take_transformed_weights`] for the next op.
    pub(crate) fn return_transformed_weights(&self, buffer: Floats) {
        *self.transformed_weights.lock().unwrap_or_else(PoisonError::into_inner) = Some(buffer);
    }

    /// Rounds weights to the element type of the device.
    pub(crate) fn round_weights(&self, values: &mut [f32]) {
        match self.dtype {
            DType::F32 => {}
            DType::F16 => self.install(|| values.par_iter_mut().for_each(|v| *v = f16::from_f32(*v).to_f32())),
            DType::Bf16 => self.install(|| values.par_iter_mut().for_each(|v| *v = bf16::from_f32(*v).to_f32())),
        }
    }

    /// Packs weights `[c_out, c_in, taps]` in panels. The rows are ordered (tap, channel).
    pub(crate) fn panels(&self, weight: &[f32], c_in: usize, c_out: usize) -> Weights {
        let taps = weight.len() / (c_in * c_out);
        let (k, width) = (taps * c_in, narrow_width(self.simd(), c_out));
        self.install(|| {
            let dtype = narrowest_exact(weight);
            let mut data = Values::zeros(c_out.div_ceil(width) * k * width, dtype);
            with_element!(dtype, E => {
                data.elements_mut::<E>().par_chunks_mut(k * width).enumerate().for_each(|(panel, to)| {
                    let first = panel * width;
                    let mut values = vec![0.0; width.min(c_out - first)];
                    for i in 0..k {
                        let from = weight[first * k + i..].iter().step_by(k);
                        values.iter_mut().zip(from).for_each(|(value, from)| *value = *from);
                        let row = i % taps * c_in + i / taps;
                        E::round_all(&values, &mut to[row * width..][..values.len()]);
                    }
                })
            });
            Panels { k, n: c_out, width, data }
        })
    }

    /// The weights that this device has packed.
    pub(crate) fn unpack<'a, T: 'static>(&self, packed: &'a Packed) -> &'a T {
        packed.downcast_ref().expect("weights belong to the device that packed them")
    }

    /// The values of a clip, for the reference level.
    pub(crate) fn clip(&self, x: &Tensor) -> Clip {
        let data = memory::download(x).into_iter().map(f64::from).collect();
        Clip { thw: x.thw(), channels: x.channels(), data }
    }

    /// The values of a tensor, for the reference level.
    pub(crate) fn to_f64(&self, x: &Tensor) -> Vec<f64> {
        memory::download(x).into_iter().map(f64::from).collect()
    }

    /// A tensor with the rounded results of the reference level.
    pub(crate) fn round_to_tensor(&self, shape: Shape, values: &[f64]) -> Result<Tensor> {
        let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        memory::upload(&self.memory, shape, self.dtype, &values)
    }

    /// Uploads the statistics of `frames` frames.
    pub(crate) fn stats(&self, stats: Option<Vec<f32>>, frames: usize) -> Result<Option<Stats>> {
        let upload =
            |v: Vec<f32>| memory::upload(&self.memory, Shape::from([frames, v.len() / frames / 2, 2]), DType::F32, &v);
        stats.map(upload).transpose()
    }

    /// The rounded results of the reference level, and the statistics of the rounded values.
    pub(crate) fn reference_output(&self, y: &Clip, groups: Option<usize>) -> Result<ConvOutput> {
        let values: Vec<f32> = y.data.iter().map(|&v| v as f32).collect();
        let tensor = memory::upload(&self.memory, Shape::clip(y.thw, y.channels), self.dtype, &values)?;
        let stats = groups.map(|groups| reference::stats(&self.clip(&tensor), groups));
        let stats = stats.map(|s| s.iter().map(|&v| v as f32).collect());
        Ok(ConvOutput { stats: self.stats(stats, y.thw.t)?, tensor })
    }
}
