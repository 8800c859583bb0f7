//! Uploads by tus 1.0.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::net::{Shutdown, TcpStream};

use reseed::Settings;
use reseed_server::Limits;
use serde_json::json;

use crate::common::{Lab, Reply, expected};

const TUS: (&str, &str) = ("tus-resumable", "1.0.0");
const BYTES: (&str, &str) = ("content-type", "application/offset+octet-stream");

impl Lab {
    /// Uploads a file at once and returns its id.
    pub fn upload(&self, content: &[u8], name: &str) -> String {
        let path = self.created(content.len(), name);
        assert_eq!(self.patch(&path, 0, content).status, 204);
        path.rsplit('/').next().unwrap().to_owned()
    }

    fn create(&self, length: usize, name: &str) -> Reply {
        let metadata = format!("filename {}", base64(name.as_bytes()));
        let length = length.to_string();
        self.send("POST", "/v1/uploads", &[TUS, ("upload-length", &length), ("upload-metadata", &metadata)], b"")
    }

    /// Creates an upload and returns its address.
    fn created(&self, length: usize, name: &str) -> String {
        let reply = self.create(length, name);
        assert_eq!((reply.status, reply.header("tus-resumable")), (201, "1.0.0"));
        reply.header("location").to_owned()
    }

    fn patch(&self, path: &str, offset: usize, bytes: &[u8]) -> Reply {
        self.send("PATCH", path, &[TUS, BYTES, ("upload-offset", &offset.to_string())], bytes)
    }

    fn offset(&self, path: &str) -> usize {
        let reply = self.send("HEAD", path, &[TUS], b"");
        assert_eq!(reply.status, 200);
        reply.header("upload-offset").parse().unwrap()
    }

    /// Sends a part of what it announces and breaks the connection.
    fn broken_patch(&self, path: &str, offset: usize, bytes: &[u8]) {
        let server = self.server();
        let mut stream = TcpStream::connect(server.address).unwrap();
        let head = format!(
            "PATCH {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nTus-Resumable: 1.0.0\r\n\
             Content-Type: application/offset+octet-stream\r\nUpload-Offset: {offset}\r\nContent-Length: {}\r\n\r\n",
            server.address,
            server.token,
            bytes.len() + 1000,
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |bytes: &[u8]| {
        let bits = bytes.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - bytes.len()));
        let letter = |i: usize| if i <= bytes.len() { LETTERS[(bits >> (18 - 6 * i)) as usize & 63] } else { b'=' };
        String::from_utf8((0..4).map(letter).collect()).unwrap()
    };
    bytes.chunks(3).map(group).collect()
}

#[test]
fn broken_uploads_continue_and_give_the_same_bytes() {
    let lab = Lab::new();
    lab.clip("clip.y4m", 40);
    let content = fs::read(lab.file("clip.y4m")).unwrap();
    let path = lab.created(content.len(), "clip.y4m");
    let part = content.len() / 11;
    for _ in 0..10 {
        let offset = lab.offset(&path);
        lab.broken_patch(&path, offset, &content[offset..offset + part]);
        // The server notices the end of the connection a moment later.
        while lab.patch(&path, offset + content.len(), b"").status == 423 {}
    }
    let offset = lab.offset(&path);
    assert!(offset > 0 && offset <= 10 * part, "{offset}");
    // A broken request that the server has not noticed yet may still add bytes.
    let last = loop {
        let offset = lab.offset(&path);
        let reply = lab.patch(&path, offset, &content[offset..]);
        if ![409, 423].contains(&reply.status) {
            break reply;
        }
    };
    assert_eq!((last.status, last.header("upload-offset")), (204, content.len().to_string().as_str()));
    let id = path.rsplit('/').next().unwrap();
    assert!(fs::read(lab.path("data/uploads").join(id).join("file/clip.y4m")).unwrap() == content);
    let job = lab.accept(json!({"upload": id}));
    lab.wait_done(&job);
    let result = lab.get(&format!("/v1/jobs/{job}/result"));
    assert!(result.bytes == expected(&lab.file("clip.y4m"), Settings::default()));
    assert!(result.header("content-disposition").ends_with("clip.y4m"));
}

#[test]
fn uploads_survive_a_restart() {
    let mut lab = Lab::new();
    let path = lab.created(6, "a.y4m");
    assert_eq!(lab.patch(&path, 0, b"abc").status, 204);
    lab.stop();
    lab.start();
    assert_eq!(lab.offset(&path), 3);
    assert_eq!(lab.patch(&path, 3, b"def").status, 204);
}

#[test]
fn the_protocol_is_checked() {
    let limits = Limits { uploads: 2, upload: 100, ..Limits::default() };
    let lab = Lab::with(limits);
    let facts = lab.send("OPTIONS", "/v1/uploads", &[], b"");
    assert_eq!((facts.status, facts.header("tus-extension")), (204, "creation,termination"));
    assert_eq!((facts.header("tus-version"), facts.header("tus-max-size")), ("1.0.0", "100"));
    let old = lab.send("POST", "/v1/uploads", &[("tus-resumable", "0.2.2"), ("upload-length", "5")], b"");
    old.assert_problem(412, "upload");
    assert_eq!(old.header("tus-version"), "1.0.0");
    lab.send("POST", "/v1/uploads", &[TUS], b"").assert_problem(400, "upload");
    lab.send("POST", "/v1/uploads", &[TUS, ("upload-length", "-5")], b"").assert_problem(400, "upload");
    lab.create(101, "a.y4m").assert_problem(413, "upload");
    let path = lab.created(10, "a.y4m");
    lab.send("PATCH", &path, &[TUS, ("upload-offset", "0"), ("content-type", "video/mp4")], b"abc")
        .assert_problem(415, "upload");
    assert_eq!(lab.patch(&path, 0, b"abc").status, 204);
    lab.patch(&path, 0, b"abc").assert_problem(409, "upload");
    lab.patch(&path, 3, b"too many bytes").assert_problem(413, "upload");
    assert_eq!(lab.offset(&path), 3);
    let id = path.rsplit('/').next().unwrap();
    lab.post("/v1/jobs", json!({"upload": id})).assert_problem(422, "usage");
    lab.created(10, "b.y4m");
    lab.create(10, "c.y4m").assert_problem(429, "upload");
    assert_eq!(lab.send("DELETE", &path, &[TUS], b"").status, 204);
    lab.send("DELETE", &path, &[TUS], b"").assert_problem(404, "upload");
    lab.created(10, "c.y4m");
    lab.patch("/v1/uploads/..%2f..%2ftoken", 0, b"x").assert_problem(404, "upload");
}
