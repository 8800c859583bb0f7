//! Downloads from servers that are slow, silent, endless or wrong. Every one ends soon, with one line.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::download::MinimumRate;
use super::hub::{Hub, Limits};
use super::tests::{Lab, content, file};

/// Bytes of the file.
const TOTAL: usize = 3_000_000;

/// An upper guard for a whole download: no server here may keep it busy for longer.
const GUARD: Duration = Duration::from_secs(60);

/// Limits of seconds instead of minutes. The rate counts over so long a time that a slow machine cannot fall below it.
fn hasty() -> Limits {
    Limits {
        resolve: Duration::from_secs(2),
        connect: Duration::from_secs(2),
        response: Duration::from_secs(1),
        silence: Duration::from_secs(1),
        rate: MinimumRate { bytes: 1000, window: GUARD },
        pause: Duration::from_millis(1),
    }
}

/// What a server does with a connection after it has read the request. It gets the first byte that is asked for.
type Manner = fn(&mut TcpStream, usize) -> std::io::Result<()>;

/// Starts a server that treats every request in the same way, and counts the requests.
fn serve(manner: Manner, limits: Limits) -> (Hub, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hub = Hub::new(format!("http://{}", listener.local_addr().unwrap()), limits);
    let count = Arc::new(AtomicUsize::new(0));
    let requests = count.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            requests.fetch_add(1, Ordering::Relaxed);
            // A client that hangs up ends a connection, not the server.
            thread::spawn(move || stream.and_then(|stream| answer(stream, manner)));
        }
    });
    (hub, count)
}

fn answer(mut stream: TcpStream, manner: Manner) -> std::io::Result<()> {
    let lines = BufReader::new(stream.try_clone()?).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let range = lines.filter_map(|line| line.to_lowercase().strip_prefix("range: bytes=").map(str::to_string)).last();
    let first = range.and_then(|range| range.trim_end_matches('-').parse().ok()).unwrap_or(0);
    manner(&mut stream, first)
}

fn head(stream: &mut TcpStream, status: &str, lines: &[String]) -> std::io::Result<()> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    write!(stream, "HTTP/1.1 {status}\r\n{lines}Connection: close\r\n\r\n")
}

/// The head of a correct answer from byte `first` on.
fn part(stream: &mut TcpStream, first: usize) -> std::io::Result<()> {
    let range = format!("Content-Range: bytes {first}-{}/{TOTAL}", TOTAL - 1);
    head(stream, "206 Partial Content", &[format!("Content-Length: {}", TOTAL - first), range])
}

/// Downloads in a thread, so that a download that never ends fails the test. Returns the error line and the bytes that
/// are kept.
fn pull(manner: Manner) -> (String, usize, usize) {
    pull_within(hasty(), manner)
}

fn pull_within(limits: Limits, manner: Manner) -> (String, usize, usize) {
    let (hub, requests) = serve(manner, limits);
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let (lab, file) = (Lab::new(), file(&content()));
        let line = lab.pull(&hub, &file).unwrap_err();
        let kept = fs::metadata(lab.incomplete(&file)).map_or(0, |metadata| metadata.len() as usize);
        assert_eq!(strays(&lab), Vec::<PathBuf>::new(), "{line}");
        send.send((line, kept)).unwrap();
    });
    let (line, kept) = receive.recv_timeout(GUARD).expect("the download does not end, or the test failed above");
    assert!(line.lines().count() == 1 && line.len() < 1000 && line.contains("some.safetensors"), "{line}");
    (line, kept, requests.load(Ordering::Relaxed))
}

/// Files outside of the cache of the repository.
fn strays(lab: &Lab) -> Vec<PathBuf> {
    let mut folders = vec![lab.folder.path().to_path_buf()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|e| e == "incomplete") => {}
                false => found.push(path),
            }
        }
    }
    found
}

