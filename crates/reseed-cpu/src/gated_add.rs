//! x + gate ⊙ h.

use rayon::prelude::*;

use crate::CpuOps;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{elements, elements_mut};
use crate::simd::dispatch::dispatch;
use reseed_ops::reference;
use reseed_ops::{Result, Tensor, Vector};

/// Elements that a thread processes at a time.
const CHUNK: usize = 1 << 14;

/// Runs the op.
pub fn run(cpu: &CpuOps, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
    assert_eq!((x.shape(), x.channels()), (h.shape(), gate.len), "gated_add: {h:?} to {x:?}");
    let gate: &Vec<f32> = cpu.unpack(&gate.packed);
    if cpu.level() == Level::Reference {
        let gate: Vec<f64> = gate.iter().map(|&v| f64::from(v)).collect();
        return cpu.round_to_tensor(x.shape(), &reference::gated_add(&cpu.to_f64(&x), &cpu.to_f64(h), &gate));
    }
    let mut x = cpu.writable("gated_add", x)?;
    let (level, chunk) = (cpu.simd(), (CHUNK / gate.len()).max(1) * gate.len());
    with_element!(x.dtype(), E => {
        let chunks = elements_mut::<E>(&mut x).par_chunks_mut(chunk).zip(elements::<E>(h).par_chunks(chunk));
        cpu.install(|| chunks.for_each(|(x, h)| gated_add_rows::<E>(level, x, h, gate)));
    });
    Ok(x)
}

dispatch! {
    /// Whole rows of x ← x + gate ⊙ h.
    pub fn gated_add_rows<E: Element>(x: &mut [E], h: &[E], gate: &[f32]) {
        for (x, h) in x.chunks_exact_mut(gate.len()).zip(h.chunks_exact(gate.len())) {
            for ((x, h), gate) in x.iter_mut().zip(h).zip(gate) {
                *x = E::from_f32(x.to_f32() + gate * h.to_f32());
            }
        }
    }
}
