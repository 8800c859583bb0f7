//! Row indices and rotary positions of tokens: a plan computes them once, a device packs them.

use crate::weights::Packed;

/// Row indices on a device.
#[derive(Clone)]
pub struct Rows {
    /// Rows of the result.
    pub count: usize,
    /// Rows of the input that are averaged for one row of the result.
    pub per: usize,
    /// One more than the largest index.
    pub end: usize,
    /// The device's own form.
    pub packed: Packed,
}

impl Rows {
    /// Describes `rows`, of which every `per` are averaged for one row of the result.
    pub fn new(per: usize, rows: &[u32], packed: Packed) -> Rows {
        assert!(per > 0 && rows.len().is_multiple_of(per), "{} rows, {per} for each of the result", rows.len());
        let end = rows.iter().max().map_or(0, |&row| row as usize + 1);
        Rows { count: rows.len() / per, per, end, packed }
    }
}

/// Rotary positions on the host. The channels of a head are pairs (2p, 2p + 1): `frequencies` pairs for the time axis,
/// as many for rows and as many for columns. The remaining pairs are not rotated.
pub struct RotaryData {
    /// Pairs of one axis.
    pub frequencies: usize,
    /// Cosine and sine for each position and pair: `[place][frequency]`.
    pub turns: Vec<[f32; 2]>,
    /// Position of every token on the three axes.
    pub places: Vec<[u32; 3]>,
}

impl RotaryData {
    /// Panics if a token's position has no angles.
    pub fn check(&self) {
        let last = self.places.iter().flatten().max().map_or(0, |&place| place as usize + 1);
        let turns = self.turns.len();
        assert!(last * self.frequencies <= turns, "{last} places of {} frequencies, {turns} turns", self.frequencies);
    }
}

/// Rotary positions on a device.
#[derive(Clone)]
pub struct Rotary {
    /// Tokens.
    pub count: usize,
    /// Pairs of one axis.
    pub frequencies: usize,
    /// The device's own form.
    pub packed: Packed,
}
