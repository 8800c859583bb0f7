//! The machine: devices, models and what the server can do.
#![allow(clippy::unwrap_used)]

use std::fs;

use reseed::Settings;
use reseed_server::{Config, Error, Limits, Server};
use serde_json::{Value, json};

use crate::common::{Lab, expected, job};

#[test]
fn the_server_describes_itself() {
    let lab = Lab::new();
    let found = lab.get("/v1/capabilities").json();
    let device = &found["devices"][0];
    assert_eq!((&device["name"], &device["kind"], &device["state"]), (&json!("cpu"), &json!("cpu"), &json!("idle")));
    assert!(!device["description"].as_str().unwrap().is_empty());
    #[cfg(target_os = "linux")]
    assert!(device["free_bytes"].as_u64().unwrap() <= device["memory_bytes"].as_u64().unwrap());
    assert_eq!((&found["sign_in"], &found["model"]), (&json!(true), &json!("formula:tiny")));
    assert_eq!(found["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(found["ffmpeg"]["found"], reseed::media::ffmpeg_path().is_ok());
    assert_eq!(found["roots"], json!([lab.path("root")]));
    assert_eq!(found["limits"]["upload_bytes"], Limits::default().upload);
}

#[test]
fn several_devices_run_jobs_at_the_same_time() {
    let lab = Lab::with_devices(Limits::default(), 2);
    lab.clip("in.y4m", 150);
    let ids = ["a.y4m", "b.y4m", "c.y4m"].map(|output| lab.accept(job("in.y4m", output)));
    let states =
        |jobs: &Value, state: &str| jobs.as_array().unwrap().iter().filter(|job| job["state"] == state).count();
    // The third job waits for one of the others.
    let both = lab.wait(&ids[1], "running beside the first", |job| job["state"] != "queued");
    assert_eq!(both["state"], "running");
    let jobs = lab.get("/v1/jobs").json();
    assert_eq!((states(&jobs["jobs"], "running"), states(&jobs["jobs"], "queued")), (2, 1), "{jobs}");
    let devices = lab.get("/v1/capabilities").json();
    assert!(devices["devices"].as_array().unwrap().iter().all(|device| device["state"] == "busy"), "{devices}");
    ids.iter().for_each(|id| drop(lab.wait_done(id)));
    let expected = expected(&lab.file("in.y4m"), Settings::default());
    assert!(["a.y4m", "b.y4m", "c.y4m"].iter().all(|name| fs::read(lab.file(name)).unwrap() == expected));
}

#[test]
fn one_gpu_cannot_be_two_devices() {
    let folder = temp_dir::TempDir::new().unwrap();
    let mut config = Config::new("127.0.0.1:0".parse().unwrap(), folder.path());
    config.devices = ["cpu", "cuda", "cuda:0"].map(String::from).to_vec();
    assert!(matches!(Server::bind(config), Err(Error::DeviceTwice { name }) if name == "cuda:0"));
}

#[test]
fn models_say_what_they_need() {
    let lab = Lab::new();
    let models = lab.get("/v1/models").json();
    let named = |name: &str| models["models"].as_array().unwrap().iter().find(|model| model["name"] == name).unwrap();
    assert_eq!((&named("nano")["installed"], &named("nano")["missing_bytes"]), (&json!(true), &json!(0)));
    assert_eq!(named("formula:tiny")["default"], true);
    let large = named("7b");
    assert!(large["bytes"].as_u64().unwrap() > 16_000_000_000 && large["download"].is_null());
    assert_eq!(large["installed"].as_bool().unwrap(), large["missing_bytes"] == 0);
    for method in ["POST", "DELETE"] {
        lab.send(method, "/v1/models/5b", &[], b"").assert_problem(422, "model");
        assert_eq!(lab.send(method, "/v1/models/..%2f3b", &[], b"").status, 422);
    }
    lab.send("DELETE", "/v1/models/7b", &[], b"").assert_problem(409, "conflict");
}
