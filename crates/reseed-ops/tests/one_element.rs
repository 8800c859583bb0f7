//! A device with one wrong element in a large result is found, though the norm of the result hardly changes.
#![allow(clippy::unwrap_used, reason = "a test stops at the first error")]

use reseed_cpu::CpuOps;
use reseed_ops::conformance::Values;
use reseed_ops::{
    Activation, CheckOps, Conv, ConvData, ConvOutput, ConvSpec, DType, Device, Epilogue, Linear, LinearSpec, MathMode,
    Norm, Ops, Residency, Result, Shape, Stats, TemporalCache, Tensor, Thw, Timing, Transfer, forward, relative_error,
};

/// A CPU whose largest element of every large result is multiplied by a factor.
struct OneWrongElement {
    inner: CpuOps,
    factor: f32,
}

impl OneWrongElement {
    fn spoil(&self, y: Tensor) -> Result<Tensor> {
        let mut values = self.inner.download(&y)?;
        let largest = values.iter_mut().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap();
        *largest *= self.factor;
        self.inner.upload(y.shape(), &values)
    }
}

impl Device for OneWrongElement {
    forward!(Device to inner);
}

impl Residency for OneWrongElement {
    forward!(Residency to inner);
}

impl Transfer for OneWrongElement {
    forward!(Transfer to inner);
}

impl Timing for OneWrongElement {
    forward!(Timing to inner);
}

impl Ops for OneWrongElement {
    forward!(Ops to inner, except conv group_norm linear attention);

    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let y = self.inner.conv(cache, x, conv, epilogue)?;
        Ok(ConvOutput { tensor: self.spoil(y.tensor)?, stats: y.stats })
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        self.spoil(self.inner.group_norm(x, stats, norm, act)?)
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        self.spoil(self.inner.linear(x, linear, residual)?)
    }

    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        self.spoil(self.inner.attention(qkv, heads, lengths)?)
    }
}

fn conv(ops: &dyn Device) -> Result<Tensor> {
    let (spec, values) = (ConvSpec::same(16, 32, Thw::new(3, 3, 3)), &mut Values::new(1));
    let (weight, bias) = (values.take(spec.weights()), values.take(32));
    let conv = ops.conv_weights(spec, &|| Ok(ConvData { weight: weight.clone(), bias: bias.clone() }))?;
    let shape = |frames| Shape::clip(Thw::new(frames, 40, 50), 16);
    let mut clip = |frames| ops.upload(shape(frames), &values.take(shape(frames).count()));
    let (cache, x) = (clip(2)?, clip(3)?);
    Ok(ops.conv(TemporalCache::Frames(&cache), &x, &conv, Epilogue::default())?.tensor)
}

fn group_norm(ops: &dyn Device) -> Result<Tensor> {
    let (shape, values) = (Shape::clip(Thw::new(2, 40, 50), 32), &mut Values::new(2));
    let (weight, bias) = (values.take(32), values.take(32));
    let norm = ops.norm_weights(8, 1e-6, 32, &|| Ok(ConvData { weight: weight.clone(), bias: bias.clone() }))?;
    let x = ops.upload(shape, &values.take(shape.count()))?;
    ops.group_norm(x, None, &norm, Activation::Silu)
}

fn linear(ops: &dyn Device) -> Result<Tensor> {
    let ((rows, d_in, d_out), values) = ((300, 328, 520), &mut Values::new(3));
    let (weight, bias) = (values.take(d_in * d_out), values.take(d_out));
    let data = || ConvData { weight: weight.clone(), bias: bias.clone() };
    let linear = ops.linear_weights(LinearSpec::floats(d_in, d_out), &|| Ok(data().into()))?;
    ops.linear(&ops.upload(Shape::from([rows, d_in]), &values.take(rows * d_in))?, &linear, None)
}

/// With products of 8-bit integers.
fn linear_int8(ops: &dyn Device) -> Result<Tensor> {
    let ((rows, d_in, d_out), values) = ((300, 512, 520), &mut Values::new(5));
    let (weight, bias) = (values.take(d_in * d_out), values.take(d_out));
    let data = || ConvData { weight: weight.clone(), bias: bias.clone() };
    let spec = LinearSpec { int8: true, ..LinearSpec::floats(d_in, d_out) };
    let linear = ops.linear_weights(spec, &|| Ok(data().into()))?;
    assert!(linear.spec.int8, "{spec:?}");
    ops.linear(&ops.upload(Shape::from([rows, d_in]), &values.take(rows * d_in))?, &linear, None)
}

fn attention(ops: &dyn Device) -> Result<Tensor> {
    let qkv = Values::new(4).take(600 * 3 * 64);
    ops.attention(&ops.upload(Shape::from([600, 3 * 64]), &qkv)?, 1, &[300, 300])
}

type Case = (&'static str, DType, fn(&dyn Device) -> Result<Tensor>);

const CASES: &[Case] = &[
    ("conv", DType::F32, conv),
    ("group_norm", DType::F16, group_norm),
    ("linear", DType::F16, linear),
    ("linear", DType::F16, linear_int8),
    ("attention", DType::F16, attention),
];

#[test]
fn one_wrong_element_of_many_is_found() {
    for &(op, dtype, run) in CASES {
        let cpu = || CpuOps::new(dtype, Some(2)).unwrap().with_math(MathMode::Fast);
        let reference = cpu();
        let right = OneWrongElement { inner: cpu(), factor: 1.0 };
        let ops = CheckOps::new(&reference, &right);
        run(&ops).unwrap();
        assert!(ops.disagreements().is_empty(), "{op}: {:?}", ops.disagreements());

        let wrong = OneWrongElement { inner: cpu(), factor: 1.01 };
        let ops = CheckOps::new(&reference, &wrong);
        run(&ops).unwrap();
        let found = ops.disagreements();
        let element = found.first().and_then(|found| found.element).unwrap_or_else(|| panic!("{op}: nothing found"));
        assert_eq!((found.len(), found[0].op), (1, op));
        assert!((element.device / element.reference - 1.01).abs() < 2e-3, "{op}: {element:?}");

        // The norm of all differences is less than two roundings of f16.
        let values = |device: &dyn Device| device.download(&run(device).unwrap()).unwrap();
        let norm = relative_error(&values(&reference), &values(&wrong));
        assert!(norm < 2.0 / 2048.0, "{op}: {norm:.2e}");
    }
}
