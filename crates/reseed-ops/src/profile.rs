//! Times another device, op by op.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::cost::{self, Cost};
use crate::error::Result;
use crate::ops::{
    Activation, ConvOutput, CopyTime, DeviceTimer, Epilogue, Ops, PendingDownload, Placement, Qkv, Read, Stats,
    TemporalCache,
};
use crate::packing::{Rotary, RotaryData, Rows};
use crate::pixels::{Depth, Pixels};
use crate::precision::Precision;
use crate::shape::{DType, Shape};
use crate::tensor::Tensor;
use crate::weights::{
    Conv, ConvData, ConvSpec, Linear, LinearData, LinearSpec, Norm, Upsample, UpsampleData, UpsampleSpec, Vector,
};

/// All calls of one op in one stage.
#[derive(Clone, Debug)]
pub struct Record {
    /// Part of the network.
    pub stage: String,
    /// Op family.
    pub op: &'static str,
    /// Number of calls.
    pub calls: usize,
    /// Time in all of them.
    pub time: Duration,
    /// Arithmetic and traffic of all of them.
    pub cost: Cost,
}

/// Laps of one op in one stage that may be under way.
const OPEN: usize = 256;

#[derive(Default)]
struct Entry {
    calls: usize,
    time: Duration,
    cost: Cost,
    /// Laps that are not in `time` yet: nothing waits for the device while it is timed.
    open: Vec<Box<dyn DeviceTimer>>,
}

impl Entry {
    fn close(&mut self, laps: usize) -> Result<()> {
        for timer in self.open.drain(..laps) {
            self.time += timer.time()?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Log {
    stage: String,
    entries: HashMap<(String, &'static str), Entry>,
}

/// Runs everything on `inner` and keeps the books.
pub struct ProfileOps<'a> {
    inner: &'a dyn Ops,
    log: Mutex<Log>,
}

impl<'a> ProfileOps<'a> {
    /// Times `inner`.
    pub fn new(inner: &'a dyn Ops) -> Self {
        ProfileOps { inner, log: Mutex::default() }
    }

    /// What has been timed so far, longest first, once the device is done with it.
    pub fn records(&self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for ((stage, op), entry) in &mut self.log().entries {
            entry.close(entry.open.len())?;
            let Entry { calls, time, cost, .. } = *entry;
            records.push(Record { stage: stage.clone(), op, calls, time, cost });
        }
        records.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| (&a.stage, a.op).cmp(&(&b.stage, b.op))));
        Ok(records)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn timed<T>(&self, op: &'static str, run: impl FnOnce() -> Result<T>, cost: impl FnOnce(&T) -> Cost) -> Result<T> {
        let mut timer = self.inner.timer()?;
        let result = run()?;
        timer.end()?;
        let mut log = self.log();
        let key = (log.stage.clone(), op);
        let entry = log.entries.entry(key).or_default();
        entry.calls += 1;
        entry.cost += cost(&result);
        entry.open.push(timer);
        if entry.open.len() == OPEN {
            entry.close(OPEN / 2)?;
        }
        Ok(result)
    }
}

impl Ops for ProfileOps<'_> {
    fn device(&self) -> String {
        self.inner.device()
    }

    fn dtype(&self) -> DType {
        self.inner.dtype()
    }

    fn precision(&self) -> Precision {
        self.inner.precision()
    }

    fn norms_on_load(&self, spec: &ConvSpec) -> bool {
        self.inner.norms_on_load(spec)
    }

    fn stage(&self, name: &str) {
        self.log().stage = name.to_string();
        self.inner.stage(name);
    }

    fn conv_weights(&self, spec: ConvSpec, read: Read<ConvData>) -> Result<Conv> {
        self.inner.conv_weights(spec, read)
    }

    fn linear_weights(&self, spec: LinearSpec, read: Read<LinearData>) -> Result<Linear> {
        self.inner.linear_weights(spec, read)
    }

    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm> {
        self.inner.norm_weights(groups, eps, channels, read)
    }

    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample> {
        self.inner.upsample_weights(spec, read)
    }

    fn vector(&self, len: usize, read: Read<Vec<f32>>) -> Result<Vector> {
        self.inner.vector(len, read)
    }

    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows> {
        self.inner.rows(per, rows)
    }

    fn rotary(&self, data: &RotaryData) -> Result<Rotary> {
        self.inner.rotary(data)
    }

    fn upload(&self, shape: Shape, values: &[f32]) -> Result<Tensor> {
        self.timed("upload", || self.inner.upload(shape, values), |y| cost::elementwise(&[y, y], 0))
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        self.timed("download", || self.inner.download(x), |_| cost::elementwise(&[x, x], 0))
    }

    fn send(&self, x: &Tensor) -> Result<Box<dyn PendingDownload>> {
        self.timed("send", || self.inner.send(x), |_| cost::elementwise(&[x], 0))
    }

    fn upload_pixels(&self, shape: Shape, pixels: &Pixels) -> Result<Tensor> {
        let cost = |y: &Tensor| cost::pixels(y, pixels.depth());
        self.timed("upload_pixels", || self.inner.upload_pixels(shape, pixels), cost)
    }

    fn send_pixels(&self, x: &Tensor, depth: Depth) -> Result<Box<dyn PendingDownload<Pixels>>> {
        self.timed("send_pixels", || self.inner.send_pixels(x, depth), |_| cost::pixels(x, depth))
    }

    fn timer(&self) -> Result<Box<dyn DeviceTimer>> {
        self.inner.timer()
    }

    fn finish(&self) -> Result<()> {
        self.inner.finish()
    }

    fn reserve(&self, bytes: usize) -> Result<()> {
        self.inner.reserve(bytes)
    }

    fn offload(&self, cache: Option<&Tensor>, x: &Tensor, keep: usize) -> Result<Tensor> {
        self.timed("offload", || self.inner.offload(cache, x, keep), |_| cost::elementwise(&[x], 0))
    }

    fn prefetch(&self, offloaded: &Tensor) -> Result<Tensor> {
        self.timed("prefetch", || self.inner.prefetch(offloaded), |y| cost::elementwise(&[y], 0))
    }

    fn offload_linear(&self, linear: &Linear) -> Result<Linear> {
        self.inner.offload_linear(linear)
    }

    fn prefetch_linear(&self, offloaded: &Linear) -> Result<Linear> {
        self.timed("prefetch_linear", || self.inner.prefetch_linear(offloaded), cost::prefetch_linear)
    }

    fn offload_conv(&self, conv: &Conv) -> Result<Conv> {
        self.inner.offload_conv(conv)
    }

    fn prefetch_conv(&self, offloaded: &Conv) -> Result<Conv> {
        self.timed("prefetch_conv", || self.inner.prefetch_conv(offloaded), |conv| cost::prefetch(conv.spec.weights()))
    }

    fn offload_upsample(&self, upsample: &Upsample) -> Result<Upsample> {
        self.inner.offload_upsample(upsample)
    }

    fn prefetch_upsample(&self, offloaded: &Upsample) -> Result<Upsample> {
        self.timed(
            "prefetch_upsample",
            || self.inner.prefetch_upsample(offloaded),
            |up| cost::prefetch(up.spec.weights()),
        )
    }

    fn copy_time(&self) -> Result<CopyTime> {
        self.inner.copy_time()
    }

    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let residual = epilogue.residual.is_some();
        self.timed(
            "conv",
            || self.inner.conv(cache, x, conv, epilogue),
            |y| cost::conv(&conv.spec, cache, x, &y.tensor, residual),
        )
    }

