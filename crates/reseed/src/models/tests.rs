//! Downloads from a local test server.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::hash::Hash;
use super::hub::{Hub, Limits};
use super::places::Places;
use super::registry::{File, Repo};

/// How the server treats a request.
#[derive(Clone, Copy)]
enum Manner {
    /// Sends what is asked for.
    Good,
    /// Sends everything whatever is asked for.
    NoRanges,
    /// Ends the connection after so many bytes.
    Breaks(usize),
    /// Sends other bytes.
    Lies,
    /// Sends no file.
    Status(u16),
}

/// What was asked for: path and range.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

/// A hub that treats its first requests as given and later ones well.
fn serve(content: Vec<u8>, manners: &[Manner]) -> (Hub, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let asked = Asked::default();
    let (seen, mut manners) = (asked.clone(), VecDeque::from(manners.to_vec()));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            // A client that hangs up early is part of the game.
            let _ = answer(stream, &content, manners.pop_front().unwrap_or(Manner::Good), &seen);
        }
    });
    (Hub::new(endpoint, patient()), asked)
}

fn answer(mut stream: TcpStream, content: &[u8], manner: Manner, seen: &Asked) -> std::io::Result<()> {
    let lines = BufReader::new(stream.try_clone()?).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let lines: Vec<String> = lines.collect();
    let path = lines[0].split(' ').nth(1).unwrap().to_string();
    let range = lines.iter().find_map(|line| line.to_lowercase().strip_prefix("range: ").map(str::to_string));
    let range = range.unwrap_or_default();
    seen.lock().unwrap().push((path, range.clone()));
    let first: usize = range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap_or(0);
    let close = "Connection: close";
    let (head, body) = match manner {
        Manner::Status(code) => (format!("HTTP/1.1 {code} No\r\nContent-Length: 0"), vec![]),
        Manner::NoRanges => (format!("HTTP/1.1 200 OK\r\nContent-Length: {}", content.len()), content.to_vec()),
        _ => {
            let (rest, total) = (content[first..].to_vec(), content.len());
            let last = total - 1;
            let length = rest.len();
            let head = format!("HTTP/1.1 206 Partial Content\r\nContent-Length: {length}");
            (format!("{head}\r\nContent-Range: bytes {first}-{last}/{total}"), rest)
        }
    };
    let body = match manner {
        Manner::Breaks(count) => body[..count].to_vec(),
        Manner::Lies => body.iter().map(|byte| byte ^ 1).collect(),
        _ => body,
    };
    write!(stream, "{head}\r\n{close}\r\n\r\n")?;
    stream.write_all(&body)
}

/// The usual limits without pauses.
fn patient() -> Limits {
    Limits { pause: Duration::ZERO, ..Limits::default() }
}

