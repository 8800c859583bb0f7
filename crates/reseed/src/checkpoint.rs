//! Checkpoints between batches, from which a job can be resumed.

use reseed_media::Sink;

use crate::batch::ShotStart;

/// The state of a job between two batches. With its source and its written frames it is all that a resumed job needs.
/// The default is the start of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// Finished batches.
    pub batches: usize,
    /// Frames given to the sink.
    pub frames: usize,
    /// Frames of the lead-in that are removed.
    pub lead_in: usize,
    /// Frames of the last batches that later ones may still change: for each batch `[H, W, 3]` values, cross-faded so
    /// far. Empty where batches share no frames.
    pub held: Vec<Vec<Vec<f32>>>,
    /// The shot from which the source is read again, so that the rest is cut as before.
    pub shot: ShotStart,
}

impl Checkpoint {
    /// The first batch whose frames are still needed.
    pub(crate) fn first_held(&self) -> usize {
        self.batches - self.held.len()
    }
}

/// Makes checkpoints safe.
pub trait Recorder {
    /// All frames of a batch are written to `sink`; a job can be resumed from `point`.
    fn record(&mut self, point: &Checkpoint, sink: &mut dyn Sink) -> reseed_media::Result<()>;

    /// Whether the frames of a recorded checkpoint are safe on disk.
    fn is_durable(&self) -> bool {
        true
    }

    /// All frames are written to `sink`, which is finished next.
    fn complete(&mut self, _sink: &mut dyn Sink) -> reseed_media::Result<()> {
        Ok(())
    }
}
