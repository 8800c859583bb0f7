//! Loops compiled once more for processors with wide vectors. Nothing is contracted or reordered, so that results are the
//! same on all of them.

/// Defines a function whose body the compiler vectorises for the widest vectors of the machine it runs on.
#[macro_export]
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

            match $crate::wide::width() {
                // SAFETY: the width was detected on this machine.
                #[cfg(target_arch = "x86_64")]
                512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                256 => unsafe { avx2($($arg),*) },
                _ => body($($arg),*),
            }
        }
    };
}

/// Bits of the widest vectors that loops are compiled for and this machine has, where those are not everyone's.
#[cfg(target_arch = "x86_64")]
pub fn width() -> usize {
    let wide = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    match (wide, is_x86_feature_detected!("avx2")) {
        (true, _) => 512,
        (_, true) => 256,
        _ => 128,
    }
}

/// Bits of the vectors that every machine of its kind has.
#[cfg(not(target_arch = "x86_64"))]
pub fn width() -> usize {
    128
}