#[test]
fn one_byte_at_a_time_is_too_slow_and_the_part_is_kept() {
    let rate = MinimumRate { bytes: 1000, window: Duration::from_millis(500) };
    let (line, kept, requests) = pull_within(Limits { rate, ..hasty() }, |stream, first| {
        part(stream, first)?;
        stream.write_all(&content()[first..first + 5000])?;
        for byte in &content()[first + 5000..] {
            stream.write_all(&[*byte])?;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    });
    // The first window may hold the first 5000 bytes.
    assert!(line.contains("the transfer is too slow: ") && line.contains("are kept"), "{line}");
    assert!(kept >= 5000 && requests == 1, "{kept} bytes kept, {requests} requests");
}

#[test]
fn a_silent_server_is_asked_once() {
    let silent: [Manner; 2] = [
        |_, _| {
            thread::sleep(Duration::from_secs(20));
            Ok(())
        },
        |stream, _| {
            // A head that never ends, byte by byte.
            for byte in b"HTTP/1.1 200 OK\r\nX: ".iter().chain(std::iter::repeat(&b'a')) {
                stream.write_all(&[*byte])?;
                thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        },
    ];
    for manner in silent {
        let (line, kept, requests) = pull(manner);
        assert!(line.contains("timeout"), "{line}");
        assert_eq!((kept, requests), (0, 1));
    }
}

#[test]
fn a_body_that_stops_is_asked_for_again_a_few_times() {
    let (line, kept, requests) = pull(|stream, first| {
        part(stream, first)?;
        stream.write_all(&content()[first..first + 1])?;
        thread::sleep(Duration::from_secs(20));
        Ok(())
    });
    assert!(line.contains("timeout"), "{line}");
    assert_eq!((kept, requests), (5, 5));
}

#[test]
fn a_byte_per_connection_is_no_progress() {
    let (line, kept, requests) = pull(|stream, first| {
        part(stream, first)?;
        stream.write_all(&content()[first..first + 1])
    });
    assert!(line.contains("some.safetensors"), "{line}");
    assert_eq!((kept, requests), (5, 5));
}

#[test]
fn an_endless_body_is_cut_at_the_published_length() {
    let endless: [Manner; 2] = [
        |stream, _| {
            head(stream, "200 OK", &["Transfer-Encoding: chunked".into()])?;
            loop {
                stream.write_all(b"10000\r\n")?;
                stream.write_all(&[7; 65536])?;
                stream.write_all(b"\r\n")?;
            }
        },
        |stream, _| {
            head(stream, "200 OK", &[])?;
            loop {
                stream.write_all(&[7; 65536])?;
            }
        },
    ];
    for manner in endless {
        let (line, kept, requests) = pull(manner);
        assert!(line.contains("its SHA-256 is "), "{line}");
        assert_eq!((kept, requests), (0, 1));
    }
}

#[test]
fn a_wrong_length_is_refused_before_the_transfer() {
    let (line, kept, requests) = pull(|stream, _| head(stream, "200 OK", &["Content-Length: 1000000000000000".into()]));
    assert!(line.contains("a file of 1000000000000000 bytes; the published one has 3000000"), "{line}");
    assert_eq!((kept, requests), (0, 1));
    let (line, ..) = pull(|stream, first| {
        let range = format!("Content-Range: bytes {first}-9/10");
        head(stream, "206 Partial Content", &["Content-Length: 10".into(), range])
    });
    assert!(line.contains("a file of 10 bytes; the published one has 3000000"), "{line}");
}

#[test]
fn heads_that_are_no_http_are_refused() {
    let heads: [Manner; 6] = [
        |stream, _| head(stream, "200 OK", &["Content-Length: -5".into()]),
        |stream, _| head(stream, "200 OK", &["Content-Length: 99999999999999999999999".into()]),
        |stream, _| stream.write_all(b"\x16\x03\x01\x02\n\n\x1b[2J"),
        |stream, _| stream.write_all(b""),
        |stream, _| {
            stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
            (0..200_000).try_for_each(|i| write!(stream, "X-{i}: {}\r\n", "a".repeat(1000)))
        },
        |stream, _| {
            loop {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
        },
    ];
    for manner in heads {
        let (line, kept, requests) = pull(manner);
        assert!(kept == 0 && requests <= 5, "{requests} requests, {kept} bytes kept: {line}");
    }
}

#[test]
fn redirects_end_and_lead_nowhere_else() {
    let (line, _, requests) = pull(|stream, _| head(stream, "302 Found", &["Location: /again".into()]));
    assert!(line.contains("redirects more than 5 times") && requests <= 6, "{requests} requests: {line}");
    let targets: [Manner; 3] = [
        |stream, _| head(stream, "302 Found", &["Location: file:///etc/hostname".into()]),
        |stream, _| head(stream, "302 Found", &["Location: ftp://127.0.0.1/x".into()]),
        |stream, _| head(stream, "302 Found", &["Location: http://[::1".into()]),
    ];
    for manner in targets {
        let (line, kept, requests) = pull(manner);
        assert!(kept == 0 && requests <= 6, "{requests} requests, {kept} bytes kept: {line}");
    }
}

#[test]
fn a_wrong_range_is_refused() {
    let ranges: [Manner; 3] = [
        |stream, _| head(stream, "206 Partial Content", &["Content-Range: bytes 7-3000006/3000000".into()]),
        |stream, _| head(stream, "206 Partial Content", &["Content-Range: pages 0-1/2".into()]),
        |stream, _| head(stream, "206 Partial Content", &[]),
    ];
    for manner in ranges {
        let (line, kept, requests) = pull(manner);
        assert!(line.contains("another part than it was asked for"), "{line}");
        assert_eq!((kept, requests), (0, 1));
    }
}

#[test]
fn a_server_that_always_starts_again_is_given_up() {
    let (line, _, requests) = pull(|stream, first| {
        head(stream, "200 OK", &[format!("Content-Length: {TOTAL}")])?;
        // A little more every time.
        stream.write_all(&content()[..first + 100_000])
    });
    assert!(line.contains("starts every transfer again"), "{line}");
    assert!(requests <= 7, "{requests} requests");
}

/// Names that a server gives are not used: the file has its own name in the cache.
#[test]
fn a_name_from_the_server_is_ignored() {
    let (line, kept, _) = pull(|stream, first| {
        let name = "Content-Disposition: attachment; filename=\"../../../../stray\"".to_string();
        head(stream, "200 OK", &[format!("Content-Length: {TOTAL}"), name])?;
        stream.write_all(&vec![7; TOTAL - first])
    });
    assert!(line.contains("its SHA-256 is "), "{line}");
    assert_eq!(kept, 0);
}

#[cfg(unix)]
#[test]
fn a_planted_link_is_not_followed() {
    let (lab, file) = (Lab::new(), file(&content()));
    let (hub, _) = serve(
        |stream, first| {
            part(stream, first)?;
            stream.write_all(&content()[first..])
        },
        hasty(),
    );
    let victim = lab.folder.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    fs::create_dir_all(lab.places.blob(&file).parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&victim, lab.incomplete(&file)).unwrap();
    lab.pull(&hub, &file).unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
}

/// With the limits of users: the pauses between attempts alone would take longer.
#[test]
fn a_machine_without_a_network_hears_of_it_within_three_seconds() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let hub = Hub::new(format!("http://{port}"), Limits::default());
        send.send(Lab::new().pull(&hub, &file(&content())).unwrap_err()).unwrap();
    });
    let line = receive.recv_timeout(Duration::from_secs(3)).expect("an answer within 3 s");
    assert!(line.contains("put some.safetensors (2.86 MiB) into"), "{line}");
}
