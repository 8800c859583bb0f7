//! Every op on both devices, with the bound of its elements.

use super::CheckOps;
use super::bound::{EPS, exponential, independent};
use super::magnitude::{absolute, absolute_data};
use super::pair::{Pair, magnitude, pack};
use super::upsample::Products;
use super::winograd::{conv_magnitude, conv_terms, operand_roundings};
use crate::error::Result;
use crate::operands::{Activation, ConvOutput, Epilogue, MlpActivation, Placement, Qkv, Stats, TemporalCache};
use crate::ops::Ops;
use crate::packing::{Rotary, RotaryData, Rows};
use crate::tensor::Tensor;
use crate::weights::{
    Conv, ConvData, ConvSpec, Linear, LinearData, LinearSpec, Norm, Read, Upsample, UpsampleData, UpsampleSpec, Vector,
};

/// A linear layer without signs.
struct LinearMagnitude {
    linear: Linear,
    bias: Vec<f32>,
}

/// Terms that follow a sum of products: bias, residual, and the sums of Winograd.
const EPILOGUE: usize = 8;

/// Taps of the 3x3x3 convolution in a merged upsampler.
const MERGED_TAPS: usize = 27;

impl Ops for CheckOps<'_> {
    fn conv_weights(&self, spec: ConvSpec, read: Read<ConvData>) -> Result<Conv> {
        let sides = self.both(|side| side.device.conv_weights(spec, read))?;
        let executed = sides.iter().map(|side| side.executed).fold(1.0, f32::min);
        let magnitude = self.reference.conv_weights(spec, &|| Ok(conv_magnitude(&spec, read()?, executed)))?;
        Ok(Conv { spec, executed, packed: pack(sides, magnitude) })
    }

    fn linear_weights(&self, spec: LinearSpec, read: Read<LinearData>) -> Result<Linear> {
        let device = self.device.linear_weights(spec, read)?;
        let spec = LinearSpec { int8: device.spec.int8, ..spec };
        let reference = self.reference.linear_weights(spec, read)?;
        assert_eq!(reference.spec.int8, spec.int8, "the reference must have the mode of {}", self.device.name());
        let sides = [reference, device];
        let data = absolute_data(read()?.floats());
        let bias = data.bias.clone();
        let copy = || Ok(ConvData { weight: data.weight.clone(), bias: data.bias.clone() }.into());
        let linear = self.reference.linear_weights(LinearSpec::floats(spec.d_in, spec.d_out), &copy)?;
        Ok(Linear { spec, packed: pack(sides, LinearMagnitude { linear, bias }) })
    }

    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm> {
        let sides = self.both(|side| side.device.norm_weights(groups, eps, channels, read))?;
        Ok(Norm { channels, groups, eps, int8: false, packed: pack(sides, read()?) })
    }

    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample> {
        let sides = self.both(|side| side.device.upsample_weights(spec, read))?;
        let executed = sides.iter().map(|side| side.executed).fold(1.0, f32::min);
        let magnitude = self.reference.upsample_weights(spec, &|| {
            let UpsampleData { upscale, conv } = read()?;
            Ok(UpsampleData { upscale: absolute_data(upscale), conv: absolute_data(conv) })
        })?;
        Ok(Upsample { spec, executed, packed: pack(sides, magnitude) })
    }

    fn vector(&self, len: usize, read: Read<Vec<f32>>) -> Result<Vector> {
        let sides = self.both(|side| side.device.vector(len, read))?;
        Ok(Vector { len, packed: pack(sides, absolute(&read()?)) })
    }

    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows> {
        Ok(Rows::new(per, rows, pack(self.both(|side| side.device.rows(per, rows))?, ())))
    }

    fn rotary(&self, data: &RotaryData) -> Result<Rotary> {
        let packed = pack(self.both(|side| side.device.rotary(data))?, ());
        Ok(Rotary { count: data.places.len(), frequencies: data.frequencies, packed })
    }

    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let y = self.both(|side| {
            let frames = side.optional(cache.frames());
            let cache = cache.with(frames.as_ref());
            side.device.conv(cache, &side.tensor(x), side.weights(&conv.packed), side.epilogue(&epilogue))
        })?;
        let frames = cache.frames().map(|frames| self.conv_input(frames, conv)).transpose()?;
        let sums = self.conv_sums(cache.with(frames.as_ref()), &self.conv_input(x, conv)?, conv, &epilogue)?;
        let (rounding, terms) = (self.rounding(&y[0].tensor), conv_terms(conv) + EPILOGUE);
        let operands = operand_roundings(conv, cache.starts()) + self.half_sums();
        self.compare_output("conv", y, terms, |i, y| rounding.sum(y, terms, sums[i], operands))
    }

    /// Every device rounds the merged kernels itself, and those of a clip's first frames once more. Winograd adds the
    /// roundings of `Products`.
    fn upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        groups: Option<usize>,
    ) -> Result<ConvOutput> {
        let y = self.both(|side| {
            let frames = side.optional(cache.frames());
            let cache = cache.with(frames.as_ref());
            side.device.upsample(cache, &side.tensor(x), side.weights(&upsample.packed), groups)
        })?;
        let (sums, rounding) = (self.upsample_sums(cache, x, upsample)?, self.rounding(&y[0].tensor));
        let UpsampleSpec { channels, .. } = upsample.spec;
        let products = upsample.spec.taps_t() * 4 * channels;
        let (rounded, transforms) =
            Products::of(upsample.executed).map_or((0, 0), |more| (more.operand_roundings, more.transform_terms));
        let terms = products + MERGED_TAPS * channels + EPILOGUE + transforms;
        let merged = if matches!(cache, TemporalCache::Frames(_)) { 1 } else { 2 };
        let operands = merged + rounded + self.half_sums();
        self.compare_output("upsample", y, products, |i, y| rounding.sum(y, terms, sums[i], operands))
    }

    /// Offloaded frames are compared when they are prefetched.
    fn tail(&self, cache: Option<Tensor>, x: Tensor, frames: usize) -> Result<Tensor> {
        let y = self.both(|side| side.device.tail(side.optional(cache.as_ref()), side.tensor(&x), frames))?;
        if x.storage::<Pair>().offloaded {
            return Ok(Pair::tensor(y, true));
        }
        self.compare_copies("tail", &cache.iter().chain([&x]).collect::<Vec<_>>(), y)
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        let y = self.both(|side| {
            side.device.group_norm(side.tensor(&x), side.optional(stats.as_ref()), side.weights(&norm.packed), act)
        })?;
        let normalized = self.normalized(&x, stats.as_ref(), norm, magnitude(&norm.packed))?;
        let (rounding, terms) = (self.rounding(&x), x.count() / x.thw().t / norm.groups);
        self.compare("group_norm", y, terms, |i, y| {
            let error = match act {
                Activation::None => normalized.dz[i],
                Activation::Silu => rounding.silu(normalized.z[i], normalized.dz[i]),
            };
            error + rounding.result(y)
        })
    }

    /// A device may round the bias to its type.
    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        let y = self.both(|side| {
            side.device.linear(&side.tensor(x), side.weights(&linear.packed), side.optional(residual.as_ref()))
        })?;
        let weights: &LinearMagnitude = magnitude(&linear.packed);
        if linear.spec.int8 {
            return self.compare_int8(y, &weights.bias, residual.as_ref());
        }
        let residual = residual.as_ref().map(|residual| self.absolute(residual)).transpose()?;
        let sums = self.magnitudes(&self.reference.linear(&self.absolute(x)?, &weights.linear, residual)?)?;
        let (rounding, terms) = (self.rounding(&y[0]), linear.spec.d_in + EPILOGUE);
        self.compare("linear", y, linear.spec.d_in, |i, y| {
            let bias = f64::from(weights.bias[i % weights.bias.len()]);
            rounding.sum(y, terms, sums[i], 0) + rounding.operand * bias
        })
    }

    /// Each device gives the bytes of its own two ops, and these are compared with those of the other device.
    fn activated_linear(&self, x: Tensor, act: MlpActivation, linear: &Linear) -> Result<Tensor> {
        let results = self.both(|side| {
            let (device, weights) = (side.device, side.weights(&linear.packed));
            let both = device.linear(&act.run(device, side.tensor(&x))?, weights, None)?;
            let one = device.activated_linear(side.tensor(&x), act, weights)?;
            Ok((both.shape(), [device.download(&both)?, device.download(&one)?]))
        })?;
        for (shape, [both, one]) in &results {
            self.judge("activated_linear", *shape, [both, one], 0.0, |_, _| 0.0);
        }
        self.linear(&act.run(self, x)?, linear, None)
    }

    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        let y = self.both(|side| side.device.attention(&side.tensor(qkv), heads, lengths))?;
        let bounds = self.attention_bounds(qkv, heads, lengths, &y[0])?;
        let rounding = self.rounding(&y[0]);
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let terms = longest + qkv.channels() / 3 / heads;
        self.compare("attention", y, terms, |i, y| bounds[i] + rounding.result(y))
    }

    /// The mean of squares is off by its summation, its root by half of that.
    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        let y = self.both(|side| side.device.rms_norm_modulate(&side.tensor(x), side.weights(&norm.packed)))?;
        let (rounding, data): (_, &ConvData) = (self.rounding(x), magnitude(&norm.packed));
        let relative = (0.5 * independent(norm.channels) + 8.0) * EPS;
        self.compare("rms_norm_modulate", y, norm.channels, |i, y| {
            let shift = f64::from(data.bias[i % norm.channels].abs());
            relative * (y + 2.0 * shift) + rounding.result(y)
        })
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
        let y =
            self.both(|side| side.device.gated_add(side.tensor(&x), &side.tensor(h), side.weights(&gate.packed)))?;
        let (rounding, gates): (_, &Vec<f32>) = (self.rounding(h), magnitude(&gate.packed));
        let (xs, hs) = (self.values(&x)?, self.values(h)?);
        self.compare("gated_add", y, 2, |i, y| {
            let sum = f64::from(xs[i].abs()) + f64::from(gates[i % gates.len()]) * f64::from(hs[i].abs());
            rounding.result(y) + 2.0 * EPS * sum
        })
    }

    fn swiglu(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.both(|side| side.device.swiglu(&side.tensor(x)))?;
        let (rounding, values, width) = (self.rounding(x), self.values(x)?, y[0].channels());
        self.compare("swiglu", y, 2, |i, y| {
            let gate = f64::from(values[i / width * 2 * width + i % width]);
            y * exponential(gate) + rounding.result(y)
        })
    }

    /// y = x σ(t) with the logistic function σ. An error of t moves it by |x| |t| σ(t) σ(-t), which is at most ¼ |x|
    /// for each unit of t's relative error, and so does one of the exponential; a device may also add one to a tangent.
    fn gelu(&self, x: Tensor) -> Result<Tensor> {
        let y = self.both(|side| side.device.gelu(side.tensor(&x)))?;
        let (rounding, values) = (self.rounding(&x), self.values(&x)?);
        let bound = |i: usize, y: f64| 16.0 * EPS * f64::from(values[i].abs()) + rounding.result(y);
        self.compare("gelu", y, 2, bound)
    }

    /// A rotation keeps the length of a pair: both of its products are at most √2 of it together. Values are copied.
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
        let (rounding, d, width) = (self.rounding(&y[0]), streams[0].q_gain.len, y[0].channels());
        let values = self.reference.download(&y[0])?;
        let relative = (0.5 * independent(d) + 8.0) * EPS * 2f64.sqrt();
        self.compare("qk_norm_rope", y, d, |i, y| match i % width >= width / 3 * 2 {
            true => 0.0,
            false => relative * f64::from(values[i]).hypot(f64::from(values[i ^ 1])) + rounding.result(y),
        })
    }

    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor> {
        let y = self.both(|side| side.device.gather_rows(&side.tensor(x), side.weights(&rows.packed)))?;
        if rows.per == 1 {
            return self.exact("gather_rows", y);
        }
        let [packed, _] = self.both(|side| Ok(side.weights::<Rows>(&rows.packed).clone()))?;
        let sums = self.magnitudes(&self.reference.gather_rows(&self.absolute(x)?, &packed)?)?;
        let rounding = self.rounding(x);
        self.compare("gather_rows", y, rows.per, |i, y| rounding.result(y) + (rows.per + 2) as f64 * EPS * sums[i])
    }

    fn axpby(&self, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
        let result = self.both(|side| side.device.axpby(a, &side.tensor(x), b, side.tensor(&y)))?;
        let (rounding, xs, ys) = (self.rounding(x), self.values(x)?, self.values(&y)?);
        self.compare("axpby", result, 2, |i, y| {
            let sum = f64::from((a * xs[i]).abs()) + f64::from((b * ys[i]).abs());
            rounding.result(y) + 2.0 * EPS * sum
        })
    }

    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
        let y = self.both(|side| side.device.blend_add(side.tensor(&canvas), &side.tensor(tile), at))?;
        let sums = self.reference.blend_add(self.absolute(&canvas)?, &self.absolute(tile)?, at)?;
        let (rounding, sums) = (self.rounding(tile), self.magnitudes(&sums)?);
        self.compare("blend_add", y, 2, |i, y| rounding.result(y) + 3.0 * EPS * sums[i])
    }
}

