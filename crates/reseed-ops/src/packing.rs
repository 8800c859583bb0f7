//! Which token goes where, and by how much it is turned: integers and angles that a plan computes once and a device
//! keeps.

use crate::weights::Packed;

/// Rows of a matrix to take, on a device.
#[derive(Clone)]
pub struct Rows {
    /// Rows of the result.
    pub count: usize,
    /// Rows of the input that one row of the result is the mean of.
    pub per: usize,
    /// One more than the largest row that is taken.
    pub end: usize,
    /// The device's own form.
    pub packed: Packed,
}

impl Rows {
    /// What a device holds of `rows`, of which every `per` make one row of the result.
    pub fn new(per: usize, rows: &[u32], packed: Packed) -> Rows {
        assert!(per > 0 && rows.len().is_multiple_of(per), "{} rows, {per} for each of the result", rows.len());
        let end = rows.iter().max().map_or(0, |&row| row as usize + 1);
        Rows { count: rows.len() / per, per, end, packed }
    }
}

/// Rotary positions on the host. A head's channels are pairs (2p, 2p + 1); the first pairs belong to the time axis, the
/// next to rows, the next to columns, as many for each; pairs behind those are not turned.
pub struct RotaryData {
    /// Pairs of one axis.
    pub frequencies: usize,
    /// Cosine and sine of each pair at each place: `[place][frequency]`.
    pub turns: Vec<[f32; 2]>,
    /// Every token's place on the three axes.
    pub places: Vec<[u32; 3]>,
}

impl RotaryData {
    /// Panics if a token stands at a place that is not there.
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
