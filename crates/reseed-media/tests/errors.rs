//! One test per error: the message is one line, names the file, and says what to do.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use reseed_media::{Depth, Error, Frame, ImageTags, Info, Kind, Rate, Size, create, open};
use temp_dir::TempDir;

fn info(kind: Kind, size: Size) -> Info {
    let rate = Rate { num: 24, den: 1 };
    Info {
        size,
        frames: None,
        rate,
        depth: Depth::Eight,
        alpha: false,
        kind,
        names: Vec::new(),
        tags: ImageTags::default(),
    }
}

fn grey(size: Size) -> Frame {
    Frame::from_unit(size, &vec![0.5; 3 * size.pixels()], Depth::Eight)
}

fn write_image(path: &Path, size: Size) {
    let mut sink = create(path, &info(Kind::Image, size)).unwrap();
    sink.write(&grey(size)).unwrap();
    sink.finish().unwrap();
}

fn write_file(folder: &TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

fn folder() -> TempDir {
    temp_dir::TempDir::new().unwrap()
}

/// The error of reading `path`, and its message.
fn read_error(path: &Path) -> (Error, String) {
    let error = match open(path) {
        Err(error) => error,
        Ok(mut source) => loop {
            match source.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{} was read without error", path.display()),
                Err(error) => break error,
            }
        },
    };
    checked(error, path)
}

fn create_error(path: &Path, kind: Kind) -> (Error, String) {
    let error = create(path, &info(kind, SMALL)).err().expect("creating the output must fail");
    checked(error, path)
}

fn checked(error: Error, path: &Path) -> (Error, String) {
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "the message must name the file: {message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    (error, message)
}

const SMALL: Size = Size { h: 4, w: 6 };

#[test]
fn a_missing_file_is_a_read_error() {
    let folder = folder();
    let (error, _) = read_error(&folder.path().join("none.png"));
    assert!(matches!(error, Error::Read { .. }));
}

#[test]
fn a_text_file_with_the_extension_of_an_image_or_y4m_is_reported() {
    let folder = folder();
    for (name, format) in [("a.png", "PNG"), ("a.JPG", "JPEG"), ("a.webp", "WebP"), ("a.tif", "TIFF"), ("a.y4m", "Y4M")]
    {
        let (error, message) = read_error(&write_file(&folder, name, b"just some text\n"));
        assert!(matches!(error, Error::WrongExtension { format: found, .. } if found == format), "{message}");
    }
    let (error, _) = read_error(&write_file(&folder, "empty.png", b""));
    assert!(matches!(error, Error::WrongExtension { .. }));
}

#[cfg(feature = "ffmpeg")]
#[test]
fn a_file_that_ffmpeg_cannot_read_is_reported() {
    let folder = folder();
    let (error, message) = read_error(&write_file(&folder, "video.mp4", b"\0\0\0\x18ftypmp42"));
    assert!(matches!(error, Error::Unreadable { .. }), "these tests need ffmpeg: {message}");
    assert!(message.contains("video.mp4: ffmpeg cannot read it"), "{message}");
}

#[test]
fn a_long_message_of_a_decoder_is_shortened() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiff-many-samples.tif"));
    let (error, message) = read_error(&path);
    assert!(matches!(error, Error::Decode { .. }), "{message}");
    assert!(message.contains("bits per sample [1, 1, 1") && message.ends_with(" ...); export it again"), "{message}");
    assert!(message.len() < 1000, "{} bytes", message.len());
}

#[test]
fn a_truncated_image_is_a_decode_error() {
    let folder = folder();
    for extension in ["png", "jpg", "webp", "tiff"] {
        let path = folder.path().join(format!("a.{extension}"));
        write_image(&path, SMALL);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..20]).unwrap();
        let (error, message) = read_error(&path);
        assert!(matches!(error, Error::Decode { .. }), "{message}");
    }
}

