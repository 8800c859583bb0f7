//! GELU in its tanh form: ½ x (1 + tanh z) with z = √(2/π) (x + 0.044715 x³).

use rayon::prelude::*;

use crate::CpuOps;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::elements_mut;
use crate::simd::dispatch::{dispatch, exp};
use reseed_ops::reference;
use reseed_ops::{Result, Tensor};

/// Elements that a thread processes at a time.
const CHUNK: usize = 1 << 14;

/// Runs the op.
pub fn run(cpu: &CpuOps, x: Tensor) -> Result<Tensor> {
    if cpu.level() == Level::Reference {
        let y: Vec<f64> = cpu.to_f64(&x).into_iter().map(reference::gelu).collect();
        return cpu.round_to_tensor(x.shape(), &y);
    }
    let mut x = cpu.writable("gelu", x)?;
    let level = cpu.simd();
    with_element!(x.dtype(), E => {
        let values = elements_mut::<E>(&mut x).par_chunks_mut(CHUNK);
        cpu.install(|| values.for_each(|x| gelu::<E>(level, x)));
    });
    Ok(x)
}

dispatch! {
    /// x · σ(2z), because ½ (1 + tanh z) is the logistic function σ(2z).
    pub fn gelu<E: Element>(x: &mut [E]) {
        const TWO_SQRT_2_OVER_PI: f32 = 1.595_769;
        for x in x {
            let v = x.to_f32();
            let z = TWO_SQRT_2_OVER_PI * (v + 0.044_715 * v * v * v);
            *x = E::from_f32(v / (1.0 + exp(-z)));
        }
    }
}
