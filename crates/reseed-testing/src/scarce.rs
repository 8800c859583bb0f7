//! A processor that keeps offloaded layers out of its own reach, and whose memory may run out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reseed_cpu::CpuOps;
use reseed_ops::{
    Activation, Conv, ConvData, ConvOutput, ConvSpec, DType, Epilogue, Error, Linear, LinearData, LinearSpec, Norm,
    Ops, Placement, Qkv, Read, Result, Rotary, RotaryData, Rows, Shape, Stats, TemporalCache, Tensor, Upsample,
    UpsampleData, UpsampleSpec, Vector,
};

pub struct Scarce {
    inner: CpuOps,
    /// Convolutions so far.
    pub convs: AtomicUsize,
    /// The one that finds no memory, counted from one.
    pub fails_at: AtomicUsize,
    /// Layers that were prefetched.
    pub prefetched: AtomicUsize,
}

/// A layer that nothing can be computed with.
struct Offloaded<T>(T);

impl Scarce {
    pub fn new() -> Scarce {
        let inner = CpuOps::new(DType::F32, Some(2)).unwrap();
        Scarce { inner, convs: 0.into(), fails_at: 0.into(), prefetched: 0.into() }
    }

    /// The same with nothing counted yet, and with memory for all convolutions but the `nth`.
    pub fn failing(&self, nth: usize) {
        self.convs.store(0, Ordering::SeqCst);
        self.fails_at.store(nth, Ordering::SeqCst);
    }

    fn brought<T: Clone + Send + Sync + 'static>(&self, packed: &reseed_ops::Packed) -> T {
        self.prefetched.fetch_add(1, Ordering::SeqCst);
        packed.downcast_ref::<Offloaded<T>>().expect("only offloaded layers are prefetched").0.clone()
    }
}

impl Ops for Scarce {
    fn offload_conv(&self, conv: &Conv) -> Result<Conv> {
        Ok(Conv { packed: Arc::new(Offloaded(conv.clone())), ..conv.clone() })
    }
    fn prefetch_conv(&self, offloaded: &Conv) -> Result<Conv> {
        Ok(self.brought(&offloaded.packed))
    }
    fn offload_upsample(&self, upsample: &Upsample) -> Result<Upsample> {
        Ok(Upsample { packed: Arc::new(Offloaded(upsample.clone())), ..upsample.clone() })
    }
    fn prefetch_upsample(&self, offloaded: &Upsample) -> Result<Upsample> {
        Ok(self.brought(&offloaded.packed))
    }
    fn offload_linear(&self, linear: &Linear) -> Result<Linear> {
        Ok(Linear { packed: Arc::new(Offloaded(linear.clone())), ..linear.clone() })
    }
    fn prefetch_linear(&self, offloaded: &Linear) -> Result<Linear> {
        Ok(self.brought(&offloaded.packed))
    }
    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        if self.convs.fetch_add(1, Ordering::SeqCst) + 1 == self.fails_at.load(Ordering::SeqCst) {
            return Err(Error::OutOfMemory { op: "conv", device: "scarce".into(), shape: x.shape(), bytes: x.bytes() });
        }
        self.inner.conv(cache, x, conv, epilogue)
    }

    fn device(&self) -> String {
        self.inner.device()
    }
    fn dtype(&self) -> DType {
        self.inner.dtype()
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
    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        self.inner.linear(x, linear, residual)
    }
    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        self.inner.attention(qkv, heads, lengths)
    }
    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        self.inner.rms_norm_modulate(x, norm)
    }
    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
        self.inner.gated_add(x, h, gate)
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
