//! Roots without branches or calls, which the compiler can vectorise. The error is a few units in the last place for
//! positive normal numbers. For other arguments the result is unspecified; there is no panic.

/// x^(1/3): an initial guess from a third of the exponent, then two iterations of Halley's method.
#[inline(always)]
pub fn cube_root(x: f32) -> f32 {
    let mut y = f32::from_bits(x.to_bits() / 3 + 0x2A51_37A0);
    for _ in 0..2 {
        let cube = y * y * y;
        y -= y * (cube - x) / (2.0 * cube + x);
    }
    y
}

/// x^(1/5): an initial guess from a fifth of the exponent, then three iterations of Newton's method.
#[inline(always)]
fn fifth_root(x: f32) -> f32 {
    let mut y = f32::from_bits(x.to_bits() / 5 + 0x32C8_2FEB);
    for _ in 0..3 {
        let square = y * y;
        y -= 0.2 * (y - x / (square * square));
    }
    y
}

/// x^2.4 = x² (x^(1/5))².
#[inline(always)]
pub fn to_the_2_4(x: f32) -> f32 {
    let root = fifth_root(x);
    x * x * (root * root)
}

/// x^(1/2.4) = x^(1/3) · x^(1/12); x^(1/12) is the fourth root of x^(1/3).
#[inline(always)]
pub fn to_the_inverse_2_4(x: f32) -> f32 {
    let root = cube_root(x);
    root * root.sqrt().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_accurate_to_a_few_ulps() {
        let worst = |from: f32, root: fn(f32) -> f32, exact: fn(f64) -> f64| {
            let points = (0..200_000).map(|i| from + (4.0 - from) * i as f32 / 200_000.0);
            let error = |x: f32| (f64::from(root(x)) / exact(f64::from(x)) - 1.0).abs();
            points.map(error).fold(0.0, f64::max)
        };
        let ulp = f64::from(f32::EPSILON);
        assert!(worst(0.001, cube_root, f64::cbrt) < 2.0 * ulp);
        assert!(worst(0.05, to_the_2_4, |x| x.powf(2.4)) < 6.0 * ulp);
        assert!(worst(0.003, to_the_inverse_2_4, |x| x.powf(1.0 / 2.4)) < 4.0 * ulp);
    }
}
