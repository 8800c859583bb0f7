//! `reseed models`: locations of model files, and one error line for missing files.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use crate::common::{Lab, Outcome, outcome, slashes};
use reseed_media::Size;
use serde_json::Value;

const DIT: (&str, u64) = ("seedvr2_ema_3b_fp16.safetensors", 6_783_018_808);
const VAE: (&str, u64) = ("ema_vae_fp16.safetensors", 501_324_814);
const TEXT: (&str, u64) = ("pos_emb.pt", 595_100);

/// A command that finds only the models in the temporary folder.
fn command(lab: &Lab, args: &str) -> Command {
    let mut command = lab.command(args);
    command.env("HOME", lab.path("home")).env("USERPROFILE", lab.path("home"));
    command.env("RESEED_MODELS", lab.path("own")).env("HF_HOME", lab.path("hf"));
    for name in ["HF_HUB_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE", "COMFYUI_PATH"] {
        command.env_remove(name);
    }
    command
}

fn run(lab: &Lab, args: &str) -> Outcome {
    outcome(command(lab, args))
}

/// Creates a sparse file of the right length.
fn put(lab: &Lab, path: &str, (name, bytes): (&str, u64)) {
    fs::create_dir_all(lab.path(path)).unwrap();
    File::create(lab.path(path).join(name)).unwrap().set_len(bytes).unwrap();
}

#[test]
fn models_are_listed_with_their_paths() {
    let lab = Lab::new();
    put(&lab, "home/ComfyUI/models/SEEDVR2", DIT);
    let outcome = run(&lab, "models list");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let path = slashes(lab.path("home/ComfyUI/models/SEEDVR2").join(DIT.0).to_str().unwrap());
    assert!(slashes(&outcome.text()).contains(&format!("6.32 GiB  {}, 3B, 16 bits: {path}", DIT.0)));
    assert!(
        outcome.text().lines().filter(|line| line.ends_with(": not on this machine")).count() >= 11,
        "{}",
        outcome.text()
    );

    let events = run(&lab, "models list --json").events();
    let dit = events.iter().find(|event| event["name"] == "3b").unwrap();
    assert_eq!((dit["bytes"].as_u64(), dit["path"].as_str().map(slashes)), (Some(DIT.1), Some(path)));
    let (embedded, public): (Vec<&Value>, Vec<&Value>) = events.iter().partition(|event| event["embedded"] == true);
    assert!(public.iter().all(|event| event["sha256"].as_str().unwrap().len() == 64));
    assert_eq!(embedded.iter().map(|event| &event["name"]).collect::<Vec<_>>(), ["nano", "nano-sharp"]);
    for name in ["nano", "nano-sharp"] {
        let outcome = run(&lab, &format!("models pull {name}"));
        assert_eq!(outcome.code, Some(4));
        let expected = format!("{name}: this model is embedded and has no files");
        assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
    }
}

#[test]
fn paths_are_printed_only_when_all_files_exist() {
    let lab = Lab::new();
    put(&lab, "own", DIT);
    let outcome = run(&lab, "models path 3b");
    assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(4), 1));
    assert!(
        outcome.stderr.contains(
            "ema_vae_fp16.safetensors: not on this machine; run `reseed models pull 3b`, or put the file into"
        )
    );
    put(&lab, "hf/hub/models--numz--SeedVR2_comfyUI/snapshots/any", VAE);
    put(&lab, "home/ComfyUI/custom_nodes/seedvr2_videoupscaler", TEXT);
    let outcome = run(&lab, "models path seedvr2_ema_3b_fp16");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let names: Vec<String> =
        outcome.text().lines().map(|line| line.rsplit(['/', '\\']).next().unwrap().into()).collect();
    assert_eq!(names, [DIT.0, VAE.0, TEXT.0]);
}

