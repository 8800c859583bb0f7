//! Unfinished outputs are resumed or discarded.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use reseed_media::video::Options;
use reseed_media::{Error, Frame, Info, Kind, create, discard, open, resume_with, sample};

fn clip() -> (Info, Vec<Frame>) {
    let mut source = sample();
    let frames = std::iter::from_fn(|| source.next().unwrap()).collect();
    (source.info().clone(), frames)
}

fn frames(path: &Path) -> Vec<Frame> {
    let mut source = open(path).unwrap();
    std::iter::from_fn(|| source.next().unwrap()).collect()
}

#[test]
fn an_unfinished_output_resumes_after_any_synced_frame() {
    let (y4m, clip) = clip();
    let images = Info { kind: Kind::Folder, ..y4m.clone() };
    for (name, info) in [("out.y4m", y4m), ("out", images)] {
        let folder = temp_dir::TempDir::new().unwrap();
        let path = folder.path().join(name);
        let mut sink = create(&path, &info).unwrap();
        clip.iter().for_each(|frame| sink.write(frame).unwrap());
        sink.finish().unwrap();
        let complete = frames(&path);
        for synced in 1..5 {
            if path.is_dir() {
                fs::remove_dir_all(&path).unwrap()
            } else {
                fs::remove_file(&path).unwrap()
            }
            let mut sink = create(&path, &info).unwrap();
            clip[..synced].iter().for_each(|frame| sink.write(frame).unwrap());
            assert_eq!(sink.sync().unwrap(), synced);
            sink.keep_unfinished();
            // These frames are written but not synced.
            clip[..2].iter().for_each(|frame| sink.write(frame).unwrap());
            drop(sink);

            let mut sink = resume_with(&path, &info, &Options::default(), synced).unwrap();
            clip[synced..].iter().for_each(|frame| sink.write(frame).unwrap());
            assert_eq!(sink.sync().unwrap(), clip.len());
            sink.finish().unwrap();
            assert!(frames(&path) == complete, "{name} from {synced}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{name} from {synced}");
        }
    }
}

#[test]
fn resuming_after_a_missing_frame_is_reported() {
    let (y4m, clip) = clip();
    let images = Info { kind: Kind::Folder, ..y4m.clone() };
    for (name, info) in [("out.y4m", y4m), ("out", images)] {
        let folder = temp_dir::TempDir::new().unwrap();
        let path = folder.path().join(name);
        assert!(matches!(resume_with(&path, &info, &Options::default(), 1), Err(Error::Read { .. })), "{name}");
        let mut sink = create(&path, &info).unwrap();
        clip[..2].iter().for_each(|frame| sink.write(frame).unwrap());
        sink.sync().unwrap();
        sink.keep_unfinished();
        drop(sink);
        let error = resume_with(&path, &info, &Options::default(), 4).err().unwrap();
        assert!(matches!(error, Error::MissingFrame { frame: 3, .. }), "{name}: {error}");
    }
}

#[test]
fn discard_removes_only_the_file_of_the_sink() {
    let (info, clip) = clip();
    let folder = temp_dir::TempDir::new().unwrap();
    let path = folder.path().join("out.y4m");
    fs::write(folder.path().join("out.y4m.partial"), "another file").unwrap();
    let mut sink = create(&path, &info).unwrap();
    sink.write(&clip[0]).unwrap();
    sink.keep_unfinished();
    drop(sink);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    discard(&path).unwrap();
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["out.y4m.partial"]);
}
