//! The ops: each allocates its result and its workspace and counts its cost.

use std::sync::Arc;

use super::state::{Offloaded, lock};
use super::{TraceOps, Work};
use crate::cost;
use crate::error::Result;
use crate::operands::{Activation, ConvOutput, Epilogue, MlpActivation, Placement, Qkv, Stats, TemporalCache};
use crate::ops::Ops;
use crate::packing::{Rotary, RotaryData, Rows};
use crate::shape::{DType, Shape, Thw};
use crate::tensor::Tensor;
use crate::weights::{
    Conv, ConvData, ConvSpec, Linear, LinearData, LinearSpec, Norm, Packed, Read, Upsample, UpsampleData, UpsampleSpec,
    Vector,
};

fn packed() -> Packed {
    Arc::new(())
}

impl TraceOps {
    fn stats(&self, y: &Tensor, groups: Option<usize>) -> Option<Stats> {
        groups.map(|groups| {
            self.work(Work::Stats(y, groups));
            self.alloc([y.thw().t, groups, 2], DType::F32)
        })
    }
}

impl Ops for TraceOps {
    fn conv_weights(&self, spec: ConvSpec, _: Read<ConvData>) -> Result<Conv> {
        self.weights((self.kernels)(&spec) + spec.c_out);
        lock(&self.state).repacked((self.workspace)(&Work::Repacked(&spec)));
        Ok(Conv { spec, executed: 1.0, packed: packed() })
    }