#[test]
fn a_job_searches_the_files_of_its_model() {
    let lab = Lab::new();
    lab.write_frames("in.png", Size { h: 16, w: 16 }, 1);
    let outcome = run(&lab, "image in.png out.png --model 3b");
    assert_eq!(outcome.code, Some(4));
    assert!(outcome.stderr.contains("seedvr2_ema_3b_fp16.safetensors: not on this machine"), "{}", outcome.stderr);
    [DIT, VAE, TEXT].into_iter().for_each(|file| put(&lab, "own", file));
    // The files exist, and their content is not safetensors.
    let outcome = run(&lab, "image in.png out.png --model 3b");
    assert_eq!(outcome.code, Some(4));
    assert!(
        slashes(&outcome.stderr).contains("own/") && outcome.stderr.contains("not a safetensors file"),
        "{}",
        outcome.stderr
    );
    let outcome = run(&lab, "image in.png out.png --model 5b");
    assert!(
        outcome.stderr.contains("5b: no such file or folder and no such model; the models are nano, nano-sharp, 3b,"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn verify_rejects_a_file_with_a_wrong_hash() {
    let lab = Lab::new();
    assert_eq!(run(&lab, "models verify").code, Some(0));
    put(&lab, "own", TEXT);
    let outcome = run(&lab, "models verify");
    assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(4), 1));
    assert!(outcome.stderr.contains("pos_emb.pt: its SHA-256 is not the published one"), "{}", outcome.stderr);
    assert!(run(&lab, "models verify 3b").stderr.contains("seedvr2_ema_3b_fp16.safetensors: not on this machine"));
}

#[test]
fn verify_reports_that_there_is_nothing() {
    let lab = Lab::new();
    let outcome = run(&lab, "models verify");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    assert_eq!(outcome.text(), "no model files on this machine; `reseed models pull 3b` downloads some\n");
    let events = run(&lab, "models verify --json").events();
    assert_eq!(events, [serde_json::json!({"event": "done", "command": "models verify", "files": 0})]);
}

#[test]
fn pull_offline_reports_which_file_to_put_where() {
    let lab = Lab::new();
    let mut offline = command(&lab, "models pull 3b");
    offline.env("HF_HUB_OFFLINE", "1");
    let outcome = outcome(offline);
    assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(4), 1));
    let put = format!("put {} (6.32 GiB) into {}", DIT.0, lab.path("own").display());
    assert!(outcome.stderr.contains("HF_HUB_OFFLINE is set") && outcome.stderr.contains(&put), "{}", outcome.stderr);
    assert!(!lab.path("hf").exists() && !lab.path("own").exists());
}

#[test]
fn pull_downloads_from_hf_endpoint_and_checks_the_hash() {
    let lab = Lab::new();
    [DIT, VAE].into_iter().for_each(|file| put(&lab, "own", file));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
        let request: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", TEXT.1).unwrap();
        stream.write_all(&vec![7; TEXT.1 as usize]).unwrap();
        request[0].clone()
    });
    let mut pull = command(&lab, "models pull 3b --json");
    pull.env("HF_ENDPOINT", &endpoint);
    let outcome = outcome(pull);
    let request_line = server.join().unwrap();
    let path = "/ByteDance-Seed/SeedVR2-3B/resolve/37255ff8cccfb01071b87f635a5948ca8d53117c/pos_emb.pt";
    assert_eq!(request_line, format!("GET {path} HTTP/1.1"));
    assert_eq!(outcome.code, Some(4));
    assert!(outcome.stderr.contains("its SHA-256 is ") && outcome.stderr.lines().count() == 1, "{}", outcome.stderr);
    let events = outcome.events();
    let pulled: Vec<&str> =
        events.iter().filter(|e| e["event"] == "pulled").map(|e| e["file"].as_str().unwrap()).collect();
    assert_eq!(pulled, [DIT.0, VAE.0]);
    let last = events.iter().rfind(|event| event["event"] == "progress").unwrap();
    assert_eq!((last["file"].as_str(), last["bytes"].as_u64()), (Some(TEXT.0), Some(TEXT.1)));
}
