//! The instruction sets of the CPU device.

use std::fmt;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::tile_support;
use reseed_ops::DType;
use reseed_ops::{Error, Result};

/// Instruction sets that the CPU device has kernels for, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The definition of every op: plain loops in f64.
    Reference,
    /// Blocked kernels without explicit instructions, for any CPU.
    Portable,
    /// NEON, which every 64-bit ARM CPU has.
    Neon,
    /// NEON and `bfmmla`, which multiplies matrices of bf16. Other element types use NEON alone.
    NeonBf16,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, VL, BW and DQ.
    Avx512,
    /// AVX-512 and AMX tiles for bf16. Other element types use AVX-512 alone.
    Amx,
}

impl Level {
    /// Every level of this CPU architecture, slowest first.
    #[cfg(not(target_arch = "aarch64"))]
    pub const ALL: &[Level] = &[Level::Reference, Level::Portable, Level::Avx2, Level::Avx512, Level::Amx];
    /// Every level of this CPU architecture, slowest first.
    #[cfg(target_arch = "aarch64")]
    pub const ALL: &[Level] = &[Level::Reference, Level::Portable, Level::Neon, Level::NeonBf16];

    /// The level whose products run on tiles.
    #[cfg(not(target_arch = "aarch64"))]
    pub(crate) const TILES: Level = Level::Amx;
    /// The level whose products run on tiles.
    #[cfg(target_arch = "aarch64")]
    pub(crate) const TILES: Level = Level::NeonBf16;

    /// The best level of this machine, capped by `RESEED_CPU`.
    pub fn detect() -> Result<Level> {
        let best = Level::best();
        match std::env::var("RESEED_CPU") {
            Ok(word) => Ok(Level::parse(&word)?.min(best)),
            Err(_) => Ok(best),
        }
    }

    /// Every level that this machine runs, slowest first.
    pub fn available() -> impl Iterator<Item = Level> {
        let best = Level::best();
        Level::ALL.iter().copied().filter(move |&level| level <= best)
    }

    /// The fastest element type: bf16 where tiles multiply it several times faster than f32.
    pub fn dtype(self) -> DType {
        if self == Level::TILES { DType::Bf16 } else { DType::F32 }
    }

    /// The level of the work that runs on SIMD registers.
    pub(crate) fn simd(self) -> Level {
        match self {
            Level::Amx => Level::Avx512,
            Level::NeonBf16 => Level::Neon,
            level => level,
        }
    }

    fn parse(word: &str) -> Result<Level> {
        let known = || Level::ALL.iter().map(Level::to_string).collect::<Vec<_>>().join(", ");
        let found = Level::ALL.iter().copied().find(|level| level.to_string() == word);
        found.ok_or_else(|| Error::UnknownLevel { found: word.into(), known: known() })
    }

    #[cfg(target_arch = "x86_64")]
    pub(crate) fn best() -> Level {
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq");
        if avx512 && tile_support::available() {
            Level::Amx
        } else if avx512 {
            Level::Avx512
        } else if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            Level::Avx2
        } else {
            Level::Portable
        }
    }

    #[cfg(target_arch = "aarch64")]
    pub(crate) fn best() -> Level {
        if tile_support::available() { Level::NeonBf16 } else { Level::Neon }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(crate) fn best() -> Level {
        Level::Portable
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Reference => "reference",
            Level::Portable => "portable",
            Level::Neon => "neon",
            Level::NeonBf16 => "neon-bf16",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
            Level::Amx => "amx",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_parses_from_its_name() {
        for &level in Level::ALL {
            assert_eq!(Level::parse(&level.to_string()).unwrap(), level);
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_error_for_an_unknown_level_lists_the_known_ones() {
        let error = Level::parse("sse9").unwrap_err().to_string();
        assert_eq!(error, "RESEED_CPU=sse9 is not a level; use one of reference, portable, avx2, avx512, amx");
    }
}
