//! `reseed serve` as a process: signals, crashes and wrong options. Its API is tested in its own crate.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use reseed_media::Size;
use serde_json::Value;

use crate::common::Lab;

const SIZE: Size = Size { h: 16, w: 16 };
/// An upper guard for everything that a test waits for.
const GUARD: Duration = Duration::from_secs(120);
const OPTIONS: &str = "--bind 127.0.0.1:0 --data data --root . --model formula:tiny --device cpu --threads 1 --json";

/// A server of its own process.
struct Process {
    child: Child,
    address: String,
    token: String,
}

impl Process {
    fn start(lab: &Lab) -> Process {
        let mut child = lab.command(&format!("serve {OPTIONS}")).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        assert_eq!(event["event"], "serving");
        let address = event["address"].as_str().unwrap().to_owned();
        assert!(event["url"].as_str().unwrap().starts_with(&format!("http://{address}/login?code=")));
        let token = fs::read_to_string(lab.path("data/token")).unwrap().trim().to_owned();
        Process { child, address, token }
    }

    /// The body of an answer.
    fn request(&self, method: &str, path: &str, body: &str) -> Value {
        let Process { address, token, .. } = self;
        let mut stream = TcpStream::connect(address).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
    }

    fn accept(&self, output: &str) -> String {
        let body = format!("{{\"input\": \"in.y4m\", \"output\": \"{output}\", \"settings\": {{\"batch_size\": 5}}}}");
        self.request("POST", "/v1/jobs", &body)["id"].as_str().unwrap().to_owned()
    }

    fn wait(&self, id: &str, condition: impl Fn(&Value) -> bool) {
        let start = Instant::now();
        loop {
            let job = self.request("GET", &format!("/v1/jobs/{id}"), "");
            if condition(&job) {
                return;
            }
            assert!(job["state"] != "failed" && start.elapsed() < GUARD, "{job}");
            sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    fn ended(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn accepted_jobs_survive_a_killed_server_and_give_the_bytes_of_the_command_line() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", SIZE, 60);
    lab.succeed("upscale in.y4m expected.y4m --model formula:tiny --device cpu");
    let expected = fs::read(lab.path("expected.y4m")).unwrap();
    let mut server = Process::start(&lab);
    let ids = ["a.y4m", "b.y4m"].map(|output| server.accept(output));
    for _ in 0..2 {
        server.wait(&ids[0], |job| job["progress"]["saved"].as_u64().unwrap() > 0);
        server.signal("-KILL");
        assert!(!server.ended().success());
        server = Process::start(&lab);
    }
    ids.iter().for_each(|id| server.wait(id, |job| job["state"] == "done"));
    assert!(["a.y4m", "b.y4m"].iter().all(|name| fs::read(lab.path(name)).unwrap() == expected));
    assert_eq!(lab.names(), ["a.y4m", "b.y4m", "data", "expected.y4m", "in.y4m"]);
}

#[test]
fn a_signal_ends_the_server_and_its_jobs_continue_later() {
    for signal in ["-TERM", "-INT"] {
        let lab = Lab::new();
        lab.write_frames("in.y4m", SIZE, 60);
        let mut server = Process::start(&lab);
        let id = server.accept("out.y4m");
        server.wait(&id, |job| job["progress"]["saved"].as_u64().unwrap() > 0);
        server.signal(signal);
        assert!(server.ended().success(), "{signal}");
        let server = Process::start(&lab);
        server.wait(&id, |job| job["state"] == "done");
        assert_eq!(lab.names(), ["data", "in.y4m", "out.y4m"]);
    }
}

#[test]
fn wrong_options_are_refused() {
    let lab = Lab::new();
    for (options, code, reason) in [
        ("--bind 0.0.0.0:0 --no-token --data data", 2, "leave out --no-token"),
        ("--bind 127.0.0.1:0 --token secret --data data", 2, "at least 16"),
        ("--bind 127.0.0.1:0 --root missing --data data", 2, "--root"),
        ("--bind 127.0.0.1:0 --device cpu --device cpu --data data", 2, "twice"),
        ("--bind 127.0.0.1:0 --model 5b --data data", 4, "5b"),
        ("--bind nowhere --data data", 2, "nowhere"),
    ] {
        let outcome = lab.run(&format!("serve {options}"));
        assert_eq!(outcome.code, Some(code), "{options}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(reason), "{options}: {}", outcome.stderr);
    }
    let _first = Process::start(&lab);
    let second = lab.run(&format!("serve {OPTIONS}"));
    assert!(second.code == Some(1) && second.text().contains("another server"), "{second:?}");
}
