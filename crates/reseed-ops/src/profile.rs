//! Times another device, op by op.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::cost::{self, Cost};
use crate::device::Device;
use crate::error::Result;
use crate::forward;
use crate::operands::{Activation, ConvOutput, Epilogue, MlpActivation, Placement, Qkv, Stats, TemporalCache};
use crate::ops::Ops;
use crate::packing::{Rotary, Rows};
use crate::pixels::{Depth, Pixels};
use crate::residency::{Payload, Residency};
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::timing::{DeviceTimer, Timing};
use crate::transfer::{PendingDownload, Transfer};
use crate::weights::{Conv, Linear, Norm, Upsample, Vector};

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
    /// Arithmetic of the direct algorithm and traffic of all of them.
    pub cost: Cost,
    /// Multiplications and additions that the device executes: fewer than `cost.flops` where a convolution runs
    /// Winograd. Those of 8-bit integers count half.
    pub executed: u64,
}

/// Timers of one op in one stage that may be running.
const OPEN: usize = 256;

#[derive(Default)]
struct Entry {
    calls: usize,
    time: Duration,
    cost: Cost,
    executed: u64,
    /// Timers that are not in `time` yet: a timed device is never waited for.
    open: Vec<Box<dyn DeviceTimer>>,
}

impl Entry {
    fn close(&mut self, count: usize) -> Result<()> {
        for timer in self.open.drain(..count) {
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

/// Runs everything on `inner` and records times and costs.
pub struct ProfileOps<'a> {
    inner: &'a dyn Device,
    log: Mutex<Log>,
}

impl<'a> ProfileOps<'a> {
    /// Times `inner`.
    pub fn new(inner: &'a dyn Device) -> Self {
        ProfileOps { inner, log: Mutex::default() }
    }

    /// All records so far, longest first. Waits for the device.
    pub fn records(&self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for ((stage, op), entry) in &mut self.log().entries {
            entry.close(entry.open.len())?;
            let Entry { calls, time, cost, executed, .. } = *entry;
            records.push(Record { stage: stage.clone(), op, calls, time, cost, executed });
        }
        records.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| (&a.stage, a.op).cmp(&(&b.stage, b.op))));
        Ok(records)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn timed<T>(&self, op: &'static str, run: impl FnOnce() -> Result<T>, cost: impl FnOnce(&T) -> Cost) -> Result<T> {
        self.timed_part(op, 1.0, run, cost)
    }

    /// Times an op that executes this part of the direct algorithm's products.
    fn timed_part<T>(
        &self,
        op: &'static str,
        part: f32,
        run: impl FnOnce() -> Result<T>,
        cost: impl FnOnce(&T) -> Cost,
    ) -> Result<T> {
        let mut timer = self.inner.timer()?;
        let result = run()?;
        timer.end()?;
        let mut log = self.log();
        let key = (log.stage.clone(), op);
        let entry = log.entries.entry(key).or_default();
        entry.calls += 1;
        let cost = cost(&result);
        entry.cost += cost;
        entry.executed += (cost.flops as f64 * f64::from(part)).round() as u64;
        entry.open.push(timer);
        if entry.open.len() == OPEN {
            entry.close(OPEN / 2)?;
        }
        Ok(result)
    }
}

impl Device for ProfileOps<'_> {
    forward!(Device to inner);
}

impl Timing for ProfileOps<'_> {
    forward!(Timing to inner, except stage);

    fn stage(&self, name: &str) {
        self.log().stage = name.to_string();
        self.inner.stage(name);
    }
}

impl Residency for ProfileOps<'_> {
    forward!(Residency to inner, except offload prefetch);

    /// Weights are offloaded when they are loaded, which is not part of a run.
    fn offload(&self, payload: Payload) -> Result<Payload> {
        match &payload {
            Payload::Tensor(x) => {
                let cost = cost::elementwise(&[x], 0);
                self.timed("offload", || self.inner.offload(payload), |_| cost)
            }
            _ => self.inner.offload(payload),
        }
    }

    fn prefetch(&self, payload: Payload) -> Result<Payload> {
        self.timed("prefetch", || self.inner.prefetch(payload), cost::prefetch)
    }
}

impl Transfer for ProfileOps<'_> {
    forward!(Transfer to inner, except upload download start_download upload_pixels start_download_pixels);

    fn upload(&self, shape: Shape, values: &[f32]) -> Result<Tensor> {
        self.timed("upload", || self.inner.upload(shape, values), |y| cost::elementwise(&[y, y], 0))
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        self.timed("download", || self.inner.download(x), |_| cost::elementwise(&[x, x], 0))
    }

    fn start_download(&self, x: &Tensor) -> Result<Box<dyn PendingDownload>> {
        self.timed("start_download", || self.inner.start_download(x), |_| cost::elementwise(&[x], 0))
    }

    fn upload_pixels(&self, shape: Shape, pixels: &Pixels) -> Result<Tensor> {
        let cost = |y: &Tensor| cost::pixels(y, pixels.depth());
        self.timed("upload_pixels", || self.inner.upload_pixels(shape, pixels), cost)
    }

    fn start_download_pixels(&self, x: &Tensor, depth: Depth) -> Result<Box<dyn PendingDownload<Pixels>>> {
        self.timed("start_download_pixels", || self.inner.start_download_pixels(x, depth), |_| cost::pixels(x, depth))
    }
}

impl Ops for ProfileOps<'_> {
    forward!(Ops to inner, except
        conv upsample tail group_norm linear activated_linear attention rms_norm_modulate gated_add swiglu gelu
        qk_norm_rope gather_rows axpby blend_add);

    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let residual = epilogue.residual.is_some();
        self.timed_part(
            "conv",
            conv.executed,
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
        self.timed_part(
            "upsample",
            self.inner.upsample_executed(&upsample.spec),
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

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        let executed = if linear.spec.int8 { 0.5 } else { 1.0 };
        self.timed_part("linear", executed, || self.inner.linear(x, linear, residual), |y| cost::linear(linear, x, y))
    }

    fn activated_linear(&self, x: Tensor, act: MlpActivation, linear: &Linear) -> Result<Tensor> {
        let executed = if linear.spec.int8 { 0.5 } else { 1.0 };
        self.timed_part(
            "activated_linear",
            executed,
            || self.inner.activated_linear(x, act, linear),
            |y| cost::activated_linear(linear, act, y),
        )
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

    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
        self.timed("blend_add", || self.inner.blend_add(canvas, tile, at), |_| cost::elementwise(&[tile, tile], 2))
    }
}
