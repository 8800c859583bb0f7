//! Numbers of bytes as people read them.

use std::fmt;

/// A number of bytes; 1536 is written as 1.50 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["B", "KiB", "MiB", "GiB", "TiB"];
        let count = self.0;
        let power = (0..units.len() - 1).take_while(|&p| count >> (10 * (p + 1)) > 0).count();
        match power {
            0 => write!(f, "{count} B"),
            _ => write!(f, "{:.2} {}", count as f64 / (1u64 << (10 * power)) as f64, units[power]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn bytes_read_like_in_a_file_manager() {
        let text = [0, 1023, 1536, 5 << 30].map(|count| Bytes(count).to_string());
        assert_eq!(text, ["0 B", "1023 B", "1.50 KiB", "5.00 GiB"]);
    }
}
