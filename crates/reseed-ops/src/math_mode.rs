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
    /// Also products of 8-bit integers in the convolutions of the VAE that follow a norm, on GPUs where these are
    /// faster than Winograd.
    Int8,
    /// The direct algorithm with sums of f32.
    Reference,
}

impl MathMode {
    /// All modes.
    pub const ALL: [MathMode; 4] = [MathMode::Exact, MathMode::Fast, MathMode::Int8, MathMode::Reference];

    /// Whether the savings of [`MathMode::Fast`] are allowed.
    pub fn is_fast(self) -> bool {
        matches!(self, MathMode::Fast | MathMode::Int8)
    }
}

impl FromStr for MathMode {
    type Err = String;

    fn from_str(text: &str) -> Result<MathMode, String> {
        let found = MathMode::ALL.into_iter().find(|mode| mode.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is not exact, fast, int8 or reference"))
    }
}

impl fmt::Display for MathMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MathMode::Exact => "exact",
            MathMode::Fast => "fast",
            MathMode::Int8 => "int8",
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
        assert_eq!("half".parse::<MathMode>().unwrap_err(), "`half` is not exact, fast, int8 or reference");
    }
}
