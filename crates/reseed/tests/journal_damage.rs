//! Every file of an interrupted job is damaged in many ways. A resumed job then writes the bytes of an uninterrupted
//! one or is an error that says what to do. It never panics and never writes other bytes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "counts are worth seeing")]

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use crate::files::{Setup, StopAfter, session};
use reseed::{Existing, Session};

type Files = Vec<(PathBuf, Vec<u8>)>;

/// The files with the bytes of file `i` changed.
fn with(files: &Files, i: usize, change: impl Fn(&mut Vec<u8>)) -> Files {
    let mut files = files.clone();
    change(&mut files[i].1);
    files
}

/// Damages of the file `i`, with bits flipped at about `flips` places.
fn damages(files: &Files, i: usize, flips: usize) -> Vec<(String, Files)> {
    let (name, length) = (files[i].0.display(), files[i].1.len());
    let mut all = Vec::new();
    for kept in [0, length / 2, length.saturating_sub(1)] {
        all.push((format!("{name} cut to {kept} of {length}"), with(files, i, |bytes| bytes.truncate(kept))));
    }
    for at in (0..length).step_by((length / flips).max(1)) {
        all.push((format!("{name}: bit flipped in byte {at}"), with(files, i, |bytes| bytes[at] ^= 1 << (at % 8))));
    }
    let gone = files.iter().enumerate().filter(|(k, _)| *k != i).map(|(_, file)| file.clone()).collect();
    all.push((format!("{name} deleted"), gone));
    all.push((format!("{name} with more bytes"), with(files, i, |bytes| bytes.extend(b"{\"a\": 1}\nmore"))));
    let before = (i + files.len() - 1) % files.len();
    let mut swapped = files.clone();
    (swapped[i].1, swapped[before].1) = (files[before].1.clone(), files[i].1.clone());
    all.push((format!("{name} swapped with {}", files[before].0.display()), swapped));
    all
}

/// Resumes from these files; asserts the expected bytes, or returns an error that says what to do.
fn check(setup: &Setup, session: &Session, case: &str, files: &Files, expected: &Files) -> Option<String> {
    setup.restore(files);
    let resumed = catch_unwind(AssertUnwindSafe(|| setup.run(session, Existing::Resume, &mut ())));
    let Err(error) = resumed.unwrap_or_else(|_| panic!("{case}: a panic")) else {
        assert!(setup.files() == *expected, "{case}: other bytes, or files left");
        return None;
    };
    let line = error.to_string();
    let advice = ["start again", "start the job from the beginning"].iter().any(|advice| line.contains(advice));
    assert!(advice && !line.contains('\n'), "{case}: {line}");
    Some(line)
}

/// Damages the files of a job that was interrupted after some batches, each in `every` of its ways.
fn test(setup: &Setup, batches: usize, (flips, every): (usize, usize)) {
    let session = session();
    setup.run(&session, Existing::Refuse, &mut ()).unwrap();
    let expected = setup.files();
    setup.restore(&Vec::new());
    assert!(setup.run(&session, Existing::Refuse, &mut StopAfter { batches, panics: false }).is_err());
    let files = setup.files();
    assert_eq!(check(setup, &session, "undamaged", &files, &expected), None);
    let (mut same, mut errors) = (0, BTreeMap::new());
    let cases = (0..files.len()).flat_map(|i| damages(&files, i, flips));
    for (case, damaged) in cases.step_by(every) {
        let Some(line) = check(setup, &session, &case, &damaged, &expected) else {
            same += 1;
            continue;
        };
        let count: &mut usize = errors.entry(line.clone()).or_default();
        *count += 1;
        // A folder that no journal knows may be the user's.
        if *count == 1 && !line.contains("delete it") {
            let again = setup.run(&session, Existing::Overwrite, &mut ());
            assert!(again.is_ok() && setup.files() == expected, "{case}: {line}; then {again:?}");
        }
    }
    println!("{} files: {same} with the same bytes, errors {errors:#?}", files.len());
    assert!(same > 0 && !errors.is_empty());
}

#[test]
fn a_damaged_y4m_job_gives_the_same_bytes_or_an_error() {
    test(&Setup::new(14, "out.y4m"), 3, (24, 1));
}

#[test]
fn a_damaged_folder_job_gives_the_same_bytes_or_an_error() {
    test(&Setup::new(8, "out"), 2, (3, 1));
}

#[test]
#[cfg(feature = "ffmpeg")]
fn a_damaged_video_job_gives_the_same_bytes_or_an_error() {
    let mut setup = Setup::new(150, "out.mkv");
    setup.batch = 45;
    test(&setup, 3, (2, 3));
}

/// Kills at the moments at which the files of a job are incomplete.
#[test]
fn no_moment_blocks_later_runs() {
    let session = session();
    let runs = [Existing::Refuse, Existing::Resume, Existing::Overwrite];
    let setup = Setup::new(6, "out");
    setup.run(&session, Existing::Refuse, &mut ()).unwrap();
    let expected = setup.files();
    let journal = PathBuf::from(".out.reseed/job.json");
    for existing in runs {
        setup.restore(&Vec::new());
        fs::create_dir(setup.place().join("out.partial")).unwrap();
        setup.run(&session, existing, &mut ()).unwrap();
        assert!(setup.files() == expected, "{existing:?}: killed before the journal");

        let torn = (journal.clone(), b"{\"reseed\":".to_vec());
        let half = (PathBuf::from("out.partial/000001.png"), b"half".to_vec());
        let batch = (PathBuf::from(".out.reseed/made-0"), vec![0; 64]);
        for files in [vec![(journal.clone(), Vec::new())], vec![torn.clone(), half, batch.clone()], vec![batch]] {
            setup.restore(&files);
            setup.run(&session, existing, &mut ()).unwrap();
            assert!(setup.files() == expected, "{existing:?}: killed after {files:?}");
        }
    }
    setup.restore(&[(PathBuf::from("out.partial/mine.txt"), b"mine".to_vec())]);
    for existing in runs {
        let refused = setup.run(&session, existing, &mut ()).unwrap_err().to_string();
        assert!(refused.contains("out.partial: this temporary folder"), "{refused}");
        assert_eq!(setup.files().len(), 1, "a folder of the user is kept");
    }
}
