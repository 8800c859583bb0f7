//! Rotary position embeddings: frequencies, and a table of rotations for all positions of a sequence.

use std::collections::HashMap;

use reseed_ops::RotaryData;

use super::config::{HEAD_DIM, Rope};

impl Rope {
    /// Frequencies of one axis, equal to those of the f32 checkpoint. Files of narrower types store them with too large
    /// rounding errors, so the stored ones are never read.
    pub fn frequencies(self) -> Vec<f32> {
        match self {
            Rope::Lang => {
                let count = HEAD_DIM / 3 / 2;
                (0..count).map(|k| 10_000_f64.powf(-(k as f64) / count as f64) as f32).collect()
            }
            Rope::Pixel => {
                let count = HEAD_DIM / 2 / 3 / 2;
                let step = 127.0 / (count - 1) as f64;
                (0..count).map(|k| (std::f64::consts::PI * (1.0 + step * k as f64)) as f32).collect()
            }
        }
    }

    /// Position of video token `i` of `n` on an axis of a window. `origin` is the index of the first token.
    fn video_position(self, i: usize, n: usize, origin: usize) -> f64 {
        match self {
            Rope::Lang => (origin + i) as f64,
            Rope::Pixel => 2.0 * i as f64 / (n.max(2) - 1) as f64 - 1.0,
        }
    }

    /// Position of text token `i` on every axis.
    fn text_position(self, i: usize) -> f64 {
        match self {
            Rope::Lang => i as f64,
            Rope::Pixel => 0.0,
        }
    }
}

/// Builds the table of rotations, one entry per distinct position, and the entries of each token.
pub struct RotaryBuilder {
    rope: Rope,
    text: usize,
    frequencies: Vec<f32>,
    /// Entry of each position, by the bits of the position.
    entries: HashMap<u64, u32>,
    data: RotaryData,
}

impl RotaryBuilder {
    /// Starts without sequences. Every sequence will have `text` text tokens.
    pub fn new(rope: Rope, text: usize) -> RotaryBuilder {
        let frequencies = rope.frequencies();
        let data = RotaryData { frequencies: frequencies.len(), turns: Vec::new(), places: Vec::new() };
        RotaryBuilder { rope, text, frequencies, entries: HashMap::new(), data }
    }

    /// Entry of a position, added on first use.
    fn entry(&mut self, position: f64) -> u32 {
        let next = self.entries.len() as u32;
        *self.entries.entry(position.to_bits()).or_insert_with(|| {
            let angles = self.frequencies.iter().map(|&f| position * f64::from(f));
            self.data.turns.extend(angles.map(|angle| [angle.cos() as f32, angle.sin() as f32]));
            next
        })
    }

    /// Adds a sequence: a window of `[frames, rows, columns]`, then the text.
    pub fn add(&mut self, size: [usize; 3]) {
        let origins = [self.text, 0, 0];
        let mut axis = |a: usize| -> Vec<u32> {
            (0..size[a]).map(|i| self.entry(self.rope.video_position(i, size[a], origins[a]))).collect()
        };
        let [t, h, w] = [axis(0), axis(1), axis(2)];
        for &t in &t {
            for &h in &h {
                self.data.places.extend(w.iter().map(|&w| [t, h, w]));
            }
        }
        for i in 0..self.text {
            let entry = self.entry(self.rope.text_position(i));
            self.data.places.push([entry; 3]);
        }
    }

    /// Returns the table and the entries of every token.
    pub fn finish(self) -> RotaryData {
        self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_match_the_published_ones() {
        // The published values have seven digits.
        let near = |got: &[f32], want: &[f32]| got.iter().zip(want).all(|(got, want)| (got / want - 1.0).abs() < 5e-7);
        let lang = Rope::Lang.frequencies();
        assert_eq!(lang.len(), 21);
        assert!(near(&lang, &[1.0, 0.6449467, 0.4159562, 0.2682696, 0.1730196]), "{lang:?}");
        assert!(near(&lang[20..], &[1.550_516e-4]), "{lang:?}");
        let pixel = Rope::Pixel.frequencies();
        let pi = std::f32::consts::PI;
        let want = [pi, 47.47295, 91.80432, 136.1357, 180.467, 224.7984, 269.1298, 313.4612, 357.7925, 402.1239];
        assert!(pixel.len() == want.len() && near(&pixel, &want), "{pixel:?}");
    }

    #[test]
    fn positions_are_relative_to_the_window() {
        let angle = |data: &RotaryData, token: usize, axis: usize| {
            let [cos, sin] = data.turns[data.places[token][axis] as usize * data.frequencies];
            f64::from(sin).atan2(f64::from(cos))
        };
        let near = |a: f64, b: f64| ((a - b).sin().powi(2) + ((a - b).cos() - 1.0).powi(2)).sqrt() < 1e-6;

        let mut builder = RotaryBuilder::new(Rope::Lang, 3);
        builder.add([2, 1, 2]);
        builder.add([1, 1, 1]);
        let data = builder.finish();
        // Four video and three text tokens, then one video and three text tokens.
        let want =
            [[3, 0, 0], [3, 0, 1], [4, 0, 0], [4, 0, 1], [0; 3], [1; 3], [2; 3], [3, 0, 0], [0; 3], [1; 3], [2; 3]];
        for (token, want) in want.iter().enumerate() {
            assert!((0..3).all(|axis| near(angle(&data, token, axis), f64::from(want[axis]))), "token {token}");
        }

        let mut builder = RotaryBuilder::new(Rope::Pixel, 1);
        builder.add([1, 2, 3]);
        let data = builder.finish();
        let pi = std::f64::consts::PI;
        let columns = [-pi, 0.0, pi, -pi, 0.0, pi, 0.0];
        assert!((0..7).all(|token| near(angle(&data, token, 2), columns[token])));
        assert!(near(angle(&data, 0, 0), -pi), "the token of an axis of length one is at -1");
        assert_eq!(data.turns[data.places[6][0] as usize * 10..][..10], [[1.0, 0.0]; 10], "text is not rotated");
    }
}
