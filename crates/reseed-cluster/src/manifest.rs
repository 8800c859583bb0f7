//! What a finished shard consists of.

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// The segments of a finished shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub segments: Vec<SegmentEntry>,
}

/// A segment in the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// Its file name.
    pub name: String,
    /// The SHA-256 of its content.
    pub sha256: String,
}

impl SegmentEntry {
    pub fn new(name: &str, content: &[u8]) -> SegmentEntry {
        SegmentEntry { name: name.into(), sha256: sha256(content) }
    }

    pub fn matches(&self, content: &[u8]) -> bool {
        sha256(content) == self.sha256
    }
}

/// As lower-case hexadecimal digits.
pub fn sha256(content: &[u8]) -> String {
    digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Manifest {
    pub fn to_json(&self) -> String {
        let segments = self.segments.iter().map(|segment| json!({"name": segment.name, "sha256": segment.sha256}));
        format!("{:#}\n", json!({"segments": segments.collect::<Vec<_>>()}))
    }

    /// From JSON; `None` where it is damaged.
    pub fn from_json(text: &[u8]) -> Option<Manifest> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let segment = |value: &Value| {
            let text = |name: &str| value.get(name)?.as_str().map(str::to_owned);
            // A name with a folder would be written outside of the work folder.
            let name = text("name").filter(|name| !name.contains(['/', '\\']) && !name.starts_with('.'))?;
            Some(SegmentEntry { name, sha256: text("sha256")? })
        };
        let segments = value.get("segments")?.as_array()?.iter().map(segment).collect::<Option<_>>()?;
        Some(Manifest { segments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read_back_and_names_no_folders() {
        let manifest = Manifest { segments: vec![SegmentEntry::new("000000-120-0.mkv", b"abc")] };
        assert!(manifest.segments[0].matches(b"abc") && !manifest.segments[0].matches(b"abd"));
        assert_eq!(Manifest::from_json(manifest.to_json().as_bytes()), Some(manifest));
        let hostile = br#"{"segments": [{"name": "../evil", "sha256": ""}]}"#;
        assert_eq!(Manifest::from_json(hostile), None);
    }
}
