//! The last frames of a clip, continued from a cache: the next temporal cache of a causal convolution.

use reseed_ops::{Result, Shape, Tensor, Thw};

use super::CudaOps;
use super::memory::ptr;
use crate::stream::Stream;

pub fn run(cuda: &CudaOps, mut cache: Option<Tensor>, mut x: Tensor, keep: usize) -> Result<Tensor> {
    let thw = x.thw();
    if thw.t == keep && x.is_unique() {
        return Ok(x);
    }
    if let Some(cache) = &cache {
        let plane = |t: &Tensor| (t.thw().h, t.thw().w, t.channels(), t.dtype());
        assert_eq!(plane(cache), plane(&x), "tail: cache {cache:?}, input {x:?}");
    }
    // Frames move to the front one by one, so that a cache can be updated in place.
    let in_place = match &mut cache {
        Some(cache) if cache.thw().t == keep => cuda.is_writable(cache)?,
        _ => false,
    };
    let kept = match &cache {
        Some(cache) if in_place => cache.clone(),
        _ => cuda.empty("tail", Shape::clip(Thw { t: keep, ..thw }, x.channels()), x.dtype())?,
    };
    let frame = thw.h * thw.w * x.channels() * x.dtype().bytes();
    for i in 0..keep {
        let from = match ((thw.t + i).checked_sub(keep), &cache) {
            (Some(t), _) => ptr(&x).plus(t * frame),
            (None, None) => ptr(&x),
            (None, Some(cache)) => {
                let back = keep - thw.t - i;
                assert!(back <= cache.thw().t, "tail: {keep} frames of {cache:?} and {x:?}");
                ptr(cache).plus((cache.thw().t - back) * frame)
            }
        };
        // SAFETY: both are frames of one size and disjoint: in place, a frame moves to a smaller index.
        unsafe { cuda.driver.copy(Stream::Compute, ptr(&kept).plus(i * frame), from, frame) }?;
    }
    Ok(kept)
}
