//! Two devices side by side. Every op runs on both from the same inputs, so that the first one that disagrees is the
//! one that is wrong and not one behind it.

mod compare;
mod disagreement;
mod pair;

use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::Result;
use crate::ops::{
    Activation, ConvOutput, CopyTime, Epilogue, Ops, PendingDownload, Placement, Qkv, Read, Stats, TemporalCache,
};
use crate::packing::{Rotary, RotaryData, Rows};
use crate::pixels::{Depth, Pixels};
use crate::precision::Precision;
use crate::shape::{DType, Shape};
use crate::tensor::Tensor;
use crate::weights::{
    Conv, ConvData, ConvSpec, Linear, LinearData, LinearSpec, Norm, Upsample, UpsampleData, UpsampleSpec, Vector,
};

use compare::apart;
pub use disagreement::{Disagreement, relative_error};
use pair::{CacheParts, Pair, on_both, pack, parts, unpack};

#[derive(Default)]
struct Log {
    stage: String,
    calls: usize,
    found: Vec<Disagreement>,
}

/// Runs `reference` and `device` and compares. Later ops see the reference's results.
pub struct CheckOps<'a> {
    reference: &'a dyn Ops,
    device: &'a dyn Ops,
    log: Mutex<Log>,
    tell: Box<Tell<'a>>,
}

/// Hears of a disagreement when it is found.
pub type Tell<'a> = dyn Fn(&Disagreement) + Send + Sync + 'a;

impl<'a> CheckOps<'a> {
    /// Holds `device` against `reference`.
    pub fn new(reference: &'a dyn Ops, device: &'a dyn Ops) -> Self {
        CheckOps::telling(reference, device, |_| {})
    }

    /// The same, and `tell` hears of every op that disagrees at once.
    pub fn telling(
        reference: &'a dyn Ops,
        device: &'a dyn Ops,
        tell: impl Fn(&Disagreement) + Send + Sync + 'a,
    ) -> Self {
        assert_eq!(reference.dtype(), device.dtype(), "devices under comparison");
        CheckOps { reference, device, log: Mutex::default(), tell: Box::new(tell) }
    }

    /// Every op that disagreed, the first one first.
    pub fn disagreements(&self) -> Vec<Disagreement> {
        self.log().found.clone()
    }

