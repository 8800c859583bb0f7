//! Values of options.

use reseed::{Budget, Hw, MathMode, Precision};

/// A bare number is the number of a GPU.
pub fn device(text: &str) -> Result<String, String> {
    let is_number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let full = |name: &str| if is_number(name) { format!("cuda:{name}") } else { name.to_owned() };
    Ok(text.split(',').map(|name| full(name.trim())).collect::<Vec<_>>().join(","))
}

pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{text}` is not off or on")),
    }
}

fn pair(text: &str, what: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once(['x', 'X']).and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    numbers.ok_or_else(|| format!("`{text}` is not {what}, such as 512x512"))
}

pub fn plane(text: &str) -> Result<Hw, String> {
    pair(text, "HEIGHTxWIDTH").map(|(h, w)| Hw::new(h, w))
}

pub fn size(text: &str) -> Result<Hw, String> {
    match pair(text, "WIDTHxHEIGHT")? {
        (w, h) if w > 0 && h > 0 && w <= 1 << 16 && h <= 1 << 16 => Ok(Hw::new(h, w)),
        _ => Err(format!("`{text}`: sides are between 1 and 65536")),
    }
}

/// A fraction, or none where it is chosen automatically. The range is checked with the settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction(pub Option<f32>);

pub fn fraction(text: &str) -> Result<Fraction, String> {
    match text {
        "auto" => Ok(Fraction(None)),
        _ => text.parse().map(|value| Fraction(Some(value))).map_err(|_| format!("`{text}` is not a number or auto")),
    }
}

pub fn memory(text: &str) -> Result<usize, String> {
    text.parse().map(Budget::get)
}

pub fn math(text: &str) -> Result<MathMode, String> {
    text.parse()
}

pub fn precision(text: &str) -> Result<Precision, String> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_written_as_people_write_it() {
        let sizes = ["6G", "6GiB", "6gb", "7.5g", "900M", "4096"].map(memory);
        assert_eq!(sizes, [6 << 30, 6 << 30, 6 << 30, 15 << 29, 900 << 20, 4096].map(Ok));
        assert!(["", "G", "6T", "-1G", "0", "six"].iter().all(|text| memory(text).is_err()));
    }

    #[test]
    fn a_fraction_is_a_number_or_auto() {
        assert_eq!(["auto", "0.25"].map(fraction), [Ok(Fraction(None)), Ok(Fraction(Some(0.25)))]);
        assert_eq!(fraction("much"), Err("`much` is not a number or auto".into()));
    }

    #[test]
    fn tiles_are_height_first_and_sizes_width_first() {
        assert_eq!(plane("64x96"), Ok(Hw::new(64, 96)));
        assert_eq!(size("1280x720"), Ok(Hw::new(720, 1280)));
        assert!(plane("64").is_err() && plane("64x").is_err() && size("0x5").is_err());
    }
}
