//! A device with another upsampler.

use reseed_cpu::CpuOps;
use reseed_ops::{
    ConvOutput, Device, Ops, Residency, Result, TemporalCache, Tensor, Timing, Transfer, Upsample, forward,
};

/// What becomes of an upsampler's result.
pub type Change = Box<dyn Fn(&CpuOps, ConvOutput) -> Result<ConvOutput> + Send + Sync>;

/// The CPU with another upsampler.
pub struct OtherUpsample(pub CpuOps, pub Change);

impl Device for OtherUpsample {
    forward!(Device to 0, except name);

    fn name(&self) -> String {
        format!("{}, with another upsampler", self.0.name())
    }
}

impl Ops for OtherUpsample {
    forward!(Ops to 0, except upsample);

    fn upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        groups: Option<usize>,
    ) -> Result<ConvOutput> {
        self.1(&self.0, self.0.upsample(cache, x, upsample, groups)?)
    }
}

impl Residency for OtherUpsample {
    forward!(Residency to 0);
}

impl Transfer for OtherUpsample {
    forward!(Transfer to 0);
}

impl Timing for OtherUpsample {
    forward!(Timing to 0);
}
