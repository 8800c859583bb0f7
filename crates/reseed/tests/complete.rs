//! What a resumed job finds when nothing is left to do, and after a panic.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::files::{Setup, StopAfter, session};
use reseed::{Error, Event, Existing, Job, Observer};

#[test]
fn a_complete_output_is_resumed_without_work() {
    for output in ["out.y4m", "out"] {
        let (setup, session) = (Setup::new(6, output), session());
        fs::create_dir_all(setup.place().join("empty")).unwrap();
        let job = Job::open(setup.spec(Existing::Resume)).unwrap();
        assert!(!job.is_complete(), "there is no output yet");
        assert_eq!(job.run(&session, &mut ()).unwrap().frames, 6);
        let complete = setup.files();

        let job = Job::open(setup.spec(Existing::Resume)).unwrap();
        assert!(job.is_complete());
        assert_eq!(job.run(&session, &mut ()).unwrap().frames, 0);
        assert!(setup.files() == complete, "{output}: a complete output is not touched");
    }
}

#[test]
fn an_output_is_complete_only_if_it_has_content_and_no_work_folder() {
    let (setup, session) = (Setup::new(6, "out"), session());
    fs::create_dir(&setup.output).unwrap();
    assert!(!Job::open(setup.spec(Existing::Resume)).unwrap().is_complete(), "an empty folder");

    let (setup, exists) = (Setup::new(11, "out.y4m"), |result| matches!(result, Err(Error::OutputExists { .. })));
    fs::write(&setup.output, "").unwrap();
    assert!(exists(Job::open(setup.spec(Existing::Resume)).map(drop)), "an empty file");
    fs::write(&setup.output, "an earlier result").unwrap();
    let stopped = setup.run(&session, Existing::Overwrite, &mut StopAfter { batches: 1, panics: false });
    assert!(stopped.is_err());
    let job = Job::open(setup.spec(Existing::Resume)).unwrap();
    assert!(!job.is_complete(), "an interrupted job would replace the output");
    job.run(&session, &mut ()).unwrap();
    assert_eq!(reseed_media::open(&setup.output).unwrap().info().frames, Some(11));
}

/// Makes the rename of the output fail.
struct BlockRename<'a>(&'a Setup);

impl Observer for BlockRename<'_> {
    fn event(&mut self, event: &Event) {
        if matches!(event, Event::Saved { .. }) {
            fs::create_dir_all(self.0.output.join("in the way")).unwrap();
        }
    }
}

/// A job that is killed after its output got its name and before the journal is gone.
#[test]
fn an_output_that_has_its_name_is_complete_although_its_journal_is_left() {
    let (setup, session) = (Setup::new(6, "out.y4m"), session());
    setup.run(&session, Existing::Refuse, &mut ()).unwrap();
    let expected = setup.files();
    for existing in [Existing::Resume, Existing::Refuse, Existing::Overwrite] {
        setup.restore(&Vec::new());
        setup.run(&session, Existing::Refuse, &mut BlockRename(&setup)).unwrap_err();
        fs::remove_dir_all(&setup.output).unwrap();
        let interrupted = setup.files();
        setup.run(&session, Existing::Resume, &mut ()).unwrap();
        assert!(setup.files() == expected, "killed before the rename");

        setup.restore(&interrupted);
        fs::rename(setup.place().join(".out.y4m.partial"), &setup.output).unwrap();
        let job = Job::open(setup.spec(existing));
        match existing {
            Existing::Refuse => assert!(matches!(job, Err(Error::OutputExists { .. }))),
            _ => {
                let job = job.unwrap();
                assert_eq!(job.is_complete(), existing == Existing::Resume);
                job.run(&session, &mut ()).unwrap();
            }
        }
        assert!(setup.files() == expected, "{existing:?}: killed after the rename");
    }
}

/// A panic unwinds through the stages of a job and leaves the frames of finished batches.
#[test]
fn a_panic_keeps_the_finished_frames() {
    for output in ["out.y4m", "out"] {
        let (setup, session) = (Setup::new(14, output), session());
        setup.run(&session, Existing::Refuse, &mut ()).unwrap();
        let expected = setup.files();
        for batches in 1..4 {
            setup.restore(&Vec::new());
            let mut observer = StopAfter { batches, panics: true };
            let run = catch_unwind(AssertUnwindSafe(|| setup.run(&session, Existing::Refuse, &mut observer)));
            assert!(run.is_err(), "the panic of an observer reaches the caller");
            let report = setup.run(&session, Existing::Resume, &mut ()).unwrap();
            let saved = [0, 5, 8][batches - 1];
            assert_eq!(saved + report.frames, 14, "{output}: after {batches} batches");
            assert!(setup.files() == expected, "{output}: after {batches} batches");
        }
    }
}
