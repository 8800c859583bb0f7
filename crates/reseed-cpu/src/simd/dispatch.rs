//! Plain loops that are compiled for each instruction set, and the choice of one by level.

/// Defines a function whose first argument is a [`Level`](crate::Level). The body is compiled for each instruction set,
/// and the level selects one.
macro_rules! dispatch {
    (
        $(#[$doc:meta])*
        $vis:vis fn $name:ident $(<$($g:ident: $bound:path),+>)? ($($arg:ident: $ty:ty),* $(,)?) $body:block
    ) => {
        $(#[$doc])*
        $vis fn $name $(<$($g: $bound),+>)? (level: $crate::host::level::Level, $($arg: $ty),*) {
            #[inline(always)]
            fn body $(<$($g: $bound),+>)? ($($arg: $ty),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2 $(<$($g: $bound),+>)? ($($arg: $ty),*) {
                body($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
            fn avx512 $(<$($g: $bound),+>)? ($($arg: $ty),*) {
                body($($arg),*)
            }

            match level {
                // SAFETY: `CpuOps::at` has checked that the CPU has the level.
                #[cfg(target_arch = "x86_64")]
                $crate::host::level::Level::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: `CpuOps::at` has checked that the CPU has the level.
                #[cfg(target_arch = "x86_64")]
                $crate::host::level::Level::Avx2 => unsafe { avx2($($arg),*) },
                _ => body($($arg),*),
            }
        }
    };
}
pub(crate) use dispatch;

/// eˣ within two units in the last place, without branches or calls, so that loops over it vectorise. Saturates outside
/// \[-87, 88\].
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // The addition of 1.5 · 2²³ rounds to an integer, which is in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let p = p * r * r + r + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    p * power
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for i in -87_000..=88_000 {
            let x = i as f32 / 1000.0;
            let want = f64::from(x).exp();
            let error = (f64::from(exp(x)) - want).abs() / want;
            assert!(error <= 2.0 * f64::from(f32::EPSILON), "exp({x}): relative error {error:e}");
        }
    }

    #[test]
    fn exp_saturates() {
        assert!(exp(-1e9) > 0.0 && exp(-1e9) < 2e-38);
        assert!(exp(1e9).is_finite());
    }
}
