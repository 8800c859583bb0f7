//! Roots without branches or calls, so that the compiler runs them on whole vectors. All are good to a few units in the
//! last place for normal positive numbers, and give no panic but no sense for others.

/// x^(1/3): the exponent's third as a first guess, then Halley's step twice.
#[inline(always)]
pub fn cube_root(x: f32) -> f32 {
    let mut y = f32::from_bits(x.to_bits() / 3 + 0x2A51_37A0);
    for _ in 0..2 {
        let cube = y * y * y;
        y -= y * (cube - x) / (2.0 * cube + x);
    }
    y
}

/// x^(1/5): the exponent's fifth as a first guess, then Newton's step three times.
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

/// x^(1/2.4) = x^(1/3) x^(1/12), and the latter is the fourth root of the former.
#[inline(always)]
pub fn to_the_inverse_2_4(x: f32) -> f32 {
    let root = cube_root(x);
    root * root.sqrt().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_as_good_as_their_type() {
        let worst = |from: f32, root: fn(f32) -> f32, exact: fn(f64) -> f64| {
            let points = (0..200_000).map(|i| from + (4.0 - from) * i as f32 / 200_000.0);
            let off = |x: f32| (f64::from(root(x)) / exact(f64::from(x)) - 1.0).abs();
            points.map(off).fold(0.0, f64::max)
        };
        let ulp = f64::from(f32::EPSILON);
        assert!(worst(0.001, cube_root, f64::cbrt) < 2.0 * ulp);
        assert!(worst(0.05, to_the_2_4, |x| x.powf(2.4)) < 6.0 * ulp);
        assert!(worst(0.003, to_the_inverse_2_4, |x| x.powf(1.0 / 2.4)) < 4.0 * ulp);
    }
}
