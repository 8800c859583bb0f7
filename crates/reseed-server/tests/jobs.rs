//! Jobs from acceptance to result.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::time::Duration;

use reseed::Settings;
use reseed_server::Limits;
use serde_json::json;

use crate::common::{Lab, expected, job};

#[test]
fn the_result_of_a_job_is_that_of_the_library() {
    let lab = Lab::new();
    lab.clip("in.y4m", 12);
    let id = lab.accept(job("in.y4m", "out.y4m"));
    let done = lab.wait_done(&id);
    assert_eq!(done["progress"]["done"], 12);
    assert_eq!((&done["input_size"], &done["output_size"]), (&json!([16, 16]), &json!([32, 32])));
    let expected = expected(&lab.file("in.y4m"), Settings::default());
    assert!(fs::read(lab.file("out.y4m")).unwrap() == expected);
    let path = format!("/v1/jobs/{id}/result");
    let whole = lab.get(&path);
    assert!(whole.status == 200 && whole.bytes == expected);
    assert!(whole.header("content-disposition").contains("out.y4m"));
    let part = lab.send("GET", &path, &[("range", "bytes=100-299")], b"");
    assert!(part.status == 206 && part.bytes == expected[100..300]);
    assert_eq!(part.header("content-range"), format!("bytes 100-299/{}", expected.len()));
    assert_eq!(lab.send("GET", &path, &[("range", "bytes=999999999-")], b"").status, 416);
}

#[test]
fn a_job_without_an_output_has_a_result_until_it_is_removed() {
    let lab = Lab::new();
    lab.clip("in.y4m", 2);
    let id = lab.accept(json!({"input": "in.y4m"}));
    lab.wait_done(&id);
    let path = format!("/v1/jobs/{id}/result");
    assert!(lab.get(&path).bytes == expected(&lab.file("in.y4m"), Settings::default()));
    assert_eq!(lab.send("DELETE", &format!("/v1/jobs/{id}"), &[], b"").status, 204);
    lab.get(&path).assert_problem(404, "not-found");
    assert!(fs::read_dir(lab.path("data/results")).unwrap().next().is_none());
}

#[test]
fn a_repeated_key_gives_the_same_job() {
    let lab = Lab::new();
    lab.clip("in.y4m", 2);
    let send = |body: &str| {
        let headers = [("content-type", "application/json"), ("idempotency-key", "tape 1")];
        lab.send("POST", "/v1/jobs", &headers, body.as_bytes())
    };
    let body = job("in.y4m", "out.y4m").to_string();
    let (first, second) = (send(&body), send(&body));
    assert_eq!((first.status, second.status), (202, 202));
    assert_eq!(first.json()["id"], second.json()["id"]);
    assert_eq!((first.header("idempotency-replayed"), second.header("idempotency-replayed")), ("", "true"));
    send(&job("in.y4m", "other.y4m").to_string()).assert_problem(422, "key");
    lab.wait_done(first.json()["id"].as_str().unwrap());
    assert_eq!(send(&body).json()["id"], first.json()["id"]);
    assert_eq!(lab.get("/v1/jobs").json()["jobs"].as_array().unwrap().len(), 1);
}

