//! Rows of a tensor by index, or means of several rows.

use rayon::prelude::*;

use crate::CpuOps;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{elements, elements_mut};
use crate::simd::dispatch::dispatch;
use reseed_ops::reference;
use reseed_ops::{Result, Rows, Shape, Tensor};

/// Elements that a thread processes at a time.
const CHUNK: usize = 1 << 14;

/// Runs the op.
pub fn run(cpu: &CpuOps, x: &Tensor, rows: &Rows) -> Result<Tensor> {
    let (width, per) = (x.channels(), rows.per);
    assert!(rows.end <= x.rows(), "gather_rows: row {} of {x:?}", rows.end);
    let shape = Shape::from([rows.count, width]);
    let rows: &Vec<u32> = cpu.unpack(&rows.packed);
    if cpu.level() == Level::Reference {
        return cpu.round_to_tensor(shape, &reference::gather_rows(&cpu.to_f64(x), width, per, rows));
    }
    let mut y = cpu.allocate("gather_rows", shape, x.dtype())?;
    let (level, lines) = (cpu.simd(), (CHUNK / width).max(1));
    with_element!(x.dtype(), E => {
        let (from, to) = (elements::<E>(x), elements_mut::<E>(&mut y));
        let parts = to.par_chunks_mut(lines * width).zip(rows.par_chunks(lines * per));
        cpu.install(|| parts.for_each_init(|| vec![0.0; width], |sums, (to, rows)| {
            for (to, rows) in to.chunks_exact_mut(width).zip(rows.chunks_exact(per)) {
                match rows {
                    &[row] => to.copy_from_slice(&from[row as usize * width..][..width]),
                    rows => mean::<E>(level, from, rows, sums, to),
                }
            }
        }));
    });
    Ok(y)
}

dispatch! {
    /// One row of the result: the mean of several rows.
    pub fn mean<E: Element>(from: &[E], rows: &[u32], sums: &mut [f32], to: &mut [E]) {
        sums.fill(0.0);
        for &row in rows {
            let from = &from[row as usize * sums.len()..][..sums.len()];
            sums.iter_mut().zip(from).for_each(|(sum, v)| *sum += v.to_f32());
        }
        let share = 1.0 / rows.len() as f32;
        to.iter_mut().zip(sums).for_each(|(to, sum)| *to = E::from_f32(*sum * share));
    }
}
