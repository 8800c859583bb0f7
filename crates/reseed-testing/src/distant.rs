//! A processor that keeps offloaded layers out of its own reach, counts what is prefetched, and remembers what passes between
//! layers.

use std::sync::{Arc, Mutex};

use reseed_ops::{
    Activation, Conv, ConvData, ConvOutput, ConvSpec, DType, Epilogue, Linear, LinearData, LinearSpec, Norm, Ops,
    Packed, Placement, Qkv, Read, Result, Rotary, RotaryData, Rows, Shape, Stats, TemporalCache, Tensor, Upsample,
    UpsampleData, UpsampleSpec, Vector,
};

/// What happened to layers.
#[derive(Default)]
pub struct Log {
    /// Values of matrices that were offloaded.
    pub offloaded: usize,
    /// Values of matrices that were prefetched.
    pub prefetched: usize,
    /// Values of prefetched matrices that are still there.
    pub here: usize,
    /// Most of them at once.
    pub most: usize,
    /// Part of the network.
    pub stage: String,
    /// Results of linear layers and of gates, with their stage.
    pub results: Vec<(String, &'static str, Vec<f32>)>,
}

pub struct Distant<'a> {
    inner: &'a dyn Ops,
    log: Arc<Mutex<Log>>,
}

/// A layer that nothing can be computed with.
struct Offloaded(Linear);

/// A layer that was brought back.
struct Fetched {
    linear: Linear,
    log: Arc<Mutex<Log>>,
}

impl Drop for Fetched {
    fn drop(&mut self) {
        self.log.lock().unwrap().here -= values(&self.linear);
    }
}

fn values(linear: &Linear) -> usize {
    linear.spec.d_in * linear.spec.d_out
}

impl<'a> Distant<'a> {
    pub fn new(inner: &'a dyn Ops) -> Distant<'a> {
        Distant { inner, log: Arc::default() }
    }

    pub fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    fn note(&self, op: &'static str, result: Tensor) -> Result<Tensor> {
        let values = self.inner.download(&result)?;
        let mut log = self.log();
        let stage = log.stage.clone();
        log.results.push((stage, op, values));
        Ok(result)
    }
}

impl Ops for Distant<'_> {
    fn device(&self) -> String {
        self.inner.device()
    }
    fn dtype(&self) -> DType {
        self.inner.dtype()
    }
    fn stage(&self, name: &str) {
        self.log().stage = name.into();
    }

    fn offload_linear(&self, linear: &Linear) -> Result<Linear> {
        self.log().offloaded += values(linear);
        let packed: Packed = Arc::new(Offloaded(linear.clone()));
        Ok(Linear { packed, ..linear.clone() })
    }

    fn prefetch_linear(&self, offloaded: &Linear) -> Result<Linear> {
        let linear =
            offloaded.packed.downcast_ref::<Offloaded>().expect("only offloaded layers are prefetched").0.clone();
        let mut log = self.log();
        log.prefetched += values(offloaded);
        log.here += values(offloaded);
        log.most = log.most.max(log.here);
        let packed: Packed = Arc::new(Fetched { linear, log: self.log.clone() });
        Ok(Linear { packed, ..offloaded.clone() })
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        assert!(!linear.packed.is::<Offloaded>(), "a offloaded layer cannot be used");
        let linear = linear.packed.downcast_ref::<Fetched>().map_or(linear, |prefetched| &prefetched.linear);
        self.note("linear", self.inner.linear(x, linear, residual)?)
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
        self.note("gated_add", self.inner.gated_add(x, h, gate)?)
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
        self.inner.upload(shape, values)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        self.inner.download(x)
    }
    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        self.inner.conv(cache, x, conv, epilogue)
    }
    fn upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        groups: Option<usize>,
    ) -> Result<ConvOutput> {
        self.inner.upsample(cache, x, upsample, groups)
    }
    fn tail(&self, cache: Option<Tensor>, x: Tensor, keep: usize) -> Result<Tensor> {
        self.inner.tail(cache, x, keep)
    }
    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        self.inner.group_norm(x, stats, norm, act)
    }
    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        self.inner.attention(qkv, heads, lengths)
    }
    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        self.inner.rms_norm_modulate(x, norm)
    }
    fn swiglu(&self, x: &Tensor) -> Result<Tensor> {
        self.inner.swiglu(x)
    }
    fn gelu(&self, x: Tensor) -> Result<Tensor> {
        self.inner.gelu(x)
    }
    fn qk_norm_rope(&self, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor> {
        self.inner.qk_norm_rope(streams, rows, rotary, eps)
    }
    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor> {
        self.inner.gather_rows(x, rows)
    }
    fn axpby(&self, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
        self.inner.axpby(a, x, b, y)
    }
    fn gaussian(&self, moments: &Tensor, noise: Option<&Tensor>, scale: f32) -> Result<Tensor> {
        self.inner.gaussian(moments, noise, scale)
    }
    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
        self.inner.blend_add(canvas, tile, at)
    }
}
