//! Every op on both devices.

use super::CheckOps;
use super::compare::apart;
use super::pair::{Pair, pack};
use crate::error::Result;
use crate::operands::{Activation, ConvOutput, Epilogue, Placement, Qkv, Stats, TemporalCache};
use crate::ops::Ops;
use crate::packing::{Rotary, RotaryData, Rows};
use crate::tensor::Tensor;
use crate::weights::{
    Conv, ConvData, ConvSpec, Linear, LinearData, LinearSpec, Norm, Read, Upsample, UpsampleData, UpsampleSpec, Vector,
};

impl Ops for CheckOps<'_> {
    fn conv_weights(&self, spec: ConvSpec, read: Read<ConvData>) -> Result<Conv> {
        Ok(Conv { spec, packed: pack(self.both(|side| side.device.conv_weights(spec, read))?) })
    }

    fn linear_weights(&self, spec: LinearSpec, read: Read<LinearData>) -> Result<Linear> {
        Ok(Linear { spec, packed: pack(self.both(|side| side.device.linear_weights(spec, read))?) })
    }

    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm> {
        let packed = pack(self.both(|side| side.device.norm_weights(groups, eps, channels, read))?);
        Ok(Norm { channels, groups, eps, packed })
    }

    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample> {
        Ok(Upsample { spec, packed: pack(self.both(|side| side.device.upsample_weights(spec, read))?) })
    }

    fn vector(&self, len: usize, read: Read<Vec<f32>>) -> Result<Vector> {
        Ok(Vector { len, packed: pack(self.both(|side| side.device.vector(len, read))?) })
    }

    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows> {
        Ok(Rows::new(per, rows, pack(self.both(|side| side.device.rows(per, rows))?)))
    }

    fn rotary(&self, data: &RotaryData) -> Result<Rotary> {
        let packed = pack(self.both(|side| side.device.rotary(data))?);
        Ok(Rotary { count: data.places.len(), frequencies: data.frequencies, packed })
    }

    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let y = self.both(|side| {
            let frames = side.optional(cache.frames());
            let cache = cache.with(frames.as_ref());
            side.device.conv(cache, &side.tensor(x), side.weights(&conv.packed), side.epilogue(&epilogue))
        })?;
        self.compare_summed("conv", y, conv.spec.taps.count() * conv.spec.c_in, apart(true, cache.starts()))
    }

    fn norm_conv(&self, x: ConvOutput, norm: &Norm, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let y = self.both(|side| {
            let (norm, conv) = (side.weights(&norm.packed), side.weights(&conv.packed));
            side.device.norm_conv(side.output(&x), norm, conv, side.epilogue(&epilogue))
        })?;
        self.compare_summed("norm_conv", y, conv.spec.taps.count() * conv.spec.c_in, apart(true, true))
    }

    fn upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        groups: Option<usize>,
    ) -> Result<ConvOutput> {
        let y = self.both(|side| {
            let frames = side.optional(cache.frames());
            side.device.upsample(cache.with(frames.as_ref()), &side.tensor(x), side.weights(&upsample.packed), groups)
        })?;
        let terms = upsample.spec.taps_t() * 4 * upsample.spec.channels;
        self.compare_summed("upsample", y, terms, apart(false, cache.starts()))
    }

    /// Offloaded frames are compared when they are prefetched.
    fn tail(&self, cache: Option<Tensor>, x: Tensor, frames: usize) -> Result<Tensor> {
        let y = self.both(|side| side.device.tail(side.optional(cache.as_ref()), side.tensor(&x), frames))?;
        if x.storage::<Pair>().offloaded { Ok(Pair::tensor(y, true)) } else { self.exact("tail", y) }
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        let terms = x.count() / x.thw().t / norm.groups;
        let y = self.both(|side| {
            side.device.group_norm(side.tensor(&x), side.optional(stats.as_ref()), side.weights(&norm.packed), act)
        })?;
        self.compare("group_norm", y, terms)
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        let y = self.both(|side| {
            side.device.linear(&side.tensor(x), side.weights(&linear.packed), side.optional(residual.as_ref()))
        })?;
        self.compare("linear", y, linear.spec.d_in)
    }

    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let width = qkv.channels() / 3 / heads;
        let y = self.both(|side| side.device.attention(&side.tensor(qkv), heads, lengths))?;
        self.compare("attention", y, longest + width)
    }

    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        let y = self.both(|side| side.device.rms_norm_modulate(&side.tensor(x), side.weights(&norm.packed)))?;
        self.compare("rms_norm_modulate", y, norm.channels)
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
        let y =
            self.both(|side| side.device.gated_add(side.tensor(&x), &side.tensor(h), side.weights(&gate.packed)))?;
        self.compare("gated_add", y, 2)
    }

    fn swiglu(&self, x: &Tensor) -> Result<Tensor> {
        self.compare("swiglu", self.both(|side| side.device.swiglu(&side.tensor(x)))?, 2)
    }

    fn gelu(&self, x: Tensor) -> Result<Tensor> {
        self.compare("gelu", self.both(|side| side.device.gelu(side.tensor(&x)))?, 2)
    }

    fn qk_norm_rope(&self, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor> {
        let y = self.both(|side| {
            let qkv = streams.map(|stream| side.tensor(stream.qkv));
            let stream = |i: usize| Qkv {
                qkv: &qkv[i],
                q_gain: side.weights(&streams[i].q_gain.packed),
                k_gain: side.weights(&streams[i].k_gain.packed),
            };
            let (rows, rotary) = (side.weights(&rows.packed), side.weights(&rotary.packed));
            side.device.qk_norm_rope([stream(0), stream(1)], rows, rotary, eps)
        })?;
        self.compare("qk_norm_rope", y, streams[0].q_gain.len)
    }

    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor> {
        let y = self.both(|side| side.device.gather_rows(&side.tensor(x), side.weights(&rows.packed)))?;
        self.compare("gather_rows", y, rows.per)
    }

    fn axpby(&self, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
        let result = self.both(|side| side.device.axpby(a, &side.tensor(x), b, side.tensor(&y)))?;
        self.compare("axpby", result, 2)
    }

    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
        let y = self.both(|side| side.device.blend_add(side.tensor(&canvas), &side.tensor(tile), at))?;
        self.compare("blend_add", y, 2)
    }
}