    fn linear_weights(&self, spec: LinearSpec, _: Read<LinearData>) -> Result<Linear> {
        let int8 = (self.int8)(&spec);
        let spec = LinearSpec { quant: spec.quant.filter(|_| self.quantized), ..spec }.with_int8(int8);
        self.weights(spec.d_out);
        let scales = if int8 { spec.d_out * DType::F32.bytes() } else { 0 };
        lock(&self.state).report.weights += self.matrix_bytes(&spec) + scales;
        Ok(Linear { spec, packed: packed() })
    }

    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, _: Read<ConvData>) -> Result<Norm> {
        self.weights(2 * channels);
        Ok(Norm { channels, groups, eps, int8: false, packed: packed() })
    }

    fn upsample_weights(&self, spec: UpsampleSpec, _: Read<UpsampleData>) -> Result<Upsample> {
        self.weights(self.resident_merged(&spec));
        Ok(Upsample { spec, executed: 1.0, packed: packed() })
    }

    fn vector(&self, len: usize, _: Read<Vec<f32>>) -> Result<Vector> {
        self.weights(len);
        Ok(Vector { len, packed: packed() })
    }

    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows> {
        lock(&self.state).report.weights += size_of_val(rows);
        Ok(Rows::new(per, rows, packed()))
    }

    fn rotary(&self, data: &RotaryData) -> Result<Rotary> {
        lock(&self.state).report.weights += size_of_val(&data.turns[..]) + size_of_val(&data.places[..]);
        Ok(Rotary { count: data.places.len(), frequencies: data.frequencies, packed: packed() })
    }

    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let spec = &conv.spec;
        let residual = epilogue.residual.is_some();
        let y = match epilogue.residual {
            Some(residual) => self.writable(residual),
            None => self.alloc(Shape::clip(spec.output(x.thw(), cache.starts()), spec.c_out), x.dtype()),
        };
        let folded = |t: &usize| cache.starts() && spec.folded(*t) > 1;
        self.work(Work::Conv(spec, (0..y.thw().t).filter(folded).count()));
        let plain = spec.stride == Thw::new(1, 1, 1);
        self.wait_for_prefetch(x);
        self.wait_for_copy(&conv.packed);
        let _cache = self.run_cached(cache, x, plain, cost::conv(spec, cache, x, &y, residual));
        Ok(ConvOutput { stats: self.stats(&y, epilogue.groups), tensor: y })
    }

    fn upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        groups: Option<usize>,
    ) -> Result<ConvOutput> {
        let spec = &upsample.spec;
        let y = self.alloc(Shape::clip(spec.output(x.thw(), cache.starts()), spec.channels), x.dtype());
        self.work(Work::Upsample(spec, if cache.starts() { x.thw().t } else { 0 }));
        self.wait_for_prefetch(x);
        self.wait_for_copy(&upsample.packed);
        let _cache = self.run_cached(cache, x, false, cost::upsample(spec, cache, x, &y));
        Ok(ConvOutput { stats: self.stats(&y, groups), tensor: y })
    }

    fn tail(&self, cache: Option<Tensor>, mut x: Tensor, frames: usize) -> Result<Tensor> {
        let thw = x.thw();
        if thw.t == frames && x.is_unique() {
            return Ok(x);
        }
        if x.is_on::<Offloaded>() {
            return Ok(self.offloaded_tail(cache, x, frames));
        }
        self.wait_for_prefetch(&x);
        let kept = match cache {
            Some(cache) if cache.thw().t == frames => self.writable(cache),
            _ => self.alloc(Shape::clip(Thw { t: frames, ..thw }, x.channels()), x.dtype()),
        };
        self.count(cost::tail(&kept));
        Ok(kept)
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, _: Activation) -> Result<Tensor> {
        self.wait_for_prefetch(&x);
        let y = self.writable(x);
        self.count(cost::group_norm(norm, &y, stats.is_some()));
        Ok(y)
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        let mut dims = x.shape().dims().to_vec();
        dims[x.shape().dims().len() - 1] = linear.spec.d_out;
        let y = match residual {
            Some(residual) => self.writable(residual),
            None => self.alloc(&dims[..], x.dtype()),
        };
        self.wait_for_copy(&linear.packed);
        self.work(Work::Linear(&linear.spec, x.rows()));
        lock(&self.state).run_products(cost::linear(linear, x, &y), linear.spec.int8);
        Ok(y.reshape(&dims[..]))
    }

    /// Products of bytes read the activated values while they round them. Others are of activated values in memory.
    fn activated_linear(&self, x: Tensor, act: MlpActivation, linear: &Linear) -> Result<Tensor> {
        if !linear.spec.int8 {
            return self.linear(&act.run(self, x)?, linear, None);
        }
        let y = self.alloc([x.rows(), linear.spec.d_out], x.dtype());
        self.wait_for_copy(&linear.packed);
        self.work(Work::Linear(&linear.spec, x.rows()));
        lock(&self.state).run_products(cost::activated_linear(linear, act, &y), true);
        Ok(y)
    }

    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        let width = qkv.channels() / 3;
        let out = self.alloc([qkv.rows(), width], qkv.dtype());
        let longest = lengths.iter().copied().max().unwrap_or(0);
        self.work(Work::Attention { longest, width: width / heads });
        self.count(cost::attention(qkv, &out, lengths));
        Ok(out)
    }

    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        let y = self.alloc(x.shape(), x.dtype());
        self.count(cost::group_norm(norm, &y, true));
        Ok(y)
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, _: &Vector) -> Result<Tensor> {
        let y = self.writable(x);
        self.count(cost::elementwise(&[h, &y, &y], 2));
        Ok(y)
    }

    fn swiglu(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.alloc([x.rows(), x.channels() / 2], x.dtype());
        self.count(cost::elementwise(&[x, &y], 4));
        Ok(y)
    }

    fn gelu(&self, x: Tensor) -> Result<Tensor> {
        let y = self.writable(x);
        self.count(cost::elementwise(&[&y, &y], 8));
        Ok(y)
    }

    fn qk_norm_rope(&self, [first, _]: [Qkv; 2], rows: &Rows, _: &Rotary, _: f32) -> Result<Tensor> {
        let y = self.alloc([rows.count, first.qkv.channels()], first.qkv.dtype());
        self.count(cost::qk_norm_rope(&y));
        Ok(y)
    }

    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor> {
        let y = self.alloc([rows.count, x.channels()], x.dtype());
        self.count(cost::gather_rows(&y, rows.per));
        Ok(y)
    }

    fn axpby(&self, _: f32, x: &Tensor, _: f32, y: Tensor) -> Result<Tensor> {
        let y = self.writable(y);
        self.count(cost::elementwise(&[x, &y, &y], 3));
        Ok(y)
    }

    fn blend_add(&self, canvas: Tensor, tile: &Tensor, _: &Placement) -> Result<Tensor> {
        self.count(cost::elementwise(&[tile, tile], 2));
        Ok(self.writable(canvas))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::Transfer;

    #[test]
    fn layers_in_8_bits_take_half_of_the_memory_and_half_of_the_time() {
        let layer = LinearSpec { int8: true, ..LinearSpec::floats(8192, 8192) };
        let run = |int8: bool| {
            let workspace = |work: &Work| match work {
                Work::Linear(spec, rows) if spec.int8 => rows * spec.d_in,
                _ => 0,
            };
            let trace = TraceOps::new(DType::Bf16, DType::Bf16, Box::new(workspace));
            let trace = trace.with_int8_products(move |spec| int8 && spec.int8);
            let linear = trace.linear_weights(layer, &|| unreachable!("nothing is read")).unwrap();
            assert_eq!(linear.spec.int8, int8);
            let x = trace.upload(Shape::from([4096, 8192]), &[]).unwrap();
            trace.linear(&x, &linear, None).unwrap();
            trace.report()
        };
        let (floats, bytes) = (run(false), run(true));
        // A scale of four bytes is added for each row.
        assert_eq!(floats.weights - bytes.weights, 8192 * 8192 - 4 * 8192);
        assert_eq!(bytes.peak - floats.peak, 4096 * 8192);
        assert_eq!((floats.cost.flops, floats.time / 2), (bytes.cost.flops, bytes.time));
    }
}