    /// Number of results compared.
    pub fn calls(&self) -> usize {
        self.log().calls
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Ops for CheckOps<'_> {
    fn device(&self) -> String {
        format!("{} against {}", self.device.device(), self.reference.device())
    }

    fn dtype(&self) -> DType {
        self.reference.dtype()
    }

    fn precision(&self) -> Precision {
        self.device.precision()
    }

    fn norms_on_load(&self, spec: &ConvSpec) -> bool {
        self.device.norms_on_load(spec)
    }

    fn stage(&self, name: &str) {
        self.log().stage = name.to_string();
    }

    fn conv_weights(&self, spec: ConvSpec, read: Read<ConvData>) -> Result<Conv> {
        let packed = pack(self.reference.conv_weights(spec, read)?, self.device.conv_weights(spec, read)?);
        Ok(Conv { spec, packed })
    }

    fn linear_weights(&self, spec: LinearSpec, read: Read<LinearData>) -> Result<Linear> {
        let on = |ops: &dyn Ops| ops.linear_weights(spec, read);
        Ok(Linear { spec, packed: pack(on(self.reference)?, on(self.device)?) })
    }

    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm> {
        let on = |ops: &dyn Ops| ops.norm_weights(groups, eps, channels, read);
        Ok(Norm { channels, groups, eps, packed: pack(on(self.reference)?, on(self.device)?) })
    }

    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample> {
        let packed = pack(self.reference.upsample_weights(spec, read)?, self.device.upsample_weights(spec, read)?);
        Ok(Upsample { spec, packed })
    }

    fn vector(&self, len: usize, read: Read<Vec<f32>>) -> Result<Vector> {
        let on = |ops: &dyn Ops| ops.vector(len, read);
        Ok(Vector { len, packed: pack(on(self.reference)?, on(self.device)?) })
    }

    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows> {
        Ok(Rows::new(per, rows, pack(self.reference.rows(per, rows)?, self.device.rows(per, rows)?)))
    }

    fn rotary(&self, data: &RotaryData) -> Result<Rotary> {
        let packed = pack(self.reference.rotary(data)?, self.device.rotary(data)?);
        Ok(Rotary { count: data.places.len(), frequencies: data.frequencies, packed })
    }

    fn upload(&self, shape: Shape, values: &[f32]) -> Result<Tensor> {
        let (a, b) = (self.reference.upload(shape, values)?, self.device.upload(shape, values)?);
        self.compare("upload", a, b, 0)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        self.reference.download(&parts(x).0)
    }

    fn upload_pixels(&self, shape: Shape, pixels: &Pixels) -> Result<Tensor> {
        let (a, b) = (self.reference.upload_pixels(shape, pixels)?, self.device.upload_pixels(shape, pixels)?);
        self.compare_within("upload_pixels", a, b, 0.0)
    }

    fn send_pixels(&self, x: &Tensor, depth: Depth) -> Result<Box<dyn PendingDownload<Pixels>>> {
        let (mut codes, mut theirs) = (Pixels::default(), Pixels::default());
        let (a, b) = parts(x);
        self.reference.send_pixels(&a, depth)?.wait(&mut codes)?;
        self.device.send_pixels(&b, depth)?.wait(&mut theirs)?;
        self.judge("send_pixels", x.shape(), relative_error(&codes.values(), &theirs.values()), 0.0);
        Ok(Box::new(codes))
    }

    fn reserve(&self, bytes: usize) -> Result<()> {
        self.reference.reserve(bytes)?;
        self.device.reserve(bytes)
    }

    fn offload(&self, cache: Option<&Tensor>, x: &Tensor, keep: usize) -> Result<Tensor> {
        let (cache, (a, b)) = (cache.map(parts), parts(x));
        let reference = self.reference.offload(cache.as_ref().map(|cache| &cache.0), &a, keep)?;
        let device = self.device.offload(cache.as_ref().map(|cache| &cache.1), &b, keep)?;
        Ok(Tensor::new(reference.shape(), x.dtype(), Arc::new(Pair { reference, device })))
    }

    fn prefetch(&self, offloaded: &Tensor) -> Result<Tensor> {
        let (a, b) = parts(offloaded);
        self.compare("prefetch", self.reference.prefetch(&a)?, self.device.prefetch(&b)?, 0)
    }

    fn offload_linear(&self, linear: &Linear) -> Result<Linear> {
        let packed = on_both(self, &linear.packed, |ops, linear: &Linear| ops.offload_linear(linear))?;
        Ok(Linear { packed, ..linear.clone() })
    }

    fn prefetch_linear(&self, offloaded: &Linear) -> Result<Linear> {
        let packed = on_both(self, &offloaded.packed, |ops, linear: &Linear| ops.prefetch_linear(linear))?;
        Ok(Linear { packed, ..offloaded.clone() })
    }

    fn offload_conv(&self, conv: &Conv) -> Result<Conv> {
        let packed = on_both(self, &conv.packed, |ops, conv: &Conv| ops.offload_conv(conv))?;
        Ok(Conv { packed, ..conv.clone() })
    }

    fn prefetch_conv(&self, offloaded: &Conv) -> Result<Conv> {
        let packed = on_both(self, &offloaded.packed, |ops, conv: &Conv| ops.prefetch_conv(conv))?;
        Ok(Conv { packed, ..offloaded.clone() })
    }

    fn offload_upsample(&self, upsample: &Upsample) -> Result<Upsample> {
        let packed = on_both(self, &upsample.packed, |ops, upsample: &Upsample| ops.offload_upsample(upsample))?;
        Ok(Upsample { packed, ..upsample.clone() })
    }

    fn prefetch_upsample(&self, offloaded: &Upsample) -> Result<Upsample> {
        let packed = on_both(self, &offloaded.packed, |ops, upsample: &Upsample| ops.prefetch_upsample(upsample))?;
        Ok(Upsample { packed, ..offloaded.clone() })
    }

    fn copy_time(&self) -> Result<CopyTime> {
        self.device.copy_time()
    }

    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let both = unpack::<Conv>(&conv.packed);
        let (cache, x) = (CacheParts::new(cache), parts(x));
        let residual = epilogue.residual.as_ref().map(parts);
        let (ra, rb) = residual.unzip();
        let on = |residual| Epilogue { residual, groups: epilogue.groups };
        let a = self.reference.conv(cache.both().0, &x.0, &both.reference, on(ra))?;
        let b = self.device.conv(cache.both().1, &x.1, &both.device, on(rb))?;
        let apart = apart(self.device.pairs(&conv.spec), cache.both().0.starts());
        self.compare_summed("conv", a, b, conv.spec.taps.count() * conv.spec.c_in, apart)
    }