#[test]
fn a_job_is_paused_resumed_cancelled_and_retried() {
    let lab = Lab::new();
    lab.clip("in.y4m", 80);
    let id = lab.accept(job("in.y4m", "out.y4m"));
    let act = |verb: &str| lab.post(&format!("/v1/jobs/{id}/{verb}"), json!({}));
    let begun = |job: &serde_json::Value| job["progress"]["done"].as_u64().unwrap() > 0;
    lab.wait(&id, "begun", begun);
    assert_eq!(act("pause").json()["state"], "paused");
    lab.wait(&id, "stopped", |job| job["stopping"] == false);
    assert!(!lab.file("out.y4m").exists());
    act("retry").assert_problem(409, "conflict");
    assert_eq!(act("resume").status, 200);
    lab.wait(&id, "running", |job| job["state"] == "running" && begun(job));
    let cancelled = lab.send("DELETE", &format!("/v1/jobs/{id}"), &[], b"");
    assert_eq!((cancelled.status, &cancelled.json()["state"]), (200, &json!("cancelled")));
    lab.wait(&id, "stopped", |job| job["stopping"] == false);
    act("pause").assert_problem(409, "conflict");
    // The device is idle and may take it at once.
    let retried = act("retry").json()["state"].clone();
    assert!(["queued", "running"].iter().any(|state| retried == *state), "{retried}");
    lab.wait_done(&id);
    assert!(fs::read(lab.file("out.y4m")).unwrap() == expected(&lab.file("in.y4m"), Settings::default()));
    let left: Vec<_> = fs::read_dir(lab.path("root")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_removed_job_leaves_no_work() {
    let lab = Lab::new();
    lab.clip("in.y4m", 80);
    let id = lab.accept(job("in.y4m", "out.y4m"));
    lab.wait(&id, "saved", |job| job["progress"]["saved"].as_u64().unwrap() > 0);
    let path = format!("/v1/jobs/{id}");
    assert_eq!(lab.send("DELETE", &path, &[], b"").status, 200);
    lab.wait(&id, "stopped", |job| job["stopping"] == false);
    assert_eq!(lab.send("DELETE", &path, &[], b"").status, 204);
    let left: Vec<_> = fs::read_dir(lab.path("root")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["in.y4m"]);
}

#[test]
fn jobs_wait_in_an_order_that_clients_choose() {
    let lab = Lab::new();
    lab.clip("in.y4m", 60);
    lab.clip("short.y4m", 2);
    let first = lab.accept(job("in.y4m", "a.y4m"));
    let [second, third] = ["b.y4m", "c.y4m"].map(|name| lab.accept(job("short.y4m", name)));
    let list = lab.post("/v1/order", json!({"jobs": [third, first]})).json();
    let ids: Vec<_> = list["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [third.as_str(), &first, &second]);
    lab.post("/v1/order", json!({"jobs": ["none"]})).assert_problem(404, "not-found");
    let third = lab.wait_done(&third);
    assert!(third["changed_at"].as_f64() <= lab.wait_done(&second)["changed_at"].as_f64());
}

#[test]
fn a_full_queue_and_taken_outputs_are_refused() {
    let lab = Lab::with(Limits { jobs: 2, ..Limits::default() });
    lab.clip("in.y4m", 200);
    let first = lab.accept(job("in.y4m", "a.y4m"));
    lab.post("/v1/jobs", job("in.y4m", "a.y4m")).assert_problem(409, "conflict");
    fs::write(lab.file("taken.y4m"), "content").unwrap();
    lab.post("/v1/jobs", job("in.y4m", "taken.y4m")).assert_problem(409, "conflict");
    lab.post("/v1/jobs", job("in.y4m", "in.y4m")).assert_problem(422, "usage");
    lab.accept(job("in.y4m", "b.y4m"));
    let full = lab.post("/v1/jobs", job("in.y4m", "c.y4m"));
    full.assert_problem(429, "queue-full");
    assert_eq!(full.header("retry-after"), "60");
    lab.send("DELETE", &format!("/v1/jobs/{first}"), &[], b"");
    lab.accept(job("in.y4m", "c.y4m"));
}

#[test]
fn what_cannot_work_is_refused_before_it_waits() {
    let lab = Lab::new();
    lab.clip("in.y4m", 2);
    fs::write(lab.file("notes.txt"), "no video").unwrap();
    fs::write(lab.file("cut.y4m"), "YUV4MPEG2 W16 H16").unwrap();
    for (body, status, kind) in [
        (json!({"input": "missing.y4m"}), 422, "usage"),
        (json!({"input": "cut.y4m"}), 422, "input"),
        (json!({"input": "notes.txt"}), 422, "input"),
        (json!({}), 422, "usage"),
        (json!({"input": "in.y4m", "upload": "ab"}), 422, "usage"),
        (json!({"upload": "ab"}), 422, "usage"),
        (json!({"input": "in.y4m", "setting": {}}), 422, "usage"),
        (json!({"input": "in.y4m", "settings": {"scale": 1e9}}), 422, "usage"),
        (json!({"input": "in.y4m", "settings": {"sclae": 2}}), 422, "usage"),
        (json!({"input": "in.y4m", "device": "cuda:7"}), 422, "usage"),
        (json!({"input": "in.y4m", "model": "5b"}), 422, "model"),
        (json!([1]), 422, "usage"),
    ] {
        lab.post("/v1/jobs", body).assert_problem(status, kind);
    }
    assert_eq!(lab.get("/v1/jobs").json(), json!({"jobs": []}));
}

#[test]
fn a_failing_job_says_why_and_the_next_one_runs() {
    let lab = Lab::new();
    lab.clip("in.y4m", 60);
    lab.clip("gone.y4m", 2);
    let first = lab.accept(job("in.y4m", "a.y4m"));
    let [second, third] = [("gone.y4m", "b.y4m"), ("in.y4m", "c.y4m")].map(|(from, to)| lab.accept(job(from, to)));
    fs::remove_file(lab.file("gone.y4m")).unwrap();
    lab.wait_done(&first);
    let failed = lab.wait(&second, "failed", |job| job["state"] == "failed");
    assert!(failed["error"]["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{failed}");
    lab.wait_done(&third);
}

/// A program that embeds the server has outputs of its own.
#[test]
fn a_server_that_stops_leaves_other_outputs_of_the_process_alone() {
    let mut lab = Lab::with(Limits { grace: Duration::ZERO, ..Limits::default() });
    lab.clip("in.y4m", 200);
    let mut source = reseed::media::open(&lab.file("in.y4m")).unwrap();
    let mut sink = reseed::media::create(&lab.file("own.y4m"), source.info()).unwrap();
    let id = lab.accept(job("in.y4m", "out.y4m"));
    lab.wait(&id, "started", |job| job["progress"]["done"].as_u64().unwrap() > 0);
    lab.stop();
    while let Some(frame) = source.next().unwrap() {
        sink.write(&frame).unwrap();
    }
    sink.finish().unwrap();
    assert_eq!(fs::read(lab.file("own.y4m")).unwrap(), fs::read(lab.file("in.y4m")).unwrap());
}

#[test]
fn jobs_continue_after_a_restart() {
    let mut lab = Lab::new();
    lab.clip("in.y4m", 80);
    let [first, second] = ["a.y4m", "b.y4m"].map(|name| lab.accept(job("in.y4m", name)));
    lab.wait(&first, "saved", |job| job["progress"]["saved"].as_u64().unwrap() > 0);
    lab.stop();
    assert!(!lab.file("a.y4m").exists());
    lab.start();
    for id in [&first, &second] {
        lab.wait_done(id);
    }
    let expected = expected(&lab.file("in.y4m"), Settings::default());
    assert!(["a.y4m", "b.y4m"].iter().all(|name| fs::read(lab.file(name)).unwrap() == expected));
    lab.stop();
    lab.start();
    assert_eq!(lab.job(&first)["progress"]["done"], 80);
}

#[test]
fn overwriting_survives_a_restart_before_the_first_batch() {
    let mut lab = Lab::new();
    lab.clip("in.y4m", 40);
    fs::write(lab.file("a.y4m"), "old").unwrap();
    let id = lab.accept(json!({"input": "in.y4m", "output": "a.y4m", "overwrite": true}));
    lab.wait(&id, "running", |job| job["state"] != "queued");
    lab.stop();
    lab.start();
    lab.wait_done(&id);
    assert!(fs::read(lab.file("a.y4m")).unwrap() == expected(&lab.file("in.y4m"), Settings::default()));
}

#[test]
fn estimates_and_facts_are_served() {
    let lab = Lab::new();
    lab.clip("in.y4m", 9);
    let estimate = lab.post("/v1/estimate", json!({"input": "in.y4m", "settings": {"scale": 3}})).json();
    assert_eq!((&estimate["frames"], &estimate["output_size"]), (&json!(9), &json!([48, 48])), "{estimate}");
    assert!(estimate["seconds"].as_f64().unwrap() > 0.0 && estimate["host_bytes"].as_u64().unwrap() > 0);
    let models = lab.get("/v1/models").json();
    let own = models["models"].as_array().unwrap().iter().find(|model| model["default"] == true).unwrap();
    assert_eq!(own["name"], "formula:tiny");
    assert!(lab.get("/openapi.json").json()["paths"]["/v1/jobs"]["post"].is_object());
    assert_eq!(lab.get("/health").json(), json!({"status": "ok"}));
    let id = lab.accept(job("in.y4m", "out.y4m"));
    lab.wait_done(&id);
    let metrics = String::from_utf8(lab.get("/metrics").bytes).unwrap();
    assert!(metrics.contains("reseed_jobs{state=\"done\"} 1\n"), "{metrics}");
    assert!(metrics.contains("\nreseed_frames_total 9\n"), "{metrics}");
}

#[test]
fn videos_are_restored_through_ffmpeg() {
    let lab = Lab::new();
    if !lab.ffmpeg("-f lavfi -i testsrc2=size=16x16:rate=5:duration=1 -pix_fmt yuv420p", "in.mp4") {
        return;
    }
    let id = lab.accept(json!({"input": "in.mp4", "settings": {"start": 0.2, "codec": "ffv1"}, "output": "out.mkv"}));
    assert_eq!(lab.wait_done(&id)["progress"]["done"], 4);
    assert!(lab.get(&format!("/v1/jobs/{id}/result")).bytes.starts_with(&[0x1a, 0x45, 0xdf, 0xa3]));
}

#[cfg(unix)]
#[test]
fn the_folder_of_a_result_is_shown() {
    use std::os::unix::fs::PermissionsExt;
    let mut lab = Lab::new();
    lab.clip("in.y4m", 5);
    let id = lab.accept(job("in.y4m", "out.y4m"));
    let show = |lab: &Lab| lab.send("POST", &format!("/v1/jobs/{id}/folder"), &[], b"");
    assert_eq!(lab.get("/v1/capabilities").json()["opens_folders"], false);
    show(&lab).assert_problem(404, "not-found");
    lab.wait_done(&id);
    lab.stop();
    // A program that creates a file in the folder that it gets.
    fs::write(lab.path("opener"), "#!/bin/sh\ntouch \"$1/shown\"\n").unwrap();
    fs::set_permissions(lab.path("opener"), fs::Permissions::from_mode(0o755)).unwrap();
    lab.start();
    assert_eq!(lab.get("/v1/capabilities").json()["opens_folders"], true);
    assert_eq!(show(&lab).status, 204);
    let start = std::time::Instant::now();
    while !lab.file("shown").exists() {
        assert!(start.elapsed().as_secs() < 60, "no folder was shown");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    fs::remove_file(lab.file("out.y4m")).unwrap();
    show(&lab).assert_problem(404, "not-found");
    lab.send("POST", "/v1/jobs/none/folder", &[], b"").assert_problem(404, "not-found");
}
