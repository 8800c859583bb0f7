//! Files that clients choose from, presets, and the page.
#![allow(clippy::unwrap_used)]

use std::fs;

use reseed::media::Size;
use reseed::{Settings, Target};
use serde_json::{Value, json};

use crate::common::{Lab, expected, job};

#[test]
fn folders_and_media_under_the_roots_are_listed() {
    let lab = Lab::new();
    lab.clip("in.y4m", 2);
    fs::create_dir(lab.file("tapes")).unwrap();
    fs::write(lab.file("notes.txt"), "text").unwrap();
    let roots = lab.get("/v1/files").json();
    assert_eq!((&roots["path"], &roots["parent"]), (&json!(""), &Value::Null));
    let root = roots["entries"][0]["path"].as_str().unwrap();
    let list = lab.get(&format!("/v1/files?path={root}")).json();
    let names: Vec<_> = list["entries"].as_array().unwrap().iter().map(|entry| &entry["name"]).collect();
    assert_eq!(names, ["tapes", "in.y4m"]);
    let clip = &list["entries"][1];
    let bytes = fs::metadata(lab.file("in.y4m")).unwrap().len();
    assert_eq!((&clip["kind"], &clip["bytes"]), (&json!("video"), &json!(bytes)));
    assert_eq!((&list["parent"], &list["truncated"]), (&json!(""), &json!(false)));
    // Every listed path can be named by a job.
    let input = lab.get(&format!("/v1/inputs?input={}", clip["path"].as_str().unwrap())).json();
    assert_eq!((&input["frames"], &input["size"], &input["fps"]), (&json!(2), &json!([16, 16]), &json!(25.0)));
    assert_eq!((&input["kind"], &input["seconds"], &input["bytes"]), (&json!("video"), &json!(0.08), &json!(bytes)));
}

#[test]
fn presets_are_listed_and_explicit_settings_override_them() {
    let lab = Lab::new();
    lab.clip("in.y4m", 12);
    let presets = lab.get("/v1/presets").json();
    let presets = presets["presets"].as_array().unwrap();
    let named = |name: &str| presets.iter().find(|preset| preset["name"] == name).unwrap();
    assert_eq!(named("4k")["settings"], json!({"resolution": "4k"}));
    assert!(presets.iter().all(|preset| !preset["description"].as_str().unwrap().is_empty()));
    let body = json!({"input": "in.y4m", "preset": "anime"});
    let estimate = lab.post("/v1/estimate", body).json();
    assert_eq!(estimate["output_size"], json!([32, 32]), "{estimate}");
    let settings = json!({"size": "48x32", "crf": null});
    let id = lab.accept(json!({"input": "in.y4m", "output": "out.y4m", "preset": "anime", "settings": settings}));
    let done = lab.wait_done(&id);
    let in_force = json!({"size": "48x32", "color": "wavelet", "batch_size": 9, "overlap": 2});
    assert_eq!((&done["settings"], &done["preset"]), (&in_force, &json!("anime")));
    let batching = reseed::Batching { size: 9, overlap: 2, uniform: false };
    let (color, target) = (Some(reseed::Color::Wavelet), Target::Exact(Size { h: 32, w: 48 }));
    let settings = Settings { target, batching, color, ..Settings::default() };
    assert!(fs::read(lab.file("out.y4m")).unwrap() == expected(&lab.file("in.y4m"), settings));
    lab.post("/v1/jobs", json!({"input": "in.y4m", "preset": "none"})).assert_problem(422, "usage");
}

#[test]
fn the_name_of_an_output_suits_its_codec() {
    let lab = Lab::new();
    lab.clip("in.y4m", 5);
    for (settings, name) in [
        (json!({}), "in.y4m"),
        (json!({"codec": "ffv1"}), "in.mkv"),
        (json!({"codec": "prores"}), "in.mov"),
        (json!({"codec": "hevc"}), "in.mp4"),
    ] {
        let estimate = lab.post("/v1/estimate", json!({"input": "in.y4m", "settings": settings})).json();
        assert_eq!(estimate["output_name"], name, "{estimate}");
    }
}

#[test]
fn the_page_is_served_without_a_token_and_asked_for_again() {
    let lab = Lab::new();
    let host = format!("Host: {}", lab.server().address);
    let get = |path: &str, line: &str| {
        lab.raw(&format!("GET {path} HTTP/1.1\r\n{host}\r\nConnection: close\r\n{line}\r\n\r\n")).to_lowercase()
    };
    let page = get("/", "Accept: */*");
    assert!(page.starts_with("http/1.1 200") && page.contains("content-type: text/html"), "{page}");
    assert!(page.contains("cache-control: no-cache") && page.contains("script-src 'self'"), "{page}");
    let tag = page.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    assert!(get("/", &format!("If-None-Match: {tag}")).starts_with("http/1.1 304"));
    assert!(get("/", "If-None-Match: \"0\"").starts_with("http/1.1 200"));
    assert!(get("/index.html", "Accept: */*").contains("content-type: text/html"));
    for path in ["/Cargo.toml", "/../Cargo.toml", "/%2e%2e/Cargo.toml", "/page/index.html"] {
        assert!(get(path, "Accept: */*").starts_with("http/1.1 401"), "{path}");
    }
    lab.send("POST", "/", &[], b"").assert_problem(405, "method");
    lab.get("/none.js").assert_problem(404, "not-found");
}

#[test]
fn a_job_names_its_files_and_counts_its_frames() {
    let lab = Lab::new();
    lab.clip("in.y4m", 12);
    let id = lab.accept(job("in.y4m", "out.y4m"));
    let done = lab.wait_done(&id);
    assert_eq!((&done["input_name"], &done["output_name"]), (&json!("in.y4m"), &json!("out.y4m")));
    let bytes = |name: &str| json!(fs::metadata(lab.file(name)).unwrap().len());
    assert_eq!((&done["input_bytes"], &done["output_bytes"]), (&bytes("in.y4m"), &bytes("out.y4m")));
    assert_eq!((&done["frame_rate"], &done["duration_seconds"]), (&json!(25.0), &json!(0.48)));
    let progress = &done["progress"];
    assert_eq!((&progress["percent"], &progress["batches_total"]), (&json!(100.0), &json!(3)), "{progress}");
    assert_eq!((&progress["warnings"], &done["error"], &done["is_still"]), (&json!([]), &Value::Null, &json!(false)));
}
