//! a x + b y.

use rayon::prelude::*;

use crate::CpuOps;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{elements, elements_mut};
use crate::simd::dispatch::dispatch;
use reseed_ops::{Result, Tensor};

/// Elements that a thread processes at a time.
const CHUNK: usize = 1 << 14;

/// Runs the op.
pub fn run(cpu: &CpuOps, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
    assert_eq!(x.shape(), y.shape(), "axpby");
    if cpu.level() == Level::Reference {
        let (x, shape) = (cpu.to_f64(x), y.shape());
        let sums = x.iter().zip(cpu.to_f64(&y)).map(|(x, y)| f64::from(a) * x + f64::from(b) * y);
        return cpu.round_to_tensor(shape, &sums.collect::<Vec<_>>());
    }
    let mut y = cpu.writable("axpby", y)?;
    let level = cpu.simd();
    with_element!(x.dtype(), E => {
        let chunks = elements_mut::<E>(&mut y).par_chunks_mut(CHUNK).zip(elements::<E>(x).par_chunks(CHUNK));
        cpu.install(|| chunks.for_each(|(y, x)| axpby::<E>(level, y, x, [a, b])));
    });
    Ok(y)
}

dispatch! {
    /// y ← a x + b y.
    pub fn axpby<E: Element>(y: &mut [E], x: &[E], factors: [f32; 2]) {
        let [a, b] = factors;
        for (y, x) in y.iter_mut().zip(x) {
            *y = E::from_f32(a * x.to_f32() + b * y.to_f32());
        }
    }
}
