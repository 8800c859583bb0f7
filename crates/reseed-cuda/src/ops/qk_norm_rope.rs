//! Norm and rotary embedding of queries and keys, and the joint order of two token streams.

use reseed_ops::{Qkv, Result, Rotary, Rows, Shape, Tensor};

use super::CudaOps;
use super::memory::{ptr, rows_grid};
use super::vectors::{RotaryTables, ptr_of};
use crate::launch::args;
use crate::params::{int, long};

/// Most channels of a head.
const WIDEST: usize = 128;

pub fn run(cuda: &CudaOps, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor> {
    streams.iter().for_each(Qkv::check);
    let [a, b] = streams;
    let (width, d) = (a.qkv.channels(), a.q_gain.len);
    assert_eq!((width, d), (b.qkv.channels(), b.q_gain.len), "qk_norm_rope: the two streams");
    assert_eq!(a.qkv.dtype(), b.qkv.dtype(), "qk_norm_rope: the two streams");
    assert!(rows.end <= a.qkv.rows() + b.qkv.rows(), "qk_norm_rope: row {} of the streams", rows.end);
    assert_eq!((rows.count, rows.per), (rotary.count, 1), "qk_norm_rope: rows and places");
    assert!(d <= WIDEST, "qk_norm_rope: heads of {d} channels, at most {WIDEST} are supported");
    assert!(6 * rotary.frequencies <= d, "qk_norm_rope: {} pairs an axis in {d} channels", rotary.frequencies);
    let y = cuda.empty("qk_norm_rope", Shape::from([rows.count, width]), a.qkv.dtype())?;
    let heads = width / 3 / d;
    let [aq, ak, bq, bk] = [a.q_gain, a.k_gain, b.q_gain, b.k_gain].map(|gain| ptr_of(cuda, &gain.packed));
    let RotaryTables { turns, places } = cuda.unpack(&rotary.packed);
    let (order, count, first_rows) = (ptr_of(cuda, &rows.packed), long(rows.count), long(a.qkv.rows()));
    let (first, second, turns, places) = (ptr(a.qkv), ptr(b.qkv), turns.ptr(), places.ptr());
    let (heads, d, frequencies) = (int(heads), int(d), int(rotary.frequencies));
    let name = format!("qk_norm_rope_{}", y.dtype());
    // SAFETY: arguments follow kernels/qk_norm_rope.cu in order and type; the constructors of rows and places have
    // checked them.
    unsafe {
        cuda.driver.launch(
            &name,
            rows_grid(rows.count),
            args![
                ptr(&y),
                first,
                second,
                first_rows,
                aq,
                ak,
                bq,
                bk,
                order,
                turns,
                places,
                count,
                heads,
                d,
                frequencies,
                eps
            ],
        )
    }?;
    Ok(y)
}
