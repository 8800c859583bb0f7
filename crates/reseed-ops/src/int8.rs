//! Rows of a matrix as signed bytes, one scale per row: both operands of products in 8 bits.
//!
//! A row x of whole groups of 256 values is rotated: each group is multiplied by the Hadamard matrix of
//! [`hadamard`] and divided by its root, 16. That spreads single large values over their group, and it cancels in
//! products of two rows. With a = max |x'| of the rotated row x', the scale is a / 127 and the bytes are
//! round(x' · (127 / a)), ties to even. All of this is f32, rounded operation by operation, so that every device
//! computes the same bytes and scales.

use rayon::prelude::*;

use crate::quant::{Numbers, Quant, hadamard};

/// Values that are rotated together.
pub const GROUP: usize = 256;

/// The root of [`GROUP`].
const ROOT: f32 = 16.0;

/// A smaller maximum counts as a row of zeros: its reciprocal is near the end of f32.
const LEAST: f32 = 1e-30;

/// Rows as bytes: the value of a byte is its product with the scale of its row.
#[derive(Clone, Debug, PartialEq)]
pub struct Int8Rows {
    /// Row by row.
    pub bytes: Vec<i8>,
    /// One for each row.
    pub scales: Vec<f32>,
}

impl Int8Rows {
    /// Rotates and rounds rows of `width` values.
    pub fn quantize(values: &[f32], width: usize) -> Int8Rows {
        let mut rows = Int8Rows { bytes: vec![0; values.len()], scales: vec![0.0; values.len() / width] };
        let (bytes, scales) = (rows.bytes.par_chunks_mut(width), rows.scales.par_iter_mut());
        bytes.zip(scales).zip(values.par_chunks(width)).for_each_init(Vec::new, |row, ((bytes, scale), values)| {
            row.clear();
            row.extend_from_slice(values);
            *scale = quantize_row(row, bytes);
        });
        rows
    }

    /// The matrix of a layer with `d_in` columns. Bytes of [`Quant::Int8ConvRot`] are used as they are stored; the
    /// blocks of a row must have equal scales, as in all files.
    pub fn matrix(weight: Numbers, d_in: usize) -> Int8Rows {
        match weight {
            Numbers::Quant(Quant::Int8ConvRot, blocks) if equal_scales(&blocks, d_in) => rotated(&blocks, d_in),
            weight => Int8Rows::quantize(&weight.floats(), d_in),
        }
    }
}

/// Whether a matrix of this format is worth its size in bytes; smaller ones stay as they are stored.
pub fn as_bytes(quant: Option<Quant>) -> bool {
    !matches!(quant, Some(Quant::Q4K | Quant::Nvfp4))
}

/// Rotates a row in place and rounds it; returns its scale, which is not a number if a value is none.
fn quantize_row(row: &mut [f32], bytes: &mut [i8]) -> f32 {
    let rotated = row.len().is_multiple_of(GROUP);
    if rotated {
        row.chunks_exact_mut(GROUP).for_each(hadamard);
    }
    // The bits of positive floats are in their order, with NaN at the end.
    let most = f32::from_bits(row.iter().map(|v| v.to_bits() & 0x7FFF_FFFF).max().unwrap_or(0));
    let inverse = if most < LEAST { 0.0 } else { 127.0 / most };
    bytes.iter_mut().zip(row).for_each(|(byte, v)| *byte = (*v * inverse).round_ties_even() as i8);
    most / 127.0 / if rotated { ROOT } else { 1.0 }
}

const BLOCK: usize = 260;
const SCALE: usize = BLOCK - GROUP;

fn equal_scales(blocks: &[u8], d_in: usize) -> bool {
    let mut rows = blocks.chunks_exact(d_in / GROUP * BLOCK);
    rows.all(|row| row.chunks_exact(BLOCK).all(|block| block[..SCALE] == row[..SCALE]))
}

