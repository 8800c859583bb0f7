//! Single frames of inputs and results.
#![allow(clippy::unwrap_used)]

use reseed::media::{Frame, open};
use serde_json::json;

use crate::common::{Lab, job};

/// All frames of a file of the root.
fn frames(lab: &Lab, name: &str) -> Vec<Frame> {
    let mut source = open(&lab.file(name)).unwrap();
    std::iter::from_fn(|| source.next().unwrap()).collect()
}

/// The input of a job at the size of its result, as a preview shows it.
fn previewed(lab: &Lab, body: serde_json::Value) -> Frame {
    let preview = lab.post("/v1/previews", body).json();
    lab.image(preview["input"].as_str().unwrap_or_else(|| panic!("{preview}")))
}

#[test]
fn both_sides_of_a_result_show_the_same_frame() {
    let lab = Lab::new();
    lab.clip("in.y4m", 12);
    let id = lab.accept(job("in.y4m", "out.y4m"));
    lab.wait_done(&id);
    let results = frames(&lab, "out.y4m");
    for (at, number) in [("0", 0), ("0.28", 7), ("0.30", 7), ("0.48", 11), ("99", 11)] {
        let side = |side: &str| lab.image(&format!("/v1/jobs/{id}/frames/{side}?at={at}"));
        assert!(side("after") == results[number], "{at}");
        let body = json!({"input": "in.y4m", "frame": number, "settings": {"scale": 2}});
        assert!(side("before") == previewed(&lab, body), "{at}");
    }
    let small = lab.image(&format!("/v1/jobs/{id}/frames/after?at=0&width=10"));
    assert_eq!(small.size.to_string(), "10x10");
    lab.get(&format!("/v1/jobs/{id}/frames/beside?at=0")).assert_problem(404, "not-found");
    lab.get(&format!("/v1/jobs/{id}/frames/after?at=-1")).assert_problem(422, "usage");
    lab.get("/v1/jobs/none/frames/after?at=0").assert_problem(404, "not-found");
}

#[test]
fn frames_of_a_video_are_found_by_time() {
    let lab = Lab::new();
    let source = "-f lavfi -i testsrc2=size=16x16:rate=10:duration=6 -pix_fmt yuv420p -g 12";
    if !lab.ffmpeg(source, "in.mp4") {
        return;
    }
    let inputs = frames(&lab, "in.mp4");
    for (at, number) in [("0", 0), ("3.1", 31), ("5.9", 59), ("77", 59)] {
        assert!(lab.image(&format!("/v1/inputs/frame?input=in.mp4&at={at}")) == inputs[number], "{at}");
    }
    assert_eq!(lab.image("/v1/inputs/frame?input=in.mp4&width=8").size.to_string(), "8x8");
    assert_eq!(lab.image("/v1/inputs/frame?input=in.mp4&width=800").size.to_string(), "16x16");
    // A part that starts between two frames.
    let settings = json!({"start": 2.25, "end": 5, "codec": "ffv1", "scale": 2});
    let id = lab.accept(json!({"input": "in.mp4", "output": "out.mkv", "settings": settings}));
    lab.wait_done(&id);
    let results = frames(&lab, "out.mkv");
    for (at, number) in [("0", 0), ("1.5", 15), ("2.6", 26)] {
        let side = |side: &str| lab.image(&format!("/v1/jobs/{id}/frames/{side}?at={at}"));
        assert!(side("after") == results[number], "{at}");
        let body = json!({"input": "in.mp4", "frame": number, "settings": settings});
        assert!(side("before") == previewed(&lab, body), "{at}");
    }
}

#[test]
fn a_job_that_is_not_done_has_no_result_to_compare() {
    let lab = Lab::new();
    lab.clip("in.y4m", 200);
    let id = lab.accept(job("in.y4m", "out.y4m"));
    lab.get(&format!("/v1/jobs/{id}/frames/after?at=0")).assert_problem(409, "conflict");
    assert_eq!(lab.image(&format!("/v1/jobs/{id}/frames/before?at=0")).size.to_string(), "32x32");
}