#[test]
fn an_image_above_the_size_limit_is_reported() {
    let folder = folder();
    let path = folder.path().join("a.png");
    write_image(&path, SMALL);
    let mut bytes = fs::read(&path).unwrap();
    let side = 40_000u32.to_be_bytes();
    bytes[16..20].copy_from_slice(&side);
    bytes[20..24].copy_from_slice(&side);
    let checksum = crc32(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&checksum.to_be_bytes());
    fs::write(&path, bytes).unwrap();
    let (error, message) = read_error(&path);
    assert!(matches!(error, Error::TooLarge { .. }), "{message}");
    assert!(message.contains("40000x40000"));
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn a_folder_without_images_is_reported() {
    let folder = folder();
    write_file(&folder, "readme.txt", b"text");
    write_file(&folder, "._a.png", b"metadata of macOS");
    let (error, _) = read_error(folder.path());
    assert!(matches!(error, Error::EmptyFolder { .. }));
}

#[test]
fn a_folder_of_images_with_different_sizes_is_reported() {
    let folder = folder();
    write_image(&folder.path().join("1.png"), SMALL);
    write_image(&folder.path().join("2.png"), Size { h: 5, w: 6 });
    let (error, message) = read_error(folder.path());
    assert!(matches!(error, Error::MixedSizes { .. }));
    for part in ["1.png", "6x4", "2.png", "6x5"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_folder_with_a_text_file_named_as_an_image_is_reported() {
    let folder = folder();
    write_image(&folder.path().join("1.png"), SMALL);
    let path = write_file(&folder, "2.png", b"text");
    let error = open(folder.path()).err().unwrap();
    let (error, _) = checked(error, &path);
    assert!(matches!(error, Error::WrongExtension { .. }));
}

#[test]
fn an_unknown_chroma_format_in_a_y4m_header_is_reported() {
    let folder = folder();
    let (error, message) = read_error(&write_file(&folder, "a.y4m", b"YUV4MPEG2 W2 H2 C411\n"));
    assert!(matches!(error, Error::Header { .. }));
    assert!(message.contains("411"));
}

#[test]
fn a_y4m_file_that_ends_inside_a_frame_is_reported() {
    let folder = folder();
    let (error, message) = read_error(&write_file(&folder, "a.y4m", b"YUV4MPEG2 W2 H2 Cmono\nFRAME\nabcdFRAME\nabc"));
    assert!(matches!(error, Error::Truncated { frame: 2, .. }));
    assert!(message.contains("frame 2"));
}

#[test]
fn a_y4m_frame_without_its_header_line_is_reported() {
    let folder = folder();
    let (error, message) = read_error(&write_file(&folder, "a.y4m", b"YUV4MPEG2 W2 H2 Cmono\nFRAME\nabcdFRAIL\nabcd"));
    assert!(matches!(error, Error::BadFrameHeader { frame: 2, .. }));
    assert!(message.contains("frame 2"));
}

#[test]
fn an_output_name_of_no_known_format_is_reported() {
    let folder = folder();
    let y4m = Kind::Y4m(reseed_media::y4m::Format::for_depth(Depth::Eight));
    for (name, kind, hint) in [
        ("a.gif", Kind::Image, ".png"),
        ("a", Kind::Image, ".png"),
        ("a.avi", y4m, ".y4m"),
        ("a.png", Kind::Folder, "folder"),
    ] {
        let (error, message) = create_error(&folder.path().join(name), kind);
        assert!(matches!(error, Error::UnknownOutput { .. }), "{message}");
        assert!(message.contains(hint), "{message}");
    }
}

#[test]
fn an_output_in_a_missing_folder_is_reported() {
    let folder = folder();
    for kind in [Kind::Image, Kind::Folder] {
        let name = if kind == Kind::Image { "none/a.png" } else { "none/a" };
        let (error, _) = create_error(&folder.path().join(name), kind);
        assert!(matches!(error, Error::NoParent { .. }));
    }
}

#[test]
fn an_output_file_at_the_path_of_a_folder_is_reported() {
    let folder = folder();
    let path = folder.path().join("a.png");
    fs::create_dir(&path).unwrap();
    assert!(matches!(create_error(&path, Kind::Image).0, Error::IsFolder { .. }));
}

#[test]
fn an_output_folder_at_the_path_of_a_file_is_reported() {
    let folder = folder();
    let path = write_file(&folder, "a", b"");
    assert!(matches!(create_error(&path, Kind::Folder).0, Error::IsFile { .. }));
}

#[test]
fn an_output_folder_with_files_is_reported() {
    let folder = folder();
    write_file(&folder, "notes.txt", b"");
    assert!(matches!(create_error(folder.path(), Kind::Folder).0, Error::FolderNotEmpty { .. }));
}

#[test]
fn the_temporary_folder_of_an_interrupted_run_is_reported_and_kept() {
    let folder = folder();
    let temporary = folder.path().join("a.partial");
    fs::create_dir(&temporary).unwrap();
    fs::write(temporary.join("000001.png"), "a frame").unwrap();
    let (error, _) = create_error(&folder.path().join("a"), Kind::Folder);
    assert!(matches!(error, Error::TemporaryExists { path } if path == temporary));
    assert!(temporary.join("000001.png").is_file());
}

#[test]
fn an_image_too_wide_for_its_format_is_an_encode_error() {
    let folder = folder();
    let path = folder.path().join("a.webp");
    let size = Size { h: 1, w: 20_000 };
    let mut sink = create(&path, &info(Kind::Image, size)).unwrap();
    let (error, message) = checked(sink.write(&grey(size)).unwrap_err(), &path);
    assert!(matches!(error, Error::Encode { .. }), "{message}");
}

#[cfg(not(feature = "ffmpeg"))]
#[test]
fn a_video_without_the_ffmpeg_feature_is_reported() {
    let folder = folder();
    let (error, message) = read_error(&write_file(&folder, "video.mp4", b"\0\0\0\x18ftypmp42"));
    assert!(matches!(error, Error::FfmpegDisabled { .. }), "{message}");
    let (error, message) = create_error(&folder.path().join("out.mkv"), Kind::Folder);
    assert!(matches!(error, Error::FfmpegDisabled { .. }), "{message}");
}
