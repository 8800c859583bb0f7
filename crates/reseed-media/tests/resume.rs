//! Outputs that were left unfinished on purpose are gone on with, and others leave nothing behind.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use reseed_media::video::Options;
use reseed_media::{Error, Frame, Info, Kind, create, discard, open, resume_with, sample};

fn film() -> (Info, Vec<Frame>) {
    let mut source = sample();
    let frames = std::iter::from_fn(|| source.next().unwrap()).collect();
    (source.info().clone(), frames)
}

fn frames(path: &Path) -> Vec<Frame> {
    let mut source = open(path).unwrap();
    std::iter::from_fn(|| source.next().unwrap()).collect()
}

#[test]
fn an_unfinished_output_is_gone_on_with_behind_any_safe_frame() {
    let (y4m, film) = film();
    let folder = Info { kind: Kind::Folder, ..y4m.clone() };
    for (name, info) in [("out.y4m", y4m), ("out", folder)] {
        let lab = tempfile::tempdir().unwrap();
        let path = lab.path().join(name);
        let mut sink = create(&path, &info).unwrap();
        film.iter().for_each(|frame| sink.write(frame).unwrap());
        sink.finish().unwrap();
        let whole = frames(&path);
        for safe in 1..5 {
            if path.is_dir() {
                fs::remove_dir_all(&path).unwrap()
            } else {
                fs::remove_file(&path).unwrap()
            }
            let mut sink = create(&path, &info).unwrap();
            film[..safe].iter().for_each(|frame| sink.write(frame).unwrap());
            assert_eq!(sink.secure().unwrap(), safe);
            sink.keep_unfinished();
            // These were written, but nobody was told.
            film[..2].iter().for_each(|frame| sink.write(frame).unwrap());
            drop(sink);

            let mut sink = resume_with(&path, &info, &Options::default(), safe).unwrap();
            film[safe..].iter().for_each(|frame| sink.write(frame).unwrap());
            assert_eq!(sink.secure().unwrap(), film.len());
            sink.finish().unwrap();
            assert!(frames(&path) == whole, "{name} from {safe}");
            assert_eq!(fs::read_dir(lab.path()).unwrap().count(), 1, "{name} from {safe}");
        }
    }
}

#[test]
fn frames_that_are_not_there_are_missed() {
    let (y4m, film) = film();
    let folder = Info { kind: Kind::Folder, ..y4m.clone() };
    for (name, info) in [("out.y4m", y4m), ("out", folder)] {
        let lab = tempfile::tempdir().unwrap();
        let path = lab.path().join(name);
        assert!(matches!(resume_with(&path, &info, &Options::default(), 1), Err(Error::Read { .. })), "{name}");
        let mut sink = create(&path, &info).unwrap();
        film[..2].iter().for_each(|frame| sink.write(frame).unwrap());
        sink.secure().unwrap();
        sink.keep_unfinished();
        drop(sink);
        let error = resume_with(&path, &info, &Options::default(), 4).err().unwrap();
        assert!(matches!(error, Error::Lost { frame: 3, .. }), "{name}: {error}");
    }
}

#[test]
fn what_is_thrown_away_is_ours() {
    let (info, film) = film();
    let lab = tempfile::tempdir().unwrap();
    let path = lab.path().join("out.y4m");
    fs::write(lab.path().join("out.y4m.partial"), "somebody's").unwrap();
    let mut sink = create(&path, &info).unwrap();
    sink.write(&film[0]).unwrap();
    sink.keep_unfinished();
    drop(sink);
    assert_eq!(fs::read_dir(lab.path()).unwrap().count(), 2);
    discard(&path).unwrap();
    let left: Vec<_> = fs::read_dir(lab.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["out.y4m.partial"]);
}
