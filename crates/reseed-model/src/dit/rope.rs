//! Rotary positions: frequencies, and the turns of every place that a token can have.

use std::collections::HashMap;

use reseed_ops::RotaryData;

use super::config::{HEAD, Rope};

impl Rope {
    /// One axis' frequencies, in f32 as the exact checkpoint holds them. Files of smaller types hold them rounded, some
    /// beyond use; they are never read.
    pub fn frequencies(self) -> Vec<f32> {
        match self {
            Rope::Counted => {
                let count = HEAD / 3 / 2;
                (0..count).map(|k| 10_000_f64.powf(-(k as f64) / count as f64) as f32).collect()
            }
            Rope::Stretched => {
                let count = HEAD / 2 / 3 / 2;
                let step = 127.0 / (count - 1) as f64;
                (0..count).map(|k| (std::f64::consts::PI * (1.0 + step * k as f64)) as f32).collect()
            }
        }
    }

    /// Position of token `i` of `n` on an axis of a window; `origin` is where counting starts.
    fn video(self, i: usize, n: usize, origin: usize) -> f64 {
        match self {
            Rope::Counted => (origin + i) as f64,
            Rope::Stretched => 2.0 * i as f64 / (n.max(2) - 1) as f64 - 1.0,
        }
    }

    fn text(self, i: usize) -> f64 {
        match self {
            Rope::Counted => i as f64,
            Rope::Stretched => 0.0,
        }
    }
}

/// Gives every position a place in the table of turns.
pub struct Places {
    rope: Rope,
    text: usize,
    frequencies: Vec<f32>,
    known: HashMap<u64, u32>,
    data: RotaryData,
}

impl Places {
    /// No token yet; there will be `text` tokens of text in every sequence.
    pub fn new(rope: Rope, text: usize) -> Places {
        let frequencies = rope.frequencies();
        let data = RotaryData { frequencies: frequencies.len(), turns: Vec::new(), places: Vec::new() };
        Places { rope, text, frequencies, known: HashMap::new(), data }
    }

    fn place(&mut self, position: f64) -> u32 {
        let next = self.known.len() as u32;
        *self.known.entry(position.to_bits()).or_insert_with(|| {
            let angles = self.frequencies.iter().map(|&f| position * f64::from(f));
            self.data.turns.extend(angles.map(|angle| [angle.cos() as f32, angle.sin() as f32]));
            next
        })
    }

    /// Adds a window of `[frames, rows, columns]` and the text behind it.
    pub fn add(&mut self, size: [usize; 3]) {
        let origins = [self.text, 0, 0];
        let mut axis = |a: usize| -> Vec<u32> {
            (0..size[a]).map(|i| self.place(self.rope.video(i, size[a], origins[a]))).collect()
        };
        let [t, h, w] = [axis(0), axis(1), axis(2)];
        for &t in &t {
            for &h in &h {
                self.data.places.extend(w.iter().map(|&w| [t, h, w]));
            }
        }
        for i in 0..self.text {
            let place = self.place(self.rope.text(i));
            self.data.places.push([place; 3]);
        }
    }

    /// The table and every token's place in it.
    pub fn finish(self) -> RotaryData {
        self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_the_published_ones() {
        // Published with seven digits.
        let near = |got: &[f32], want: &[f32]| got.iter().zip(want).all(|(got, want)| (got / want - 1.0).abs() < 5e-7);
        let counted = Rope::Counted.frequencies();
        assert_eq!(counted.len(), 21);
        assert!(near(&counted, &[1.0, 0.6449467, 0.4159562, 0.2682696, 0.1730196]), "{counted:?}");
        assert!(near(&counted[20..], &[1.550_516e-4]), "{counted:?}");
        let stretched = Rope::Stretched.frequencies();
        let pi = std::f32::consts::PI;
        let want = [pi, 47.47295, 91.80432, 136.1357, 180.467, 224.7984, 269.1298, 313.4612, 357.7925, 402.1239];
        assert!(stretched.len() == want.len() && near(&stretched, &want), "{stretched:?}");
    }

    #[test]
    fn positions_restart_in_every_window_and_follow_its_own_size() {
        let angle = |data: &RotaryData, token: usize, axis: usize| {
            let [cos, sin] = data.turns[data.places[token][axis] as usize * data.frequencies];
            f64::from(sin).atan2(f64::from(cos))
        };
        let near = |a: f64, b: f64| ((a - b).sin().powi(2) + ((a - b).cos() - 1.0).powi(2)).sqrt() < 1e-6;

        let mut places = Places::new(Rope::Counted, 3);
        places.add([2, 1, 2]);
        places.add([1, 1, 1]);
        let data = places.finish();
        // Four video tokens and three of text, then one and three.
        let want =
            [[3, 0, 0], [3, 0, 1], [4, 0, 0], [4, 0, 1], [0; 3], [1; 3], [2; 3], [3, 0, 0], [0; 3], [1; 3], [2; 3]];
        for (token, want) in want.iter().enumerate() {
            assert!((0..3).all(|axis| near(angle(&data, token, axis), f64::from(want[axis]))), "token {token}");
        }

        let mut places = Places::new(Rope::Stretched, 1);
        places.add([1, 2, 3]);
        let data = places.finish();
        let pi = std::f64::consts::PI;
        let columns = [-pi, 0.0, pi, -pi, 0.0, pi, 0.0];
        assert!((0..7).all(|token| near(angle(&data, token, 2), columns[token])));
        assert!(near(angle(&data, 0, 0), -pi), "an axis of one token stands at -1");
        assert_eq!(data.turns[data.places[6][0] as usize * 10..][..10], [[1.0, 0.0]; 10], "text is not turned");
    }
}