/// Products that a device adds in f16 at most, and those that it adds between two roundings at least.
const HALF_SUM: [usize; 2] = [96, 8];

impl CheckOps<'_> {
    /// Bytes, scales and sums of integers are the same on every device. A sum is rounded to f32 and multiplied by the
    /// product of two scales, bias and residual are added: five roundings of a term or of a sum of terms.
    fn compare_int8(&self, y: [Tensor; 2], bias: &[f32], residual: Option<&Tensor>) -> Result<Tensor> {
        let (rounding, added) = (self.rounding(&y[0]), residual.map(|residual| self.values(residual)).transpose()?);
        self.compare("linear", y, 1, |i, y| {
            let added = f64::from(bias[i % bias.len()]) + added.as_ref().map_or(0.0, |r| f64::from(r[i].abs()));
            rounding.result(y) + 5.0 * EPS * (y + 2.0 * added)
        })
    }

    /// Roundings of operands that move a sum as far as sums of f16 may: every partial sum is off by at most 2v of
    /// itself, where tensor cores truncate, and the absolute values of all partial sums are at most the products' sum.
    fn half_sums(&self) -> usize {
        if self.sums_in_f16() { 2 * HALF_SUM[0] / HALF_SUM[1] } else { 0 }
    }

    /// The convolution of magnitudes, on the reference.
    fn conv_sums(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: &Epilogue) -> Result<Vec<f64>> {
        let residual = epilogue.residual.as_ref().map(|residual| self.absolute(residual)).transpose()?;
        let epilogue = Epilogue { residual, groups: None };
        let sums = self.reference.conv(cache, x, magnitude(&conv.packed), epilogue)?;
        self.magnitudes(&sums.tensor)
    }

    /// The errors of softmax(s) v before they are rounded.
    ///
    /// A score s = q·k / √d is off by at most ds = (d + 4) ε |q| |k| / √d, by the inequality of Cauchy and Schwarz. If
    /// all scores of a row are off by at most ds, each weight p is off by at most (e^2ds - 1) p. An exponential of at
    /// most 2 max|s| is off as [`exponential`] has it, in the weight and in their sum. Weights may be rounded to the
    /// type of operands. All of these are relative to p, so that the result is off by as much of Σ p |v|.
    fn attention_bounds(&self, qkv: &Tensor, heads: usize, lengths: &[usize], y: &Tensor) -> Result<Vec<f64>> {
        let (mut values, width) = (self.values(qkv)?, qkv.channels() / 3);
        let (d, rounding) = (width / heads, self.rounding(y));
        let norm = |token: usize, part: usize, head: usize, values: &[f32]| {
            let part = &values[(token * 3 + part) * width + head * d..][..d];
            part.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt()
        };
        let (mut relative, mut start) = (Vec::with_capacity(y.count()), 0);
        for &n in lengths {
            let keys: Vec<f64> = (0..heads)
                .map(|head| (start..start + n).map(|j| norm(j, 1, head, &values)).fold(0.0, f64::max))
                .collect();
            for token in start..start + n {
                for (head, key) in keys.iter().enumerate() {
                    let score = norm(token, 0, head, &values) * key / (d as f64).sqrt();
                    let ds = (d + 4) as f64 * EPS * score;
                    let weights = 2.0 * exponential(2.0 * score) + 2.0 * (n + 4) as f64 * EPS;
                    let rounded = rounding.operand * if rounding.rounds_operands { 2.0 } else { 1.0 };
                    relative.extend(std::iter::repeat_n((2.0 * ds).exp_m1() + weights + rounded, d));
                }
            }
            start += n;
        }
        for token in values.chunks_exact_mut(3 * width) {
            token[2 * width..].iter_mut().for_each(|v| *v = v.abs());
        }
        let most = values.iter().fold(0f32, |most, v| most.max(v.abs()));
        let qkv = self.reference.upload(qkv.shape(), &values)?;
        let sums = self.magnitudes(&self.reference.attention(&qkv, heads, lengths)?)?;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        // Weights below the smallest normal number of the operands' type.
        let small = longest as f64 * rounding.result(0.0) * f64::from(most);
        Ok(sums.iter().zip(relative).map(|(sum, relative)| 1.01 * relative * sum + small).collect())
    }
}
