//! What a job reports while it runs, and how it is cancelled.

use std::sync::{Mutex, PoisonError};

use reseed_media::{Frame, Size};
use reseed_ops::{Hw, Precision};

use crate::bytes::Bytes;
use crate::phase::Phase;

/// Receives the events of a job on the thread that started it, and answers whether to cancel.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: &Event);

    /// A finished frame, before it is written: for previews.
    fn frame(&mut self, _frame: &Frame) {}

    /// Whether the next finished frame is wanted even if it is in GPU memory and must be copied for it.
    fn watches_frames(&mut self) -> bool {
        false
    }

    /// Whether the job shall stop after the slice in hand. Finished frames are still written. Asked several times a
    /// second.
    fn cancelled(&mut self) -> bool {
        false
    }
}

/// Ignores events and never cancels.
impl Observer for () {
    fn event(&mut self, _: &Event) {}
}

/// Something that happened in a job.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The networks are loaded and frames begin to flow.
    Started {
        /// Frames of the input, where it knows.
        frames: Option<usize>,
        /// Frames that an earlier run has finished.
        done: usize,
    },
    /// What the networks are doing. Sent several times a second.
    Phase(Phase),
    /// So many more frames are written.
    Frames(usize),
    /// All final frames of a batch are written.
    Batch {
        /// Batches since the start of the output.
        batches: usize,
    },
    /// So many frames are safe on disk: a resumed job does not compute them again.
    Saved {
        /// Frames since the start of the output.
        frames: usize,
    },
    /// Another process allocated memory, and the job continues with less.
    Replanned {
        /// The device.
        device: String,
        /// Bytes of the new plan.
        bytes: usize,
    },
    /// How the fields of interlaced video become frames.
    Fields(String),
    /// Something that a user should know.
    Warning(Warning),
}

/// Something that a user should know although the job continues.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// No exact plan fits into the memory budget.
    #[error(
        "{} available for tensors, at least {} needed: running in tiles of {side}x{side}, which is not exact",
        Bytes(*available),
        Bytes(*needed),
        side = tile.h
    )]
    InexactTiles {
        /// Bytes within the budget.
        available: usize,
        /// Bytes of the smallest exact plan.
        needed: usize,
        /// The tiles in pixels.
        tile: Hw,
    },
    /// Values left the range of f16, and the batches where they do are computed in a wider type. Reported once.
    #[error("{reason}: such batches are computed in {precision}")]
    WiderType {
        /// What the device reported.
        reason: String,
        /// The type: bf16, or f32 on a GPU without bf16.
        precision: Precision,
    },
    /// The output is smaller than the input.
    #[error("{from} frames become {to}, which is smaller than the input")]
    Shrinks {
        /// Size of the input.
        from: Size,
        /// Size of the output.
        to: Size,
    },
    /// A part of the input that the output cannot hold.
    #[error("{0}")]
    Loss(String),
    /// The input is damaged and is restored as far as it goes.
    #[error("{problem}")]
    DamagedInput {
        /// What is damaged, and where.
        problem: reseed_media::Problem,
    },
    /// One of several devices failed, and the job continues on the others.
    #[error("{device} is lost, and the job continues without it: {reason}")]
    LostDevice {
        /// The device.
        device: String,
        /// Why.
        reason: String,
    },
    /// A remark of a device.
    #[error("{0}")]
    Device(String),
}

/// Events of other threads on their way to the observer.
#[derive(Default)]
pub(crate) struct EventQueue(Mutex<Vec<Event>>);

impl EventQueue {
    pub fn push(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    pub fn drain(&self, to: &mut dyn FnMut(Event)) {
        let events = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        events.into_iter().for_each(to);
    }
}
