#![allow(clippy::unwrap_used)]
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::frame::Mark;
use crate::video::FieldAction;

/// Reports of mutated files that once led to overflows.
const HOSTILE: [&str; 3] = [
    include_str!("../../../tests/data/ffprobe-huge-timestamps.json"),
    include_str!("../../../tests/data/ffprobe-odd-time-base.json"),
    include_str!("../../../tests/data/ffprobe-jumping-timestamps.json"),
];

const KEPT: Decision = Decision { action: FieldAction::Keep, note: None };

/// Values that no healthy report holds.
fn hostile_values() -> Vec<Value> {
    let words = "x nan inf -1 0 1/0 0/1 -1/1 4294967295/1 1/4294967295 4294967295/4294967294 99999999999/1 1e308 \
                 -1:-1:-1 99999999:99:99 9223372036854775807 audio video";
    let words = words.split(' ').map(Value::from);
    let numbers = [json!(-1), json!(0), json!(1.5), json!(1e308), json!(u64::MAX), json!(i64::MIN), json!(32769)];
    words.chain(numbers).chain([json!(null), json!([]), json!({}), json!("")]).collect()
}

/// All places of a value, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), found)),
        Value::Array(all) => {
            all.iter().enumerate().for_each(|(i, value)| places(value, &format!("{at}/{i}"), found));
        }
        _ => {}
    }
}

/// Describes a report, and records its timestamps. What is accepted must be plausible.
fn check(case: &Value) {
    let Some(report) = Report::new(case["facts"].clone()) else { return };
    let frame = case["frame"]["frames"].get(0).cloned().unwrap_or_default();
    let times = [None, Some(Duration::ZERO), Some(Duration::from_secs(3)), Some(Duration::from_micros(1 << 60))];
    for clip in times.iter().flat_map(|start| times.map(|end| Clip { start: *start, end, ..Clip::default() })) {
        let Ok(info) = report.describe("in.mkv".into(), &frame, clip, KEPT) else { continue };
        assert!(info.size.is_plausible() && info.rate.num > 0 && info.rate.den > 0, "{case}");
        assert!(info.frames.is_none_or(|frames| frames <= 1_000_000_000_000), "{:?} frames: {case}", info.frames);
        let Kind::Video(video) = &info.kind else { panic!("{case}") };
        let stamps = case["stamps"].as_array().map_or(&[][..], Vec::as_slice);
        for timestamp in stamps.iter().map(Value::as_i64) {
            video.timeline.push(Mark { timestamp, digest: 0 });
        }
        let times: Vec<i64> = (-40..40).map(|frame| video.timeline.time(frame)).collect();
        assert!(times.is_sorted_by(|a, b| a < b), "{times:?}: {case}");
        let micros = times.iter().map(|time| video.timeline.clock().micros(*time));
        assert!(micros.is_sorted(), "{case}");
    }
}

#[test]
fn hostile_reports_are_refused_or_described_plausibly() {
    for text in HOSTILE {
        let case: Value = serde_json::from_str(text).unwrap();
        check(&case);
        let mut found = Vec::new();
        places(&case, "", &mut found);
        for (place, value) in found.iter().flat_map(|place| hostile_values().into_iter().map(move |v| (place, v))) {
            let mut mutated = case.clone();
            *mutated.pointer_mut(place).unwrap() = value;
            check(&mutated);
        }
    }
}

#[test]
fn a_healthy_report_is_described() {
    let stream = json!({"index": 1, "codec_type": "video", "width": 64, "height": 48, "pix_fmt": "yuv420p",
        "r_frame_rate": "25/1", "avg_frame_rate": "25/1", "time_base": "1/90000", "duration": "4.0"});
    let audio = json!({"index": 0, "codec_type": "audio", "codec_name": "aac"});
    let report = Report::new(json!({"streams": [audio, stream], "format": {"duration": "4.1"}})).unwrap();
    let clip = Clip { end: Some(Duration::from_secs(3)), ..Clip::default() };
    let info = report.describe("in.ts".into(), &Value::Null, clip, KEPT).unwrap();
    assert_eq!((info.size, info.frames, info.rate), (Size { h: 48, w: 64 }, Some(75), Rate { num: 25, den: 1 }));
    let Kind::Video(video) = info.kind else { panic!("a video") };
    assert_eq!((video.index, video.tracks.len()), (1, 1));
}
