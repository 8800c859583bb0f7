//! Group norm, SiLU and convolution of one frame, in one kernel where that is faster.

use reseed_ops::{Activation, Conv, ConvOutput, Epilogue, Norm, Result, TemporalCache};

use super::CudaOps;
use super::conv;
use super::conv_hopper::fuses_norm;
use super::group_norm::{self, gain_and_shift, stats_of};
use super::memory::ptr;
use crate::params::{NormArgs, int};

pub fn run(cuda: &CudaOps, x: ConvOutput, norm: &Norm, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
    let ConvOutput { tensor: x, stats } = x;
    assert_eq!(x.thw().t, 1, "norm_conv: {x:?} has more than one frame");
    if norm.int8 || !fuses_norm(cuda.dtype, cuda.driver.kernels.hopper, &conv.spec) {
        let h = group_norm::run(cuda, x, stats, norm, Activation::Silu)?;
        return conv::run(cuda, TemporalCache::Start, &h, conv, epilogue);
    }
    let stats = stats_of(cuda, "norm_conv", &x, stats, norm)?;
    let (gain, shift) = gain_and_shift(cuda, norm);
    let norm = NormArgs { stats: ptr(&stats), gain, shift, groups: int(norm.groups), eps: norm.eps };
    conv::run_normed(cuda, Some(norm), TemporalCache::Start, &x, conv, epilogue)
}
