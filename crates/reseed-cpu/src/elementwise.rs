//! Ops that pass over their operands once: gates, activations, sums.

use rayon::prelude::*;

use super::CpuOps;
use super::level::Level;
use super::leveled::{exp, leveled};
use super::memory::{Element, elements, elements_mut, with_element};
use reseed_ops::Result;
use reseed_ops::Shape;
use reseed_ops::Tensor;
use reseed_ops::Vector;
use reseed_ops::reference;

/// Elements that a thread works on at a time.
const CHUNK: usize = 1 << 14;

/// Whole rows of about a chunk.
fn chunk(width: usize) -> usize {
    (CHUNK / width).max(1) * width
}

pub fn gated_add(cpu: &CpuOps, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
    assert_eq!((x.shape(), x.channels()), (h.shape(), gate.len), "gated_add: {h:?} to {x:?}");
    let gate: &Vec<f32> = cpu.unpack(&gate.packed);
    if cpu.level() == Level::Reference {
        let gate: Vec<f64> = gate.iter().map(|&v| f64::from(v)).collect();
        return cpu.rounded(x.shape(), &reference::gated_add(&cpu.doubles(&x), &cpu.doubles(h), &gate));
    }
    let mut x = cpu.writable("gated_add", x)?;
    let (level, chunk) = (cpu.simd(), chunk(gate.len()));
    with_element!(x.dtype(), E => {
        let pairs = elements_mut::<E>(&mut x).par_chunks_mut(chunk).zip(elements::<E>(h).par_chunks(chunk));
        cpu.install(|| pairs.for_each(|(x, h)| gated::<E>(level, x, h, gate)));
    });
    Ok(x)
}

leveled! {
    /// Whole rows.
    pub fn gated<E: Element>(x: &mut [E], h: &[E], gate: &[f32]) {
        for (x, h) in x.chunks_exact_mut(gate.len()).zip(h.chunks_exact(gate.len())) {
            for ((x, h), gate) in x.iter_mut().zip(h).zip(gate) {
                *x = E::from_f32(x.to_f32() + gate * h.to_f32());
            }
        }
    }
}

pub fn swiglu(cpu: &CpuOps, x: &Tensor) -> Result<Tensor> {
    assert!(x.channels().is_multiple_of(2), "swiglu: {x:?} has no halves");
    let width = x.channels() / 2;
    let shape = Shape::from([x.rows(), width]);
    if cpu.level() == Level::Reference {
        return cpu.rounded(shape, &reference::swiglu(&cpu.doubles(x), width));
    }
    let mut y = cpu.room("swiglu", shape, x.dtype())?;
    let (level, chunk) = (cpu.simd(), chunk(width));
    with_element!(x.dtype(), E => {
        let pairs = elements_mut::<E>(&mut y).par_chunks_mut(chunk).zip(elements::<E>(x).par_chunks(2 * chunk));
        cpu.install(|| pairs.for_each(|(y, x)| swish::<E>(level, x, y, width)));
    });
    Ok(y)
}

leveled! {
    /// Whole rows.
    pub fn swish<E: Element>(x: &[E], y: &mut [E], width: usize) {
        for (x, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
            let (gate, value) = x.split_at(width);
            for ((y, g), v) in y.iter_mut().zip(gate).zip(value) {
                let g = g.to_f32();
                *y = E::from_f32(g / (1.0 + exp(-g)) * v.to_f32());
            }
        }
    }
}

pub fn gelu(cpu: &CpuOps, x: Tensor) -> Result<Tensor> {
    if cpu.level() == Level::Reference {
        let y: Vec<f64> = cpu.doubles(&x).into_iter().map(reference::gelu).collect();
        return cpu.rounded(x.shape(), &y);
    }
    let mut x = cpu.writable("gelu", x)?;
    let level = cpu.simd();
    with_element!(x.dtype(), E => {
        let values = elements_mut::<E>(&mut x).par_chunks_mut(CHUNK);
        cpu.install(|| values.for_each(|x| bend::<E>(level, x)));
    });
    Ok(x)
}

leveled! {
    /// ½ (1 + tanh z) is the logistic function of 2z.
    pub fn bend<E: Element>(x: &mut [E]) {
        const TWICE_SLOPE: f32 = 1.595_769;
        for x in x {
            let v = x.to_f32();
            let z = TWICE_SLOPE * (v + 0.044_715 * v * v * v);
            *x = E::from_f32(v / (1.0 + exp(-z)));
        }
    }
}

pub fn axpby(cpu: &CpuOps, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
    assert_eq!(x.shape(), y.shape(), "axpby");
    if cpu.level() == Level::Reference {
        let (x, shape) = (cpu.doubles(x), y.shape());
        let sums = x.iter().zip(cpu.doubles(&y)).map(|(x, y)| f64::from(a) * x + f64::from(b) * y);
        return cpu.rounded(shape, &sums.collect::<Vec<_>>());
    }
    let mut y = cpu.writable("axpby", y)?;
    let level = cpu.simd();
    with_element!(x.dtype(), E => {
        let pairs = elements_mut::<E>(&mut y).par_chunks_mut(CHUNK).zip(elements::<E>(x).par_chunks(CHUNK));
        cpu.install(|| pairs.for_each(|(y, x)| mix::<E>(level, y, x, [a, b])));
    });
    Ok(y)
}

leveled! {
    /// y ← a x + b y.
    pub fn mix<E: Element>(y: &mut [E], x: &[E], factors: [f32; 2]) {
        let [a, b] = factors;
        for (y, x) in y.iter_mut().zip(x) {
            *y = E::from_f32(a * x.to_f32() + b * y.to_f32());
        }
    }
}
