//! Where the networks take slices from and where they send them: the stages beside them, or a lane among several.

use std::sync::mpsc::Receiver;

use crate::batch_store::FrameSender;
use crate::prepare::Slice;

/// Where slices come from.
pub trait SliceInput {
    /// Waits for the next slice; `None` when there are no more.
    fn next(&self) -> Option<Slice>;
}

impl SliceInput for Receiver<Slice> {
    fn next(&self) -> Option<Slice> {
        self.recv().ok()
    }
}

/// Where restored slices go.
pub trait SliceOutput {
    /// Sends a slice; `false` when the receiver is gone.
    fn send(&self, slice: Slice) -> bool;

    /// Whether the values of the next slice are stored, so that the host needs them.
    fn stores(&self) -> bool {
        false
    }
}

impl SliceOutput for FrameSender<'_> {
    fn send(&self, slice: Slice) -> bool {
        FrameSender::send(self, slice).is_ok()
    }

    fn stores(&self) -> bool {
        FrameSender::stores(self)
    }
}