/// The bytes and row scales of [`Quant::Int8ConvRot`].
fn rotated(blocks: &[u8], d_in: usize) -> Int8Rows {
    let scale = |row: &[u8]| f32::from_le_bytes([row[0], row[1], row[2], row[3]]);
    Int8Rows {
        bytes: blocks.chunks_exact(BLOCK).flat_map(|block| block[SCALE..].iter().map(|&byte| byte as i8)).collect(),
        scales: blocks.chunks_exact(d_in / GROUP * BLOCK).map(scale).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Values;

    /// The values of rows, rotated back.
    fn values(rows: &Int8Rows) -> Vec<f32> {
        let width = rows.bytes.len() / rows.scales.len();
        let value = |(i, &byte): (usize, &i8)| f32::from(byte) * rows.scales[i / width];
        let mut values: Vec<f32> = rows.bytes.iter().enumerate().map(value).collect();
        if width.is_multiple_of(GROUP) {
            values.chunks_exact_mut(GROUP).for_each(hadamard);
            values.iter_mut().for_each(|v| *v /= ROOT);
        }
        values
    }

    #[test]
    fn every_byte_is_within_half_a_step() {
        for (rows, width) in [(3, 5), (2, 48), (4, 256), (3, 768)] {
            let x = Values::new(5).take(rows * width);
            let bytes = Int8Rows::quantize(&x, width);
            assert!(bytes.bytes.chunks_exact(width).all(|row| row.iter().any(|b| b.abs() == 127)), "{rows} {width}");
            // A rotation keeps the length of an error, which is at most half a step in each of `width` directions.
            for ((x, y), scale) in x.chunks_exact(width).zip(values(&bytes).chunks_exact(width)).zip(&bytes.scales) {
                let error: f32 = x.iter().zip(y).map(|(x, y)| (x - y).powi(2)).sum();
                assert!(error.sqrt() <= 0.501 * scale * (width as f32).sqrt(), "{rows} {width}: {error}");
            }
        }
    }

    #[test]
    fn one_large_value_does_not_hide_the_others() {
        let mut x: Vec<f32> = Values::new(7).take(GROUP).iter().map(|v| 0.01 * v).collect();
        x[17] = 1.0;
        let y = values(&Int8Rows::quantize(&x, GROUP));
        let error: f32 = x.iter().zip(&y).map(|(x, y)| (x - y).powi(2)).sum();
        // Half a step of 1/127 without the rotation; a sixteenth of it with.
        assert!((error / GROUP as f32).sqrt() < 0.5 / 127.0 / 16.0, "{error}");
    }

    #[test]
    fn zeros_stay_zeros_and_nan_is_kept() {
        let zeros = Int8Rows::quantize(&[0.0; 512], 256);
        assert_eq!(zeros, Int8Rows { bytes: vec![0; 512], scales: vec![0.0; 2] });
        let tiny = Int8Rows::quantize(&[1e-38; 16], 16);
        assert!(tiny.bytes.iter().all(|&b| b == 0));
        let mut x = [1.0; 512];
        x[300] = f32::NAN;
        let scales = Int8Rows::quantize(&x, 256).scales;
        assert!(scales[0].is_finite() && scales[1].is_nan());
    }

    #[test]
    fn stored_rotated_bytes_are_used_as_they_are() {
        let bytes: Vec<u8> = Values::new(9).take(4 * GROUP).iter().map(|v| (v * 127.0) as i8 as u8).collect();
        let scales = [0.5f32, 0.25];
        let block = |(i, bytes): (usize, &[u8])| [&scales[i / 2].to_le_bytes()[..], bytes].concat();
        let blocks: Vec<u8> = bytes.chunks_exact(GROUP).enumerate().flat_map(block).collect();
        let rows = Int8Rows::matrix(Numbers::Quant(Quant::Int8ConvRot, blocks.clone()), 2 * GROUP);
        assert_eq!(rows.scales, scales);
        assert!(rows.bytes.iter().zip(&bytes).all(|(a, b)| *a as u8 == *b));
        // They stand for the same values as the blocks.
        let mut widened = Vec::new();
        Quant::Int8ConvRot.widen(&blocks, &mut widened);
        assert!(values(&rows).iter().zip(&widened).all(|(a, b)| (a - b).abs() < 1e-3));
        // With a scale per block they are rounded again.
        let mut other = blocks;
        other[..4].copy_from_slice(&2f32.to_le_bytes());
        assert_ne!(Int8Rows::matrix(Numbers::Quant(Quant::Int8ConvRot, other), 2 * GROUP).scales, scales);
    }
}
