//! What the networks of a job are doing.

use std::sync::atomic::{AtomicU8, Ordering};

/// What the networks of a job are doing. The other stages run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for frames.
    Wait,
    /// Frames to latents.
    Encode,
    /// The step of the transformer.
    Upscale,
    /// Latents to frames.
    Decode,
}

/// A phase that one thread sets and another reads.
#[derive(Default)]
pub(crate) struct PhaseCell(AtomicU8);

impl PhaseCell {
    const ALL: [Phase; 4] = [Phase::Wait, Phase::Encode, Phase::Upscale, Phase::Decode];

    pub fn set(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    pub fn get(&self) -> Phase {
        PhaseCell::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }
}
