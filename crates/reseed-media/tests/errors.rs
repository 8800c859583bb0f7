//! One test for each thing that can go wrong: the message is one line, names the file and says what to do.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use reseed_media::{Depth, Error, Frame, Info, Kind, Rate, Sink, Size, create, open};
use tempfile::TempDir;

fn info(kind: Kind, size: Size) -> Info {
    let rate = Rate { num: 24, den: 1 };
    Info { size, frames: None, rate, depth: Depth::Eight, alpha: false, kind, names: Vec::new(), icc: None }
}

fn grey(size: Size) -> Frame {
    Frame::from_unit(size, &vec![0.5; 3 * size.pixels()], Depth::Eight)
}

fn put_picture(path: &Path, size: Size) {
    let mut sink = create(path, &info(Kind::Image, size)).unwrap();
    sink.write(&grey(size)).unwrap();
    sink.finish().unwrap();
}

fn put(folder: &TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The error of opening `path`, after checking what every message must keep.
fn refusal(path: &Path) -> (Error, String) {
    let error = match open(path) {
        Err(error) => error,
        Ok(mut source) => loop {
            match source.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{} was read", path.display()),
                Err(error) => break error,
            }
        },
    };
    explained(error, path)
}

fn output_refusal(path: &Path, kind: Kind) -> (Error, String) {
    let error = create(path, &info(kind, SMALL)).err().expect("an output that cannot be");
    explained(error, path)
}

fn explained(error: Error, path: &Path) -> (Error, String) {
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "names the file: {message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    (error, message)
}

const SMALL: Size = Size { h: 4, w: 6 };

#[test]
fn missing_file() {
    let folder = folder();
    let (error, _) = refusal(&folder.path().join("none.png"));
    assert!(matches!(error, Error::Read { .. }));
}

#[test]
fn text_named_as_a_picture_or_video() {
    let folder = folder();
    for (name, format) in [("a.png", "PNG"), ("a.JPG", "JPEG"), ("a.webp", "WebP"), ("a.tif", "TIFF"), ("a.y4m", "Y4M")]
    {
        let (error, message) = refusal(&put(&folder, name, b"just some text\n"));
        assert!(matches!(error, Error::NotAsNamed { named, .. } if named == format), "{message}");
    }
    let (error, _) = refusal(&put(&folder, "empty.png", b""));
    assert!(matches!(error, Error::NotAsNamed { .. }));
}

#[test]
fn file_of_unknown_kind() {
    let folder = folder();
    let (error, message) = refusal(&put(&folder, "film.mp4", b"\0\0\0\x18ftypmp42"));
    assert!(matches!(error, Error::Unreadable { .. }), "these tests need ffmpeg: {message}");
    assert!(message.contains("film.mp4: ffmpeg cannot read it"), "{message}");
}

#[test]
fn damaged_picture() {
    let folder = folder();
    for extension in ["png", "jpg", "webp", "tiff"] {
        let path = folder.path().join(format!("a.{extension}"));
        put_picture(&path, SMALL);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..20]).unwrap();
        let (error, message) = refusal(&path);
        assert!(matches!(error, Error::Decode { .. }), "{message}");
    }
}