    fn upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        groups: Option<usize>,
    ) -> Result<ConvOutput> {
        let both = unpack::<Upsample>(&upsample.packed);
        let (cache, x) = (CacheParts::new(cache), parts(x));
        let a = self.reference.upsample(cache.both().0, &x.0, &both.reference, groups)?;
        let b = self.device.upsample(cache.both().1, &x.1, &both.device, groups)?;
        let terms = upsample.spec.taps_t() * 4 * upsample.spec.channels;
        self.compare_summed("upsample", a, b, terms, apart(false, cache.both().0.starts()))
    }

    fn tail(&self, cache: Option<Tensor>, x: Tensor, keep: usize) -> Result<Tensor> {
        let (cache, x) = (cache.as_ref().map(parts), parts(&x));
        let (pa, pb) = cache.unzip();
        let a = self.reference.tail(pa, x.0, keep)?;
        let b = self.device.tail(pb, x.1, keep)?;
        self.compare("tail", a, b, 0)
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        let both = unpack::<Norm>(&norm.packed);
        let terms = x.count() / x.thw().t / norm.groups;
        let x = parts(&x);
        let (sa, sb) = stats.as_ref().map(parts).unzip();
        let a = self.reference.group_norm(x.0, sa, &both.reference, act)?;
        let b = self.device.group_norm(x.1, sb, &both.device, act)?;
        self.compare("group_norm", a, b, terms)
    }

    /// A device that rounds what the norm makes, or is off by as much in its SiLU, is so by another amount for every value: sums
    /// of so many feel less of it than their own rounding.
    fn norm_conv(&self, x: ConvOutput, norm: &Norm, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let (norms, convs) = (unpack::<Norm>(&norm.packed), unpack::<Conv>(&conv.packed));
        let (xa, xb) = parts(&x.tensor);
        let (sa, sb) = x.stats.as_ref().map(parts).unzip();
        let (ra, rb) = epilogue.residual.as_ref().map(parts).unzip();
        let on = |residual| Epilogue { residual, groups: epilogue.groups };
        let (xa, xb) = (ConvOutput { tensor: xa, stats: sa }, ConvOutput { tensor: xb, stats: sb });
        let a = self.reference.norm_conv(xa, &norms.reference, &convs.reference, on(ra))?;
        let b = self.device.norm_conv(xb, &norms.device, &convs.device, on(rb))?;
        self.compare_summed("norm_conv", a, b, conv.spec.taps.count() * conv.spec.c_in, apart(false, true))
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        let both = unpack::<Linear>(&linear.packed);
        let x = parts(x);
        let (ra, rb) = residual.as_ref().map(parts).unzip();
        let a = self.reference.linear(&x.0, &both.reference, ra)?;
        let b = self.device.linear(&x.1, &both.device, rb)?;
        self.compare("linear", a, b, linear.spec.d_in)
    }

    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let width = qkv.channels() / 3 / heads;
        let qkv = parts(qkv);
        let a = self.reference.attention(&qkv.0, heads, lengths)?;
        let b = self.device.attention(&qkv.1, heads, lengths)?;
        self.compare("attention", a, b, longest + width)
    }

    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        let both = unpack::<Norm>(&norm.packed);
        let x = parts(x);
        let a = self.reference.rms_norm_modulate(&x.0, &both.reference)?;
        let b = self.device.rms_norm_modulate(&x.1, &both.device)?;
        self.compare("rms_norm_modulate", a, b, norm.channels)
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
        let both = unpack::<Vector>(&gate.packed);
        let (x, h) = (parts(&x), parts(h));
        let a = self.reference.gated_add(x.0, &h.0, &both.reference)?;
        let b = self.device.gated_add(x.1, &h.1, &both.device)?;
        self.compare("gated_add", a, b, 2)
    }

    fn swiglu(&self, x: &Tensor) -> Result<Tensor> {
        let x = parts(x);
        self.compare("swiglu", self.reference.swiglu(&x.0)?, self.device.swiglu(&x.1)?, 2)
    }

    fn gelu(&self, x: Tensor) -> Result<Tensor> {
        let x = parts(&x);
        self.compare("gelu", self.reference.gelu(x.0)?, self.device.gelu(x.1)?, 2)
    }

    fn qk_norm_rope(&self, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor> {
        let (rows, rotary) = (unpack::<Rows>(&rows.packed), unpack::<Rotary>(&rotary.packed));
        let qkv = streams.map(|s| parts(s.qkv));
        let gains = streams.map(|s| (unpack::<Vector>(&s.q_gain.packed), unpack::<Vector>(&s.k_gain.packed)));
        let reference = |i: usize| {
            let (q, k) = gains[i];
            Qkv { qkv: &qkv[i].0, q_gain: &q.reference, k_gain: &k.reference }
        };
        let device = |i: usize| {
            let (q, k) = gains[i];
            Qkv { qkv: &qkv[i].1, q_gain: &q.device, k_gain: &k.device }
        };
        let a = [reference(0), reference(1)];
        let a = self.reference.qk_norm_rope(a, &rows.reference, &rotary.reference, eps)?;
        let b = self.device.qk_norm_rope([device(0), device(1)], &rows.device, &rotary.device, eps)?;
        self.compare("qk_norm_rope", a, b, streams[0].q_gain.len)
    }

    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor> {
        let both = unpack::<Rows>(&rows.packed);
        let x = parts(x);
        let a = self.reference.gather_rows(&x.0, &both.reference)?;
        let b = self.device.gather_rows(&x.1, &both.device)?;
        self.compare("gather_rows", a, b, rows.per)
    }

    fn axpby(&self, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
        let (x, y) = (parts(x), parts(&y));
        let first = self.reference.axpby(a, &x.0, b, y.0)?;
        let second = self.device.axpby(a, &x.1, b, y.1)?;
        self.compare("axpby", first, second, 2)
    }

    fn gaussian(&self, moments: &Tensor, noise: Option<&Tensor>, scale: f32) -> Result<Tensor> {
        let (moments, noise) = (parts(moments), noise.map(parts));
        let a = self.reference.gaussian(&moments.0, noise.as_ref().map(|n| &n.0), scale)?;
        let b = self.device.gaussian(&moments.1, noise.as_ref().map(|n| &n.1), scale)?;
        self.compare("gaussian", a, b, 2)
    }

    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
        let (canvas, tile) = (parts(&canvas), parts(tile));
        let a = self.reference.blend_add(canvas.0, &tile.0, at)?;
        let b = self.device.blend_add(canvas.1, &tile.1, at)?;
        self.compare("blend_add", a, b, 2)
    }
}
