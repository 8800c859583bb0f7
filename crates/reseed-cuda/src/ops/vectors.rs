//! Tables in device memory that ops of a transformer read: vectors, row indices, rotary embeddings.

use std::sync::Arc;

use reseed_ops::{Packed, Result, Rotary, RotaryData, Rows, Vector};

use super::CudaOps;
use crate::device_memory::Allocation;
use crate::driver::Ptr;

/// Rotary embeddings: cosines and sines of each position, then the positions of each token.
pub struct RotaryTables {
    pub turns: Allocation,
    pub places: Allocation,
}

/// Uploads numbers, of which there may be none.
fn upload<T: bytemuck::Pod>(cuda: &CudaOps, values: &[T]) -> Result<Allocation> {
    if values.is_empty() { cuda.upload_weights(&[T::zeroed()]) } else { cuda.upload_weights(values) }
}

pub fn vector(cuda: &CudaOps, len: usize, values: &[f32]) -> Result<Vector> {
    assert_eq!(values.len(), len, "numbers of a vector");
    Ok(Vector { len, packed: Arc::new(upload(cuda, values)?) })
}

pub fn rows(cuda: &CudaOps, per: usize, rows: &[u32]) -> Result<Rows> {
    Ok(Rows::new(per, rows, Arc::new(upload(cuda, rows)?)))
}

pub fn rotary(cuda: &CudaOps, data: &RotaryData) -> Result<Rotary> {
    data.check();
    let tables = RotaryTables { turns: upload(cuda, &data.turns)?, places: upload(cuda, &data.places)? };
    Ok(Rotary { count: data.places.len(), frequencies: data.frequencies, packed: Arc::new(tables) })
}

/// Address of a vector or of row indices.
pub fn ptr_of(cuda: &CudaOps, packed: &Packed) -> Ptr {
    cuda.unpack::<Allocation>(packed).ptr()
}
