//! The best rates of a device, measured with its own ops.

use std::time::Duration;

use crate::cost::{self, Cost};
use crate::device::Device;
use crate::error::Result;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::weights::{ConvData, LinearSpec};

/// The best rates of a device.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    /// Multiplications and additions per second, in a large matrix product.
    pub flops: f64,
    /// Bytes per second, read and written by a sum of long vectors.
    pub bytes: f64,
}

/// A shorter measurement is repeated with a larger size.
const ENOUGH: Duration = Duration::from_millis(4);
/// The best of this many runs counts.
const REPEAT: usize = 5;

/// Rows of a product, and its channels in and out.
const PRODUCTS: [(usize, usize); 3] = [(256, 1024), (2048, 2048), (16384, 4096)];
/// Rows of a vector, of this many values each.
const ROWS: [usize; 3] = [1 << 7, 1 << 10, 1 << 13];
const ROW: usize = 1 << 14;

impl Ceiling {
    /// Measures for a few milliseconds; all memory is freed.
    pub fn measure(ops: &dyn Device) -> Result<Ceiling> {
        let (product, sum) = (grown(&PRODUCTS, |&size| product(ops, size))?, grown(&ROWS, |&rows| sum(ops, rows))?);
        let seconds = |time: Duration| time.as_secs_f64().max(1e-9);
        Ok(Ceiling { flops: product.0.flops as f64 / seconds(product.1), bytes: sum.0.bytes as f64 / seconds(sum.1) })
    }

    /// The fraction of the best rate that a run reached, in arithmetic or traffic, whichever is larger.
    pub fn share(&self, executed: Cost, time: Duration) -> f64 {
        (executed.flops as f64 / self.flops).max(executed.bytes as f64 / self.bytes) / time.as_secs_f64().max(1e-9)
    }
}

/// Measures increasing sizes until one takes long enough.
fn grown<T>(sizes: &[T], measure: impl Fn(&T) -> Result<(Cost, Duration)>) -> Result<(Cost, Duration)> {
    let mut best = measure(&sizes[0])?;
    for size in &sizes[1..] {
        if best.1 >= ENOUGH {
            break;
        }
        best = measure(size)?;
    }
    Ok(best)
}

fn best(ops: &dyn Device, mut run: impl FnMut() -> Result<Cost>) -> Result<(Cost, Duration)> {
    let mut least = (run()?, Duration::MAX);
    for _ in 0..REPEAT {
        let mut timer = ops.timer()?;
        least.0 = run()?;
        timer.end()?;
        least.1 = least.1.min(timer.time()?);
    }
    Ok(least)
}

/// Equal rows that are not constant, computed on the device.
fn rows(ops: &dyn Device, count: usize, width: usize) -> Result<Tensor> {
    let row: Vec<f32> = (0..width).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    let first = ops.upload(Shape::from([1, 1, 1, width]), &row)?;
    Ok(ops.tail(None, first, count)?.reshape([count, width]))
}

fn product(ops: &dyn Device, (count, width): (usize, usize)) -> Result<(Cost, Duration)> {
    let weight = || ConvData { weight: vec![1.0 / width as f32; width * width], bias: vec![0.0; width] };
    let (x, linear) =
        (rows(ops, count, width)?, ops.linear_weights(LinearSpec::floats(width, width), &|| Ok(weight().into()))?);
    best(ops, || Ok(cost::linear(&linear, &x, &ops.linear(&x, &linear, None)?)))
}

fn sum(ops: &dyn Device, count: usize) -> Result<(Cost, Duration)> {
    let (x, mut y) = (rows(ops, count, ROW)?, Some(rows(ops, count, ROW)?));
    best(ops, || {
        let sum = ops.axpby(0.5, &x, 0.5, y.take().expect("it is put back"))?;
        let cost = cost::elementwise(&[&x, &sum, &sum], 3);
        y = Some(sum);
        Ok(cost)
    })
}
