//! Points between batches, from which a job can go on.

use crate::batch::ShotStart;

/// Where a job stands between two batches: all that it takes to go on from there, beside its source and what it has
/// written. The default is the start of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// Batches done.
    pub batches: usize,
    /// Frames given to the sink.
    pub frames: usize,
    /// Frames of the lead-in that have come off.
    pub lead_in: usize,
    /// What the last of these batches brought and later ones may still change: for each batch its pictures `[H, W, 3]`,
    /// cross-faded as far as they are. Empty where batches share no frames.
    pub held: Vec<Vec<Vec<f32>>>,
    /// The shot that the source has to be read from, so that what follows is cut as it was.
    pub shot: ShotStart,
}

impl Checkpoint {
    /// The first batch whose frames are still needed.
    pub(crate) fn first_held(&self) -> usize {
        self.batches - self.held.len()
    }
}