#[test]
fn picture_too_large() {
    let folder = folder();
    let path = folder.path().join("a.png");
    put_picture(&path, SMALL);
    let mut bytes = fs::read(&path).unwrap();
    let side = 40_000u32.to_be_bytes();
    bytes[16..20].copy_from_slice(&side);
    bytes[20..24].copy_from_slice(&side);
    let checksum = crc32(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&checksum.to_be_bytes());
    fs::write(&path, bytes).unwrap();
    let (error, message) = refusal(&path);
    assert!(matches!(error, Error::TooLarge { .. }), "{message}");
    assert!(message.contains("40000x40000"));
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn folder_without_pictures() {
    let folder = folder();
    put(&folder, "readme.txt", b"text");
    put(&folder, "._a.png", b"what macOS leaves");
    let (error, _) = refusal(folder.path());
    assert!(matches!(error, Error::EmptyFolder { .. }));
}

#[test]
fn folder_of_mixed_sizes() {
    let folder = folder();
    put_picture(&folder.path().join("1.png"), SMALL);
    put_picture(&folder.path().join("2.png"), Size { h: 5, w: 6 });
    let (error, message) = refusal(folder.path());
    assert!(matches!(error, Error::MixedSizes { .. }));
    for part in ["1.png", "6x4", "2.png", "6x5"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn folder_with_a_false_picture() {
    let folder = folder();
    put_picture(&folder.path().join("1.png"), SMALL);
    let path = put(&folder, "2.png", b"text");
    let error = open(folder.path()).err().unwrap();
    let (error, _) = explained(error, &path);
    assert!(matches!(error, Error::NotAsNamed { .. }));
}

#[test]
fn bad_y4m_header() {
    let folder = folder();
    let (error, message) = refusal(&put(&folder, "a.y4m", b"YUV4MPEG2 W2 H2 C411\n"));
    assert!(matches!(error, Error::Header { .. }));
    assert!(message.contains("411"));
}

#[test]
fn y4m_truncated_in_its_last_frame() {
    let folder = folder();
    let (error, message) = refusal(&put(&folder, "a.y4m", b"YUV4MPEG2 W2 H2 Cmono\nFRAME\nabcdFRAME\nabc"));
    assert!(matches!(error, Error::Truncated { frame: 2, .. }));
    assert!(message.contains("frame 2"));
}

#[test]
fn y4m_with_a_damaged_frame() {
    let folder = folder();
    let (error, message) = refusal(&put(&folder, "a.y4m", b"YUV4MPEG2 W2 H2 Cmono\nFRAME\nabcdFRAIL\nabcd"));
    assert!(matches!(error, Error::LostFrame { frame: 2, .. }));
    assert!(message.contains("frame 2"));
}

#[test]
fn output_of_unknown_kind() {
    let folder = folder();
    let y4m = Kind::Y4m(reseed_media::y4m::Format::for_depth(Depth::Eight));
    for (name, kind, hint) in [
        ("a.gif", Kind::Image, ".png"),
        ("a", Kind::Image, ".png"),
        ("a.avi", y4m, ".y4m"),
        ("a.png", Kind::Folder, "folder"),
    ] {
        let (error, message) = output_refusal(&folder.path().join(name), kind);
        assert!(matches!(error, Error::UnknownOutput { .. }), "{message}");
        assert!(message.contains(hint), "{message}");
    }
}

#[test]
fn output_into_a_missing_folder() {
    let folder = folder();
    for kind in [Kind::Image, Kind::Folder] {
        let name = if kind == Kind::Image { "none/a.png" } else { "none/a" };
        let (error, _) = output_refusal(&folder.path().join(name), kind);
        assert!(matches!(error, Error::NoParent { .. }));
    }
}

#[test]
fn output_file_where_a_folder_is() {
    let folder = folder();
    let path = folder.path().join("a.png");
    fs::create_dir(&path).unwrap();
    assert!(matches!(output_refusal(&path, Kind::Image).0, Error::IsFolder { .. }));
}

#[test]
fn output_folder_where_a_file_is() {
    let folder = folder();
    let path = put(&folder, "a", b"");
    assert!(matches!(output_refusal(&path, Kind::Folder).0, Error::IsFile { .. }));
}

#[test]
fn output_folder_that_is_not_empty() {
    let folder = folder();
    put(&folder, "precious.txt", b"");
    assert!(matches!(output_refusal(folder.path(), Kind::Folder).0, Error::FolderNotEmpty { .. }));
}

#[test]
fn output_folder_left_by_an_interrupted_run() {
    let folder = folder();
    let left = folder.path().join("a.partial");
    fs::create_dir(&left).unwrap();
    let (error, _) = output_refusal(&folder.path().join("a"), Kind::Folder);
    assert!(matches!(error, Error::LeftOver { path } if path == left));
    assert!(left.is_dir());
}

#[test]
fn picture_that_its_format_cannot_hold() {
    let folder = folder();
    let path = folder.path().join("a.webp");
    let size = Size { h: 1, w: 20_000 };
    let mut sink = create(&path, &info(Kind::Image, size)).unwrap();
    let (error, message) = explained(sink.write(&grey(size)).unwrap_err(), &path);
    assert!(matches!(error, Error::Encode { .. }), "{message}");
}

#[test]
fn output_that_stops_taking_bytes() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let sink = reseed_media::y4m::Writer::new(Full, "disk", &info(Kind::Image, SMALL)).unwrap();
    let (error, _) = explained(Box::new(sink).finish().unwrap_err(), Path::new("disk"));
    assert!(matches!(error, Error::Write { .. }));
}