pub fn content() -> Vec<u8> {
    (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// The file that the content is.
pub fn file(content: &[u8]) -> File {
    let mut hash = Hash::new();
    hash.update(content);
    let sha256 = Box::leak(hash.finish().into_boxed_str());
    File {
        name: "some.safetensors",
        repo: &Repo { name: "who/what", revision: "r1", folder: "" },
        bytes: content.len() as u64,
        sha256,
    }
}

pub struct Lab {
    pub folder: temp_dir::TempDir,
    pub places: Places,
}

impl Lab {
    pub fn new() -> Lab {
        let folder = temp_dir::TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        let places = Places { own: at("own"), hub: at("hub"), comfy: vec![at("comfy")] };
        Lab { folder, places }
    }

    pub fn pull(&self, hub: &Hub, file: &File) -> Result<Vec<u64>, String> {
        let mut seen_bytes = Vec::new();
        let path =
            hub.pull(file, &self.places, &mut |have| seen_bytes.push(have)).map_err(|failure| failure.to_string())?;
        assert_eq!(self.places.find(file), Some(path.clone()));
        assert!(fs::read(path).unwrap() == content(), "another content");
        assert!(!self.incomplete(file).exists());
        Ok(seen_bytes)
    }

    pub fn incomplete(&self, file: &File) -> std::path::PathBuf {
        self.places.blob(file).with_extension("incomplete")
    }
}

#[test]
fn a_file_comes_whole_and_lies_where_the_hub_programs_look() {
    let (lab, (hub, asked), file) = (Lab::new(), serve(content(), &[]), file(&content()));
    let seen_bytes = lab.pull(&hub, &file).unwrap();
    assert_eq!((seen_bytes.first(), seen_bytes.last()), (Some(&0), Some(&file.bytes)));
    assert_eq!(*asked.lock().unwrap(), [("/who/what/resolve/r1/some.safetensors".into(), "bytes=0-".into())]);
    let cached = lab.folder.path().join("hub/models--who--what/snapshots/r1/some.safetensors");
    assert_eq!(lab.places.find(&file), Some(cached));
}

#[test]
fn a_file_in_a_folder_of_its_repository_keeps_the_folder() {
    let repo = &Repo { name: "who/what", revision: "r1", folder: "diffusion_models" };
    let (lab, (hub, asked), file) = (Lab::new(), serve(content(), &[]), File { repo, ..file(&content()) });
    lab.pull(&hub, &file).unwrap();
    let cached = lab.folder.path().join("hub/models--who--what/snapshots/r1/diffusion_models/some.safetensors");
    assert_eq!(asked.lock().unwrap()[0].0, "/who/what/resolve/r1/diffusion_models/some.safetensors");
    #[cfg(unix)]
    assert_eq!(fs::read_link(&cached).unwrap(), std::path::Path::new("../../../blobs").join(file.sha256));
    assert_eq!(lab.places.find(&file), Some(cached));
}

#[test]
fn a_broken_transfer_goes_on_where_it_broke() {
    let manners = [Manner::Breaks(1_000_000), Manner::Status(503), Manner::Breaks(500_000)];
    let (lab, (hub, asked), file) = (Lab::new(), serve(content(), &manners), file(&content()));
    lab.pull(&hub, &file).unwrap();
    let ranges: Vec<String> = asked.lock().unwrap().iter().map(|(_, range)| range.clone()).collect();
    assert_eq!(ranges, ["bytes=0-", "bytes=1000000-", "bytes=1000000-", "bytes=1500000-"]);
}

#[test]
fn a_stopped_download_goes_on_in_the_next_run() {
    let (lab, (hub, asked), file) = (Lab::new(), serve(content(), &[]), file(&content()));
    fs::create_dir_all(lab.places.blob(&file).parent().unwrap()).unwrap();
    fs::write(lab.incomplete(&file), &content()[..2_000_000]).unwrap();
    assert_eq!(lab.pull(&hub, &file).unwrap()[0], 2_000_000);
    assert_eq!(asked.lock().unwrap()[0].1, "bytes=2000000-");
}

#[test]
fn a_server_without_ranges_sends_everything_again() {
    let manners = [Manner::Breaks(1_000_000), Manner::NoRanges];
    let (lab, (hub, _), file) = (Lab::new(), serve(content(), &manners), file(&content()));
    lab.pull(&hub, &file).unwrap();
}

#[test]
fn a_wrong_hash_is_seen_bytes_and_nothing_is_kept() {
    let (lab, (hub, _), file) = (Lab::new(), serve(content(), &[Manner::Lies]), file(&content()));
    let line = lab.pull(&hub, &file).unwrap_err();
    assert!(line.contains("its SHA-256 is ") && line.contains(file.sha256), "{line}");
    assert!(!lab.incomplete(&file).exists() && lab.places.find(&file).is_none());
    lab.pull(&hub, &file).unwrap();
}

#[test]
fn what_cannot_be_had_is_to_be_put_into_a_folder() {
    let file = file(&content());
    let (missing, asked) = serve(content(), &[Manner::Status(404); 9]);
    let (busy, often) = serve(content(), &[Manner::Status(500); 9]);
    let mut offline = Hub::of_user();
    offline.offline = true;
    // A port without a listener.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = Hub::new(format!("http://{port}"), patient());
    for (hub, reason) in
        [(missing, "answers 404"), (busy, "answers 500"), (offline, "HF_HUB_OFFLINE is set"), (gone, "")]
    {
        let lab = Lab::new();
        let line = lab.pull(&hub, &file).unwrap_err();
        let put = format!("put some.safetensors (2.86 MiB) into {}", lab.folder.path().join("own").display());
        assert!(line.contains(reason) && line.contains(&put) && line.contains(&hub.url(&file)), "{line}");
    }
    assert_eq!((asked.lock().unwrap().len(), often.lock().unwrap().len()), (1, 5));
}

#[test]
fn only_one_download_writes_a_file() {
    let (lab, (hub, asked), file) = (Lab::new(), serve(content(), &[]), file(&content()));
    fs::create_dir_all(lab.places.blob(&file).parent().unwrap()).unwrap();
    let other = fs::File::create(lab.incomplete(&file)).unwrap();
    other.lock().unwrap();
    assert!(lab.pull(&hub, &file).unwrap_err().contains("another download is writing it"));
    assert!(asked.lock().unwrap().is_empty());
}

#[test]
fn files_are_found_wherever_other_programs_have_them() {
    let (lab, file) = (Lab::new(), file(b"four"));
    let places = [
        "own/some.safetensors",
        "hub/models--who--what/snapshots/r1/some.safetensors",
        "hub/models--who--what/snapshots/r0/some.safetensors",
        "comfy/models/SEEDVR2/some.safetensors",
        "comfy/models/diffusion_models/some.safetensors",
        "comfy/custom_nodes/seedvr2/some.safetensors",
    ];
    for place in places.map(|place| lab.folder.path().join(place)).iter().rev() {
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, "cut").unwrap();
        assert_ne!(lab.places.find(&file).as_ref(), Some(place), "an incomplete file is none");
        fs::write(place, "four").unwrap();
        assert_eq!(lab.places.find(&file).as_ref(), Some(place));
    }
}
