//! Loops compiled once more for processors with wide vectors. Nothing is contracted or reordered, so that results are the
//! same on all of them.

/// Runs `work` as compiled for the widest vectors of this machine, with all that is inlined into it.
#[inline(always)]
pub fn wide<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the machine was just asked.
            return unsafe { x86::avx512(work) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { x86::avx2(work) };
        }
    }
    work()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #[target_feature(enable = "avx2")]
    pub fn avx2<R>(work: impl FnOnce() -> R) -> R {
        work()
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    pub fn avx512<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
}
