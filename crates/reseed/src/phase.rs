//! What the networks of a job are doing.

use std::sync::atomic::{AtomicU8, Ordering};

/// What the networks of a job are doing. The other stages run beside them all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing: they wait for frames.
    Wait,
    /// Pictures to latents.
    Encode,
    /// The transformer's step.
    Upscale,
    /// Latents to pictures.
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
