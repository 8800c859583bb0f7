use std::io::Cursor;

use proptest::prelude::*;

use super::header::Header;
use super::*;
use crate::error::{Error, HeaderProblem, Result};
use crate::frame::{Rate, Size};
use crate::stream::{ImageTags, Info, Kind, Sink, Source};

fn formats() -> impl Strategy<Value = Format> {
    let deep = prop::sample::select(vec![Chroma::Mpeg420, Chroma::Yuv422, Chroma::Yuv444, Chroma::Mono])
        .prop_flat_map(|chroma| (Just(chroma), prop::sample::select(vec![9u8, 10, 12, 14, 16])));
    let shallow = prop::sample::select(vec![Chroma::Jpeg420, Chroma::Mpeg420, Chroma::Paldv420, Chroma::Yuv422])
        .prop_map(|chroma| (chroma, 8));
    let range = prop::option::of(prop::sample::select(vec![Range::Limited, Range::Full]));
    let extras = prop::collection::vec("X[A-Z]{1,6}=[a-z0-9]{0,6}", 0..3);
    (prop_oneof![deep, shallow], range, prop::option::of("[ptbm]"), prop::option::of("[1-9]:[1-9]"), extras).prop_map(
        |((chroma, bits), range, interlace, aspect, extras)| Format { chroma, bits, range, interlace, aspect, extras },
    )
}

fn headers() -> impl Strategy<Value = Header> {
    (1usize..9, 1usize..9, 1u32..100_000, 1u32..2000, formats()).prop_map(|(h, w, num, den, format)| Header {
        size: Size { h, w },
        rate: Rate { num, den },
        format,
    })
}

proptest! {
    #[test]
    fn planes_survive_writing_and_reading(header in headers(), frames in 0usize..4, seed: u64) {
        let folder = temp_dir::TempDir::new().unwrap();
        let path = folder.path().join("clip.y4m");
        let kind = Kind::Y4m(header.format.clone());
        let Header { size, rate, .. } = header;
        let depth = header.format.depth();
        let (names, tags) = (Vec::new(), ImageTags::default());
        let info = Info { size, frames: Some(frames), rate, depth, alpha: false, kind, names, tags };
        let bytes = converter(&header.format, size).frame_bytes() as u64;
        let planes = |frame: usize| -> Vec<u8> {
            (0..bytes).map(|i| (seed.wrapping_mul(2 * (i + frame as u64 * bytes) + 1) >> 40) as u8).collect()
        };

        let mut writer = Writer::create(&path, &info).unwrap();
        (0..frames).for_each(|frame| writer.write_planes(&planes(frame)).unwrap());
        Box::new(writer).finish().unwrap();

        let mut reader = Reader::seekable(std::fs::File::open(&path).unwrap(), &path).unwrap();
        prop_assert_eq!(reader.info(), &info);
        for frame in 0..frames {
            prop_assert_eq!(reader.next_planes().unwrap(), Some(&planes(frame)[..]));
        }
        prop_assert_eq!(reader.next_planes().unwrap(), None);
    }

    #[test]
    fn any_bytes_are_read_or_give_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        drain(bytes);
    }

    #[test]
    fn any_bytes_after_a_header_are_read_or_give_an_error(
        header in headers(),
        line in "(FRAME|FRAM|frame)( I[a-z]{3})?\n",
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        drain([format!("{header}\n{line}").into_bytes(), bytes].concat());
    }

    #[test]
    fn any_parameters_are_read_or_give_an_error(parameters in "( [WHFIACX][0-9a-z:=]{0,12}){0,8}", tail in ".{0,20}") {
        drain(format!("YUV4MPEG2{parameters}{tail}\nFRAME\n").into_bytes());
    }
}

/// Reads a stream to its end, as a pipe and as a file. It must not panic.
fn drain(bytes: Vec<u8>) {
    for reader in [Reader::new(Cursor::new(bytes.clone()), "pipe"), Reader::seekable(Cursor::new(bytes), "file")] {
        let Ok(mut reader) = reader else { continue };
        while let Ok(Some(_)) = reader.next() {}
    }
}

fn pipe(bytes: &[u8]) -> Result<Reader> {
    Reader::new(Cursor::new(bytes.to_vec()), "pipe")
}

fn problem(bytes: &[u8]) -> HeaderProblem {
    match pipe(bytes) {
        Err(Error::Header { problem, .. }) => problem,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the header was accepted"),
    }
}

#[test]
fn frame_lines_may_have_parameters() {
    let clip = b"YUV4MPEG2 W1 H1 Cmono\nFRAME\n\x01FRAME Ippp Xa=b\n\x02FRAME\n\x03".to_vec();
    let mut reader = Reader::seekable(Cursor::new(clip), "clip").unwrap();
    assert_eq!(reader.info().frames, Some(3));
    for code in 1..=3 {
        assert_eq!(reader.next_planes().unwrap(), Some(&[code][..]));
    }
    assert!(reader.next().unwrap().is_none());
    assert!(reader.next().unwrap().is_none());
}

#[test]
fn malformed_header_lines_are_reported() {
    assert_eq!(problem(b""), HeaderProblem::NotY4m);
    assert_eq!(problem(b"RIFF and so on\n"), HeaderProblem::NotY4m);
    assert_eq!(problem(b"YUV4MPEG2 W2 H2"), HeaderProblem::Unfinished);
    assert_eq!(problem(b"YUV4MPEG2 W2 H2 X\xff\n"), HeaderProblem::NotText);
    assert_eq!(problem(&[MAGIC, &[b' '; 1 << 20]].concat()), HeaderProblem::TooLong(4096));
}

/// A header for the largest frame without such a frame must not allocate its memory.
#[test]
fn a_false_header_allocates_little_memory() {
    let mut reader = pipe(b"YUV4MPEG2 W16384 H16384 C444p16\nFRAME\nshort").unwrap();
    assert!(matches!(reader.next(), Err(Error::Truncated { frame: 1, .. })));
    assert!(reader.planes_capacity() < 1 << 20);
}

#[test]
fn damaged_and_truncated_streams_give_different_errors() {
    let after = |tail: &[u8]| {
        let mut reader = pipe(&[b"YUV4MPEG2 W1 H1 Cmono\nFRAME\n\x01", tail].concat()).unwrap();
        reader.next().unwrap();
        reader.next().unwrap_err()
    };
    for tail in [&b"F"[..], b"FRAME", b"FRAME I", b"FRAME\n"] {
        assert!(matches!(after(tail), Error::Truncated { frame: 2, .. }), "{tail:?}");
    }
    for tail in [&b"\n"[..], b"frame\n\x02", b"FRAMES\n\x02", b"garbage", &[b'x'; 9000]] {
        assert!(matches!(after(tail), Error::BadFrameHeader { frame: 2, .. }), "{tail:?}");
    }
}

#[test]
fn a_full_disk_is_a_write_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let sink = Writer::new(Full, "disk", sample().info()).unwrap();
    let error = Box::new(sink).finish().unwrap_err();
    assert!(matches!(&error, Error::Write { .. }) && error.to_string().starts_with("disk: "), "{error}");
}