    fn upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        groups: Option<usize>,
    ) -> Result<ConvOutput> {
        self.timed(
            "upsample",
            || self.inner.upsample(cache, x, upsample, groups),
            |y| cost::upsample(&upsample.spec, cache, x, &y.tensor),
        )
    }

    fn tail(&self, cache: Option<Tensor>, x: Tensor, keep: usize) -> Result<Tensor> {
        self.timed("tail", || self.inner.tail(cache, x, keep), cost::tail)
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        let given = stats.is_some();
        self.timed("group_norm", || self.inner.group_norm(x, stats, norm, act), |y| cost::group_norm(norm, y, given))
    }

    fn norm_conv(&self, x: ConvOutput, norm: &Norm, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let (input, residual) = (x.tensor.clone(), epilogue.residual.is_some());
        self.timed(
            "norm_conv",
            || self.inner.norm_conv(x, norm, conv, epilogue),
            |y| cost::conv(&conv.spec, TemporalCache::Start, &input, &y.tensor, residual),
        )
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        self.timed("linear", || self.inner.linear(x, linear, residual), |y| cost::linear(linear, x, y))
    }

    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        self.timed("attention", || self.inner.attention(qkv, heads, lengths), |y| cost::attention(qkv, y, lengths))
    }

    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        self.timed("rms_norm_modulate", || self.inner.rms_norm_modulate(x, norm), |y| cost::group_norm(norm, y, true))
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
        self.timed("gated_add", || self.inner.gated_add(x, h, gate), |y| cost::elementwise(&[h, y, y], 2))
    }

    fn swiglu(&self, x: &Tensor) -> Result<Tensor> {
        self.timed("swiglu", || self.inner.swiglu(x), |y| cost::elementwise(&[x, y], 4))
    }

    fn gelu(&self, x: Tensor) -> Result<Tensor> {
        self.timed("gelu", || self.inner.gelu(x), |y| cost::elementwise(&[y, y], 8))
    }

    fn qk_norm_rope(&self, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor> {
        self.timed("qk_norm_rope", || self.inner.qk_norm_rope(streams, rows, rotary, eps), cost::qk_norm_rope)
    }

    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor> {
        self.timed("gather_rows", || self.inner.gather_rows(x, rows), |y| cost::gather_rows(y, rows.per))
    }

    fn axpby(&self, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
        self.timed("axpby", || self.inner.axpby(a, x, b, y), |y| cost::elementwise(&[x, y, y], 3))
    }

    fn gaussian(&self, moments: &Tensor, noise: Option<&Tensor>, scale: f32) -> Result<Tensor> {
        self.timed("gaussian", || self.inner.gaussian(moments, noise, scale), |y| cost::elementwise(&[moments, y], 8))
    }

    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
        self.timed("blend_add", || self.inner.blend_add(canvas, tile, at), |_| cost::elementwise(&[tile, tile], 2))
    }
}
