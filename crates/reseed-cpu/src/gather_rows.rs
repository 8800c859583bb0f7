//! Rows moved or averaged.

use rayon::prelude::*;

use super::CpuOps;
use super::level::Level;
use super::leveled::leveled;
use super::memory::{Element, elements, elements_mut, with_element};
use reseed_ops::Result;
use reseed_ops::Rows;
use reseed_ops::Shape;
use reseed_ops::Tensor;
use reseed_ops::reference;

/// Elements that a thread moves at a time.
const CHUNK: usize = 1 << 14;

pub fn run(cpu: &CpuOps, x: &Tensor, rows: &Rows) -> Result<Tensor> {
    let (width, per) = (x.channels(), rows.per);
    assert!(rows.end <= x.rows(), "gather_rows: row {} of {x:?}", rows.end);
    let shape = Shape::from([rows.count, width]);
    let rows: &Vec<u32> = cpu.unpack(&rows.packed);
    if cpu.level() == Level::Reference {
        return cpu.rounded(shape, &reference::gather_rows(&cpu.doubles(x), width, per, rows));
    }
    let mut y = cpu.room("gather_rows", shape, x.dtype())?;
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

leveled! {
    /// One row of the result.
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
