//! A line of a journal: a JSON object whose last field is a digest of the line and of all lines before it.

use reseed_media::digest;
use serde_json::Value;

/// The digest before the first line.
pub const SEED: u64 = 1;
const FIELD: &str = ",\"digest\":\"";
const END: &str = "\"}\n";

/// An object as a line, and the digest up to its end.
pub fn sealed(content: &Value, before: u64) -> (String, u64) {
    let text = content.to_string();
    let digest = digest(before, text.as_bytes());
    let fields = text.strip_suffix('}').unwrap_or(&text);
    (format!("{fields}{FIELD}{digest:016x}{END}"), digest)
}

/// The object of a line and the digest up to its end; nothing if the line is incomplete or damaged.
pub fn open(line: &[u8], before: u64) -> Option<(Value, u64)> {
    let line = str::from_utf8(line).ok()?;
    let (fields, found) = line.strip_suffix(END)?.rsplit_once(FIELD)?;
    let text = format!("{fields}}}");
    let expected = digest(before, text.as_bytes());
    (found == format!("{expected:016x}")).then_some(())?;
    Some((serde_json::from_str(&text).ok()?, expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_whole_lines_in_their_order_are_opened() {
        let contents = [json!({"a": 1, "digest": "x"}), json!({"b": ["c", 2]})];
        let (first, after) = sealed(&contents[0], SEED);
        let (second, _) = sealed(&contents[1], after);
        assert_eq!(open(first.as_bytes(), SEED), Some((contents[0].clone(), after)));
        assert_eq!(open(second.as_bytes(), after).map(|(value, _)| value), Some(contents[1].clone()));
        assert_eq!(open(second.as_bytes(), SEED), None);
        for end in 0..first.len() {
            assert_eq!(open(&first.as_bytes()[..end], SEED), None);
            let mut damaged = first.clone().into_bytes();
            damaged[end] ^= 4;
            assert_eq!(open(&damaged, SEED), None, "byte {end}");
        }
    }
}
