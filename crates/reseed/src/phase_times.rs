//! Time in the networks.

use std::ops::AddAssign;
use std::time::Duration;

use reseed_ops::CopyTime;

/// Time that the networks took.
#[derive(Default)]
pub struct PhaseTimes {
    pub encode: Duration,
    pub upscale: Duration,
    pub decode: Duration,
    pub streaming: CopyTime,
}

impl AddAssign for PhaseTimes {
    fn add_assign(&mut self, other: PhaseTimes) {
        self.encode += other.encode;
        self.upscale += other.upscale;
        self.decode += other.decode;
        self.streaming += other.streaming;
    }
}
