//! Which savings a device may use for its products.

use std::fmt;
use std::str::FromStr;

/// The accuracy that a device keeps where it could compute faster. The types are those of [`crate::Precision`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MathMode {
    /// Fewer products where the result stays within a few roundings: Winograd.
    #[default]
    Exact,
    /// Also sums of f16 within up to 96 products, on GPUs that multiply faster with them, and products of 8-bit
    /// integers in the linear layers that allow them.
    Fast,
    /// The direct algorithm with sums of f32.
    Reference,
}

impl MathMode {
    /// All modes.
    pub const ALL: [MathMode; 3] = [MathMode::Exact, MathMode::Fast, MathMode::Reference];
}

impl FromStr for MathMode {
    type Err = String;

    fn from_str(text: &str) -> Result<MathMode, String> {
        let found = MathMode::ALL.into_iter().find(|mode| mode.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is not exact, fast or reference"))
    }
}

impl fmt::Display for MathMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MathMode::Exact => "exact",
            MathMode::Fast => "fast",
            MathMode::Reference => "reference",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_reads_back() {
        for mode in MathMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!("half".parse::<MathMode>().unwrap_err(), "`half` is not exact, fast or reference");
    }
}
