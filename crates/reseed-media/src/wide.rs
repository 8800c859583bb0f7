//! Loops compiled additionally for AVX2 and AVX-512. Arithmetic is neither contracted nor reordered, so that results
//! are equal on all CPUs.

/// Whether every CPU of the compilation target has fused multiply-add.
pub const FUSES: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// Whether functions for AVX2 and AVX-512 use fused multiply-add. The compiler may leave a closure in them a function
/// of its own, which lacks the instruction and calls the C library. The one of mingw rounds twice.
pub const FUSES_WIDE: bool = !cfg!(all(windows, target_env = "gnu"));

/// Defines a function whose body the compiler vectorises for the widest vectors of the CPU it runs on. In the body, the
/// constant `FUSED` is whether that CPU has fused multiply-add.
#[macro_export]
macro_rules! wide {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        $vis fn $name($($arg: $ty),*) {
            #[inline(always)]
            fn body<const FUSED: bool>($($arg: $ty),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $ty),*) {
                body::<{ $crate::wide::FUSES_WIDE }>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
            fn avx512($($arg: $ty),*) {
                body::<{ $crate::wide::FUSES_WIDE }>($($arg),*)
            }

            match $crate::wide::width() {
                // SAFETY: `width` detected the features on this CPU.
                #[cfg(target_arch = "x86_64")]
                512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                256 => unsafe { avx2($($arg),*) },
                _ => body::<{ $crate::wide::FUSES }>($($arg),*),
            }
        }
    };
}

/// The vector width in bits to use on this CPU: 512, 256, or 128 for the baseline.
#[cfg(target_arch = "x86_64")]
pub fn width() -> usize {
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    match (avx512 && avx2, avx2) {
        (true, _) => 512,
        (_, true) => 256,
        _ => 128,
    }
}

/// The vector width in bits of the baseline.
#[cfg(not(target_arch = "x86_64"))]
pub fn width() -> usize {
    128
}

/// A divisor for many divisions.
#[derive(Debug, Clone, Copy)]
pub struct Divisor {
    by: f32,
    inverse: f32,
}

impl Divisor {
    /// A divisor from a normal number.
    pub fn new(by: f32) -> Divisor {
        Divisor { by, inverse: 1.0 / by }
    }

    /// Equals `value / by` for finite values of moderate magnitude, except for the sign of zero. A
    /// division takes ten times as long as a product, so CPUs with fused multiply-add multiply by the inverse and
    /// correct the result exactly.
    #[inline(always)]
    pub fn divide<const FUSED: bool>(self, value: f32) -> f32 {
        if !FUSED {
            return value / self.by;
        }
        let estimate = value * self.inverse;
        let remainder = (-estimate).mul_add(self.by, value);
        remainder.mul_add(self.inverse, estimate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    wide! {
        fn divide(values: &[f32], by: f32, out: &mut [f32]) {
            let by = Divisor::new(by);
            out.iter_mut().zip(values).for_each(|(out, value)| *out = by.divide::<FUSED>(*value));
        }
    }

    #[test]
    fn divide_equals_the_division_operator_bit_for_bit() {
        let codes = (0..=u16::MAX).map(f32::from);
        // Testing every fraction takes too long; a stride that is coprime to the range samples it evenly.
        let fractions = (0..1 << 18).map(|i: u32| f32::from_bits(0x3f00_0000 + i.wrapping_mul(0x9e37) % 0x0180_0000));
        let values: Vec<f32> = codes.flat_map(|code| [code, -code]).chain(fractions.flat_map(|f| [f, -f])).collect();
        let mut quotients = vec![0.0; values.len()];
        for by in
            [255.0, 65535.0, 219.0, 224.0, 876.0, 896.0, 1023.0, 0.7152, 0.587, 0.678, 1.8556, 1.5748, 1.772, 1.402]
        {
            divide(&values, by, &mut quotients);
            let wrong = values.iter().zip(&quotients).find(|(value, quotient)| *value / by != **quotient);
            assert_eq!(wrong, None, "by {by}");
        }
    }
}
