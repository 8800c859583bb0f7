//! Loops compiled once more for processors with wide vectors. Nothing is contracted or reordered, so that results are the
//! same on all of them.

/// Defines a function whose body the compiler vectorises for the widest vectors of the machine it runs on.
macro_rules! wide {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        $vis fn $name($($arg: $ty),*) {
            #[inline(always)]
            fn body($($arg: $ty),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($arg: $ty),*) {
                body($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
            fn avx512($($arg: $ty),*) {
                body($($arg),*)
            }

            match reseed_ops::Level::available().last() {
                // SAFETY: the level was detected on this machine.
                #[cfg(target_arch = "x86_64")]
                Some(reseed_ops::Level::Avx512) => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Some(reseed_ops::Level::Avx2) => unsafe { avx2($($arg),*) },
                _ => body($($arg),*),
            }
        }
    };
}
pub(crate) use wide;
