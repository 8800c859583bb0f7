//! The shape of tiles. A tile is 16 rows of 64 bytes.

/// Channels of one step: two for each row of a tile of weights.
pub const DEPTH: usize = 32;
/// Rows of a tile, and f32 columns of one.
pub const SIDE: usize = 16;
/// Output columns that are computed together: two tiles.
pub const PANEL: usize = 2 * SIDE;
/// Elements of B that one step reads: two tiles whose rows are pairs of channels and whose columns are outputs.
pub const STEP: usize = DEPTH * PANEL;
