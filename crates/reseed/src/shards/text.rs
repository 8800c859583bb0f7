//! Shard plans as JSON.

use std::path::PathBuf;

use reseed_media::{Mark, Size, segments};
use serde_json::{Map, Value, json};

use super::ShardPlan;
use crate::error::{Result, ShardError};
use crate::job::JobRecord;
use crate::models::weights::Parts;

/// Tells these files from others.
const FORMAT: &str = "reseed shards 1";
/// Hexadecimal digits of a digest.
const DIGITS: usize = 16;

impl ShardPlan {
    /// As one JSON object. Digests are one string per segment.
    pub fn to_json(&self) -> String {
        let digests = self.marks.chunks(segments::FRAMES);
        let digests = digests.map(|marks| marks.iter().map(|mark| format!("{:016x}", mark.digest)).collect::<String>());
        let value = json!({
            "format": FORMAT,
            "version": env!("CARGO_PKG_VERSION"),
            "input": self.input,
            "output": self.output,
            "model": self.model,
            "vae": self.parts.vae.as_ref().map(|path| path.to_string_lossy()),
            "text": self.parts.text.as_ref().map(|path| path.to_string_lossy()),
            "dtype": self.dtype.map(|dtype| dtype.to_string()),
            "precision": self.math.to_string(),
            "budget": self.budget,
            "shards": self.shards(),
            "segments_per_shard": self.segments_per_shard,
            "settings": self.record.to_json(),
            "width": self.size.w,
            "height": self.size.h,
            "frames": self.frames,
            "cuts": self.cuts,
            "timestamps": self.marks.iter().map(|mark| mark.timestamp).collect::<Vec<_>>(),
            "digests": digests.collect::<Vec<_>>(),
        });
        format!("{value}\n")
    }

    /// From JSON.
    pub fn from_json(text: &[u8]) -> Result<ShardPlan> {
        let wrong = |reason| ShardError::Plan { reason };
        let value: Value = serde_json::from_slice(text).map_err(|_| wrong("it is no JSON"))?;
        let fields = value.as_object().ok_or_else(|| wrong("it is no JSON object"))?;
        if fields.get("format").and_then(Value::as_str) != Some(FORMAT) {
            return Err(wrong("it has another format").into());
        }
        parse(fields).ok_or_else(|| wrong("a field is missing or damaged").into())
    }
}

fn parse(fields: &Map<String, Value>) -> Option<ShardPlan> {
    let text = |name: &str| fields.get(name)?.as_str().map(str::to_owned);
    let number = |name: &str| usize::try_from(fields.get(name)?.as_u64()?).ok();
    let numbers = |name: &str| fields.get(name)?.as_array().map(Vec::as_slice);
    let dtype = match fields.get("dtype")? {
        Value::Null => None,
        name => Some(name.as_str()?.parse().ok()?),
    };
    let budget = match fields.get("budget")? {
        Value::Null => None,
        bytes => Some(usize::try_from(bytes.as_u64()?).ok()?),
    };
    let file = |name: &str| match fields.get(name)? {
        Value::Null => Some(None),
        path => Some(Some(PathBuf::from(path.as_str()?))),
    };
    let digests: String = numbers("digests")?.iter().map(Value::as_str).collect::<Option<_>>()?;
    let digests = digests.as_bytes().chunks(DIGITS).map(digest).collect::<Option<Vec<u64>>>()?;
    let timestamps =
        numbers("timestamps")?.iter().map(|time| if time.is_null() { Some(None) } else { time.as_i64().map(Some) });
    let timestamps = timestamps.collect::<Option<Vec<_>>>()?;
    let marks: Vec<Mark> =
        timestamps.into_iter().zip(&digests).map(|(timestamp, digest)| Mark { timestamp, digest: *digest }).collect();
    let cuts = numbers("cuts")?.iter().map(|cut| usize::try_from(cut.as_u64()?).ok()).collect::<Option<Vec<_>>>()?;
    let plan = ShardPlan {
        input: text("input")?,
        output: text("output")?,
        model: text("model")?,
        parts: Parts { vae: file("vae")?, text: file("text")? },
        dtype,
        math: text("precision")?.parse().ok()?,
        budget,
        segments_per_shard: number("segments_per_shard").filter(|count| (1..=1 << 20).contains(count))?,
        record: JobRecord::from_json(fields.get("settings")?),
        size: Size { h: number("height")?, w: number("width")? },
        frames: number("frames").filter(|frames| *frames > 0)?,
        cuts,
        marks,
    };
    // Cuts are counted from the start of the lead-in.
    let end = plan.frames + plan.settings().ok()?.lead_in;
    let in_order = plan.cuts.is_sorted_by(|a, b| a < b) && plan.cuts.iter().all(|cut| (1..end).contains(cut));
    (in_order && plan.marks.len() == plan.frames && digests.len() == plan.frames).then_some(plan)
}

fn digest(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok().filter(|digits| digits.len() == DIGITS)?, 16).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use reseed_ops::MathMode;

    use super::*;
    use crate::job::JobSpec;
    use crate::settings::Settings;
    use crate::shards::ShardSettings;

    #[test]
    fn a_plan_is_read_back_and_damaged_ones_are_refused() {
        let folder = temp_dir::TempDir::new().unwrap();
        let input = folder.path().join("in.y4m");
        let mut clip = reseed_media::sample();
        let mut sink = reseed_media::create(&input, clip.info()).unwrap();
        std::iter::from_fn(|| clip.next().unwrap()).for_each(|frame| sink.write(&frame).unwrap());
        sink.finish().unwrap();
        let model = "formula:tiny".to_owned();
        let (math, dtype, budget) = (MathMode::Fast, None, None);
        let shards = ShardSettings { model, vae: None, text: None, dtype, math, budget, segments: 1 };
        let plan = ShardPlan::create(&JobSpec::new(&input, "out.mkv", Settings::default()), shards, &mut ()).unwrap();
        let text = plan.to_json();
        assert_eq!(ShardPlan::from_json(text.as_bytes()).unwrap(), plan);
        for (from, to) in [
            ("\"cuts\":[]", "\"cuts\":[9]"),
            ("\"cuts\":[]", "\"cuts\":[0]"),
            ("\"cuts\":[]", "\"cuts\":[5,4]"),
            ("\"precision\":\"fast\"", "\"precision\":\"slow\""),
            ("\"frames\":9", "\"frames\":10"),
            ("\"segments_per_shard\":1", "\"segments_per_shard\":0"),
            ("\"batch size\"", "\"batch\""),
            ("{", "["),
        ] {
            let damaged = text.replacen(from, to, 1);
            assert_ne!(damaged, text, "{from}");
            assert!(ShardPlan::from_json(damaged.as_bytes()).is_err(), "{to}");
        }
    }
}
