//! Times and encoder options as people write them.

use std::time::Duration;

/// The time of a text such as `90`, `1:30` or `0:01:30.5`.
pub fn parse_time(text: &str) -> Option<Duration> {
    let parts: Vec<&str> = text.split(':').collect();
    let (seconds, whole) = parts.split_last().filter(|(_, whole)| whole.len() <= 2)?;
    let mut total: f64 = seconds.parse().ok().filter(|_| seconds.starts_with(|c: char| c.is_ascii_digit()))?;
    for (part, unit) in whole.iter().rev().zip([60.0, 3600.0]) {
        total += unit * f64::from(part.parse::<u32>().ok()?);
    }
    // ffmpeg takes times in microseconds.
    let micros = (total * 1e6).round();
    (micros < 1e15).then(|| Duration::from_micros(micros as u64))
}

/// Whether a text can name an option of an encoder: ffmpeg would take other texts for something else.
pub fn is_option_name(text: &str) -> bool {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_:".contains(c));
    plain && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_write_them() {
        let micros = |text| parse_time(text).map(|time| time.as_micros());
        assert_eq!(["90", "1:30", "0:01:30.5", "0"].map(micros), [90_000_000, 90_000_000, 90_500_000, 0].map(Some));
        let wrong = ["", "-1", "1:2:3:4", "a", "1::2", "nan", "inf", "1:-2", "9e99"];
        assert_eq!(wrong.map(parse_time), [None; 9]);
    }

    #[test]
    fn an_option_is_a_plain_word() {
        assert!(["preset", "x265-params", "b:v"].into_iter().all(is_option_name));
        assert!(!["", "-i", "a b", "=slow"].into_iter().any(is_option_name));
    }
}
