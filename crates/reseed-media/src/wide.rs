//! Loops compiled once more for processors with wide vectors. Nothing is contracted or reordered, so that results are the
//! same on all of them.

/// Whether a product and a sum are one instruction on every machine of this kind.
pub const FUSES: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// Defines a function whose body the compiler vectorises for the widest vectors of the machine it runs on. In the body
/// `FUSED` says whether a product and a sum are one instruction there.
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
                body::<true>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
            fn avx512($($arg: $ty),*) {
                body::<true>($($arg),*)
            }

            match $crate::wide::width() {
                // SAFETY: the width was detected on this machine.
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

/// Bits of the widest vectors that loops are compiled for and this machine has, where those are not everyone's.
#[cfg(target_arch = "x86_64")]
pub fn width() -> usize {
    let wide = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    let usual = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    match (wide && usual, usual) {
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

/// A number to divide many others by.
#[derive(Debug, Clone, Copy)]
pub struct Divisor {
    by: f32,
    inverse: f32,
}

impl Divisor {
    /// Divides by this, a normal number.
    pub fn new(by: f32) -> Divisor {
        Divisor { by, inverse: 1.0 / by }
    }

    /// What `/` gives for a number that is finite and neither tiny nor huge, but for the sign of zero. Where products and
    /// sums fuse, a division takes ten times as long as a product, and what the rounded inverse is wrong by can be told.
    #[inline(always)]
    pub fn divide<const FUSED: bool>(self, value: f32) -> f32 {
        if !FUSED {
            return value / self.by;
        }
        let near = value * self.inverse;
        let rest = (-near).mul_add(self.by, value);
        rest.mul_add(self.inverse, near)
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
    fn divisors_divide_to_the_last_bit() {
        let codes = (0..=u16::MAX).map(f32::from);
        // Every fraction of 24 bits' neighbourhood would take too long; a stride that shares no factor with it meets all kinds.
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
