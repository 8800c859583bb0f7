//! silu(gate) · value, where gate and value are the halves of a row.

use rayon::prelude::*;

use crate::CpuOps;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{elements, elements_mut};
use crate::simd::dispatch::{dispatch, exp};
use reseed_ops::reference;
use reseed_ops::{Result, Shape, Tensor};

/// Elements that a thread processes at a time.
const CHUNK: usize = 1 << 14;

/// Runs the op.
pub fn run(cpu: &CpuOps, x: &Tensor) -> Result<Tensor> {
    assert!(x.channels().is_multiple_of(2), "swiglu: {x:?} has an odd number of channels");
    let width = x.channels() / 2;
    let shape = Shape::from([x.rows(), width]);
    if cpu.level() == Level::Reference {
        return cpu.round_to_tensor(shape, &reference::swiglu(&cpu.to_f64(x), width));
    }
    let mut y = cpu.allocate("swiglu", shape, x.dtype())?;
    let (level, chunk) = (cpu.simd(), (CHUNK / width).max(1) * width);
    with_element!(x.dtype(), E => {
        let chunks = elements_mut::<E>(&mut y).par_chunks_mut(chunk).zip(elements::<E>(x).par_chunks(2 * chunk));
        cpu.install(|| chunks.for_each(|(y, x)| swiglu_rows::<E>(level, x, y, width)));
    });
    Ok(y)
}

dispatch! {
    /// Whole rows of y = silu(gate) · value.
    pub fn swiglu_rows<E: Element>(x: &[E], y: &mut [E], width: usize) {
        for (x, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
            let (gate, value) = x.split_at(width);
            for ((y, g), v) in y.iter_mut().zip(gate).zip(value) {
                let g = g.to_f32();
                *y = E::from_f32(g / (1.0 + exp(-g)) * v.to_f32());
            }
        }
    }
}
