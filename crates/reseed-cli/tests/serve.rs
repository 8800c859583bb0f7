//! `reseed serve` as a process: signals, crashes, systemd and wrong options. Its API is tested in its own crate.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{sleep, spawn};
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
        Process::of(lab, lab.command(&format!("serve {OPTIONS}")))
    }

    fn of(lab: &Lab, mut command: Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        assert_eq!(event["event"], "serving");
        let address = event["address"].as_str().unwrap().to_owned();
        assert!(event["url"].as_str().unwrap().starts_with(&format!("http://{address}/login?code=")));
        let token = fs::read_to_string(lab.path("data/token")).unwrap().trim().to_owned();
        Process { child, address, token }
    }

    /// A connection with a request on it.
    fn open(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let Process { address, token, .. } = self;
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// The body of an answer.
    fn request(&self, method: &str, path: &str, body: &str) -> Value {
        let mut answer = String::new();
        self.open(method, path, body).read_to_string(&mut answer).unwrap();
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
        // Clients that listen do not keep the server.
        let mut clients: Vec<TcpStream> = (0..50).map(|_| server.open("GET", "/v1/events", "")).collect();
        let mut heads = clients.iter_mut().map(|client| client.read(&mut [0; 12]).unwrap());
        assert!(heads.all(|bytes| bytes > 0));
        server.signal(signal);
        assert!(server.ended().success(), "{signal}");
        let server = Process::start(&lab);
        server.wait(&id, |job| job["state"] == "done");
        assert_eq!(lab.names(), ["data", "in.y4m", "out.y4m"]);
    }
}

#[test]
fn systemd_hears_when_the_server_is_ready_and_when_it_stops() {
    let lab = Lab::new();
    let socket = UnixDatagram::bind(lab.path("notify")).unwrap();
    socket.set_read_timeout(Some(GUARD)).unwrap();
    let mut command = lab.command(&format!("serve {OPTIONS}"));
    command.env("NOTIFY_SOCKET", lab.path("notify"));
    let mut server = Process::of(&lab, command);
    let received = || {
        let mut message = [0; 64];
        let bytes = socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..bytes]).into_owned()
    };
    assert_eq!(received(), "READY=1");
    server.signal("-TERM");
    assert_eq!(received(), "STOPPING=1");
    assert!(server.ended().success());
}

#[test]
fn the_socket_of_systemd_is_used() {
    let lab = Lab::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // The shell becomes the server, which has the socket as its descriptor 3 then.
    let script = "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\" 3<&0 0</dev/null";
    let direct = lab.command(&format!("serve {OPTIONS}"));
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(direct.get_program()).args(direct.get_args());
    command.current_dir(lab.path("")).env("CUDA_VISIBLE_DEVICES", "").stdin(Stdio::from(OwnedFd::from(listener)));
    let server = Process::of(&lab, command);
    assert_eq!(server.address, address);
    assert_eq!(server.request("GET", "/health", "")["status"], "ok");
}

#[test]
fn a_client_that_is_silent_within_its_headers_is_cut_off() {
    let lab = Lab::new();
    let server = Process::of(&lab, lab.command(&format!("serve {OPTIONS} --read-timeout 1")));
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: ").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(!answer.contains(" 200 "), "{answer}");
}

/// A hub that sends the first bytes of every file and then a little at a time.
fn slow_hub() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || {
        for stream in listener.incoming().flatten() {
            spawn(move || send_slowly(stream));
        }
    });
    format!("http://{address}")
}

fn send_slowly(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let from: u64 = lines
        .by_ref()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .find_map(|line| line.to_lowercase().strip_prefix("range: bytes=")?.strip_suffix('-')?.parse().ok())
        .unwrap();
    // The transformer of the model 3b-q4.
    let total = 1_995_344_224u64;
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{}/{total}\r\nContent-Length: {}\r\n\r\n",
        total - 1,
        total - from,
    );
    let mut sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&[0; 1 << 18]));
    while sent.is_ok() {
        sleep(Duration::from_millis(10));
        sent = stream.write_all(&[0; 1 << 12]);
    }
}

#[test]
fn a_download_reports_its_progress_and_can_be_cancelled() {
    let lab = Lab::new();
    let mut command = lab.command(&format!("serve {OPTIONS}"));
    command.env("HF_ENDPOINT", slow_hub()).env("HF_HOME", lab.path("hub")).env_remove("HF_HUB_OFFLINE");
    command.env("RESEED_MODELS", lab.path("models")).env("COMFYUI_PATH", lab.path("none")).env_remove("HF_HUB_CACHE");
    let server = Process::of(&lab, command);
    let mut events = BufReader::new(server.open("GET", "/v1/events", "")).lines().map(Result::unwrap);
    let mut model = || loop {
        // Chunks of the transfer lie between the lines.
        let line = events.next().unwrap();
        let data = line.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok());
        if let Some(data) = data.filter(|data| data["name"] == "3b-q4") {
            break data;
        }
    };
    let begun = server.request("POST", "/v1/models/3b-q4", "");
    assert_eq!((&begun["installed"], &begun["download"]["error"]), (&Value::Bool(false), &Value::Null), "{begun}");
    let progress = loop {
        let event = model();
        if event["download"]["done_bytes"].as_u64().unwrap() > 1 << 18 {
            break event;
        }
    };
    assert_eq!(progress["download"]["state"], "running");
    assert_eq!(progress["download"]["total_bytes"], progress["missing_bytes"]);
    let again = server.request("POST", "/v1/models/3b-q4", "");
    assert_eq!(again["download"]["state"], "running");
    let cancelled = server.request("DELETE", "/v1/models/3b-q4", "");
    assert_eq!(cancelled["download"]["state"], "cancelled", "{cancelled}");
    while model()["download"]["state"] != "cancelled" {}
    // The bytes so far are kept, and the next download continues.
    let resumed = server.request("POST", "/v1/models/3b-q4", "");
    assert!(["waiting", "running"].iter().any(|state| resumed["download"]["state"] == *state), "{resumed}");
    let kept = loop {
        let event = model();
        if event["download"]["state"] == "running" {
            break event["download"]["done_bytes"].as_u64().unwrap();
        }
    };
    assert!(kept >= progress["download"]["done_bytes"].as_u64().unwrap(), "{kept}");
}

#[test]
fn wrong_options_are_refused() {
    let lab = Lab::new();
    for (options, code, reason) in [
        ("--bind 0.0.0.0:0 --no-token --data data", 2, "leave out --no-token"),
        ("--bind 127.0.0.1:0 --token secret --data data", 2, "at least 16"),
        ("--bind 127.0.0.1:0 --root missing --data data", 2, "--root"),
        ("--bind 127.0.0.1:0 --device cuda,cuda:0 --data data", 2, "twice"),
        ("--bind 127.0.0.1:0 --model 5b --data data", 4, "5b"),
        ("--bind 127.0.0.1:0 --read-timeout 0 --data data", 2, "read-timeout"),
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
