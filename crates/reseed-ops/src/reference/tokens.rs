//! The ops of a transformer, over rows of doubles.

use crate::packing::RotaryData;

/// x / sqrt(mean(x²) + eps) · gain + shift over each row.
pub fn rms_norm_modulate(x: &[f64], gain: &[f64], shift: &[f64], eps: f64) -> Vec<f64> {
    let row = |row: &[f64]| {
        let size = (row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64 + eps).sqrt();
        row.iter().zip(gain).zip(shift).map(|((v, gain), shift)| v / size * gain + shift).collect::<Vec<_>>()
    };
    x.chunks_exact(gain.len()).flat_map(row).collect()
}

/// x + gate · h.
pub fn gated_add(x: &[f64], h: &[f64], gate: &[f64]) -> Vec<f64> {
    x.iter().zip(h).enumerate().map(|(i, (x, h))| x + gate[i % gate.len()] * h).collect()
}

/// silu(first half) · second half of each row.
pub fn swiglu(x: &[f64], width: usize) -> Vec<f64> {
    let silu = |v: f64| v / (1.0 + (-v).exp());
    let row = |row: &[f64]| {
        let (gate, value) = row.split_at(width);
        gate.iter().zip(value).map(|(g, v)| silu(*g) * v).collect::<Vec<_>>()
    };
    x.chunks_exact(2 * width).flat_map(row).collect()
}

/// ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))).
pub fn gelu(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// One head's query or key: normalised, multiplied by its gain, rotated to the token's position.
fn rotate(x: &[f64], gain: &[f64], rotary: &RotaryData, places: [u32; 3], eps: f64) -> Vec<f64> {
    let mut y = rms_norm_modulate(x, gain, &vec![0.0; gain.len()], eps);
    for (axis, place) in places.into_iter().enumerate() {
        for frequency in 0..rotary.frequencies {
            let [cos, sin] = rotary.turns[place as usize * rotary.frequencies + frequency].map(f64::from);
            let at = 2 * (axis * rotary.frequencies + frequency);
            (y[at], y[at + 1]) = (y[at] * cos - y[at + 1] * sin, y[at + 1] * cos + y[at] * sin);
        }
    }
    y
}

/// A row `[q, k, v]` with q and k of every head normalised and rotated.
pub fn qk_norm_rope(row: &[f64], gains: [&[f64]; 2], rotary: &RotaryData, places: [u32; 3], eps: f64) -> Vec<f64> {
    let (d, width) = (gains[0].len(), row.len() / 3);
    let head = |(i, x): (usize, &[f64])| match i * d / width {
        2 => x.to_vec(),
        which => rotate(x, gains[which], rotary, places, eps),
    };
    row.chunks_exact(d).enumerate().flat_map(head).collect()
}

/// Each row of the result is the mean of `per` rows of `x`.
pub fn gather_rows(x: &[f64], width: usize, per: usize, rows: &[u32]) -> Vec<f64> {
    let mean = |rows: &[u32]| {
        let column = |c: usize| rows.iter().map(|&row| x[row as usize * width + c]).sum::<f64>() / per as f64;
        (0..width).map(column).collect::<Vec<_>>()
    };
    rows.chunks_exact(per).flat_map(mean).collect()
}
