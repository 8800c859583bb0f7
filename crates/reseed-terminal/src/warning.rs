//! Warnings of the library as the user of this command line reads them.

use reseed::Warning;

use crate::console;

/// Prints a warning.
pub fn show(warning: &Warning) {
    console::warn(&kind(warning), &with_flags(warning));
}

/// The message of a warning with the flags of this command line. A warning that no flag helps with has its own words.
fn with_flags(warning: &Warning) -> String {
    match warning {
        Warning::InexactTiles { .. } => format!("{warning}; raise --max-vram, or use smaller frames"),
        Warning::WiderType { precision, .. } => format!("{warning}; --dtype {precision} computes all of them so"),
        warning => warning.to_string(),
    }
}

/// Whether a part of the input could not be read.
pub fn is_damage(warning: &Warning) -> bool {
    matches!(warning, Warning::DamagedInput { .. })
}

/// The name of a warning in JSON events: that of its variant, so that a new one needs nothing here.
fn kind(warning: &Warning) -> String {
    let name = format!("{warning:?}");
    let name = name.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let mut kind = String::new();
    for (i, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && i > 0 {
            kind.push('_');
        }
        kind.push(letter.to_ascii_lowercase());
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_the_names_of_variants() {
        let wider = Warning::WiderType { reason: "a value left the range".into(), precision: reseed::Precision::Bf16 };
        assert_eq!((kind(&wider), kind(&Warning::Loss("chapters".into()))), ("wider_type".into(), "loss".into()));
        let tile = reseed::Hw::new(64, 64);
        assert_eq!(kind(&Warning::InexactTiles { available: 1, needed: 2, tile }), "inexact_tiles");
    }
}
