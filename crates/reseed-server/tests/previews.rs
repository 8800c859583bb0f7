//! Previews.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use reseed::media::{Frame, decode, open};
use reseed::{Session, Settings};
use serde_json::json;

use crate::common::{Lab, Reply, expected, job};

fn image(reply: &Reply) -> Frame {
    assert_eq!(reply.header("content-type"), "image/png");
    decode(&reply.bytes, Path::new("preview.png")).unwrap()
}

#[test]
fn a_preview_has_the_pixels_of_the_job() {
    let lab = Lab::new();
    lab.clip("in.y4m", 12);
    let reply = lab.post("/v1/previews", json!({"input": "in.y4m", "frame": 7, "settings": {"scale": 2}}));
    assert_eq!(reply.status, 201, "{}", String::from_utf8_lossy(&reply.bytes));
    let preview = reply.json();
    assert_eq!((&preview["frame"], &preview["width"], &preview["height"]), (&json!(7), &json!(32), &json!(32)));
    let output = image(&lab.get(preview["output"].as_str().unwrap()));
    assert_eq!(image(&lab.get(preview["input"].as_str().unwrap())).size.to_string(), "32x32");
    let session = Session::builder().model("formula:tiny").device("cpu").threads(1).open().unwrap();
    let mut source = open(&lab.file("in.y4m")).unwrap();
    let frames: Vec<Frame> = std::iter::from_fn(|| source.next().unwrap()).collect();
    let whole = session.upscale_frames(frames, &Settings::default(), &mut ()).unwrap();
    assert!(output == whole[7]);
    lab.get("/v1/previews/none/output").assert_problem(404, "not-found");
}

#[test]
fn a_preview_runs_between_batches_of_a_job() {
    let lab = Lab::new();
    lab.clip("long.y4m", 150);
    lab.clip("in.y4m", 9);
    let id = lab.accept(job("long.y4m", "out.y4m"));
    lab.wait(&id, "begun", |job| job["progress"]["done"].as_u64().unwrap() > 0);
    let reply = lab.post("/v1/previews", json!({"input": "in.y4m", "at": "0:00:00.1"}));
    assert_eq!((reply.status, &reply.json()["frame"]), (201, &json!(2)));
    assert_ne!(lab.job(&id)["state"], "done", "the clip is too short to be interrupted");
    lab.wait_done(&id);
    assert!(fs::read(lab.file("out.y4m")).unwrap() == expected(&lab.file("long.y4m"), Settings::default()));
}

#[test]
fn wrong_previews_are_refused() {
    let lab = Lab::new();
    lab.clip("in.y4m", 9);
    let post = |body| lab.post("/v1/previews", body);
    post(json!({"input": "in.y4m"})).assert_problem(422, "usage");
    post(json!({"input": "in.y4m", "frame": 1, "at": 1})).assert_problem(422, "usage");
    post(json!({"input": "in.y4m", "frame": 99})).assert_problem(422, "usage");
    post(json!({"input": "../in.y4m", "frame": 0})).assert_problem(422, "usage");
}
