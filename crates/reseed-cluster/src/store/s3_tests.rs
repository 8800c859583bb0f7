//! The store over HTTP, with a small S3 server. `just cluster` uses a complete one.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::*;

/// A request: method, path with query, headers, body.
type Request = (String, String, HashMap<String, String>, Vec<u8>);

fn request(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let line = |stream: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        Some(line.trim_end().to_owned())
    };
    let first = line(stream)?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = HashMap::new();
    while let Some((name, value)) = line(stream)?.split_once(": ") {
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((method, path, headers, body))
}

/// The answer of S3: status, further headers, body.
fn answer(objects: &mut HashMap<String, Vec<u8>>, (method, path, headers, body): Request) -> (u16, String, Vec<u8>) {
    let (key, query) = path.split_once('?').unwrap_or((&path, ""));
    let (key, xml) = (key.to_owned(), |text: &str| (200, String::new(), text.as_bytes().to_vec()));
    let part = |number: &str| format!("{key}#{number}");
    match (method.as_str(), query) {
        ("POST", query) if query.starts_with("uploads") => {
            xml("<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>")
        }
        ("PUT", query) if query.contains("partNumber=") => {
            let number = query.split('&').find_map(|pair| pair.strip_prefix("partNumber=")).unwrap();
            objects.insert(part(number), body);
            (200, "ETag: \"part\"\r\n".into(), Vec::new())
        }
        ("POST", _) => {
            let parts: Vec<u8> = (1..).map_while(|i: usize| objects.remove(&part(&i.to_string()))).flatten().collect();
            objects.insert(key, parts);
            xml("<CompleteMultipartUploadResult><ETag>\"whole\"</ETag></CompleteMultipartUploadResult>")
        }
        ("PUT", _) if headers.contains_key("if-none-match") && objects.contains_key(&key) => {
            (412, String::new(), b"<Error><Code>PreconditionFailed</Code></Error>".to_vec())
        }
        ("PUT", _) => {
            objects.insert(key, body);
            (200, "ETag: \"new\"\r\n".into(), Vec::new())
        }
        _ => match objects.get(&key) {
            None => (404, String::new(), b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
            Some(content) => {
                let range = headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
                let bound = |text: &str| text.parse::<usize>().unwrap();
                let (start, end) = range.map_or((0, content.len() - 1), |(start, end)| (bound(start), bound(end)));
                let more = format!(
                    "ETag: \"it\"\r\nLast-Modified: Tue, 17 Nov 2026 06:00:00 GMT\r\n\
                     Content-Range: bytes {start}-{end}/{}\r\n",
                    content.len()
                );
                (if range.is_some() { 206 } else { 200 }, more, content[start..=end].to_vec())
            }
        },
    }
}

/// Serves a bucket; returns its address.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut objects = HashMap::new();
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            let Some(asked) = request(&mut stream) else { continue };
            let head = asked.0 == "HEAD";
            let (status, more, body) = answer(&mut objects, asked);
            let body = if head { &[][..] } else { &body };
            let length = if head {
                more.rsplit_once('/').map_or("0", |(_, size)| size.trim()).to_owned()
            } else {
                body.len().to_string()
            };
            let text = format!("HTTP/1.1 {status} OK\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n");
            stream.get_mut().write_all(&[text.as_bytes(), body].concat()).unwrap();
        }
    });
    address
}

#[test]
fn objects_in_s3_are_created_once_read_in_pieces_and_replaced() {
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let settings = [
        setting("AWS_ENDPOINT", &serve()),
        setting("AWS_ALLOW_HTTP", "true"),
        setting("AWS_REGION", "us-east-1"),
        setting("AWS_ACCESS_KEY_ID", "key"),
        setting("AWS_SECRET_ACCESS_KEY", "secret"),
        setting("HOME", "/root"),
    ];
    let url = Url::parse("s3://bucket/jobs/tape.json").unwrap();
    let (objects, path) = open(&url, &settings).unwrap();
    assert_eq!(path.as_ref(), "jobs/tape.json");
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let store = Store { objects, folder: ObjectPath::from("jobs"), name: "s3://bucket/jobs/".into(), runtime };

    assert_eq!(store.read("a/b").unwrap(), None);
    let content: Vec<u8> = (0..PIECE + 5).map(|i| (i * 3) as u8).collect();
    assert!(store.create("a/b", content.clone()).unwrap());
    assert!(!store.create("a/b", b"other".to_vec()).unwrap());
    assert_eq!(store.read("a/b").unwrap(), Some(content.clone()));
    let folder = temp_dir::TempDir::new().unwrap();
    let file = folder.path().join("copy");
    store.download("a/b", &file).unwrap();
    store.upload(&file, "out.mkv").unwrap();
    assert_eq!(store.read("out.mkv").unwrap(), Some(content));
}
