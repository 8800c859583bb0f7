//! Cancels a job after its first batch, and resumes it from its journal.
//!
//!     cargo run --release --example resume
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::error::Error;
use std::path::Path;

use reseed::{Event, Job, Kind, Observer, Session, Settings, Target};

/// Cancels a job when its first frames are safe on disk.
#[derive(Default)]
struct FirstBatch {
    saved: bool,
}

impl Observer for FirstBatch {
    fn event(&mut self, event: &Event) {
        self.saved |= matches!(event, Event::Saved { .. });
    }

    fn cancelled(&mut self) -> bool {
        self.saved
    }
}

/// Writes the embedded sample to a file.
fn write_sample(path: &Path) -> reseed::media::Result<()> {
    let mut clip = reseed::media::sample();
    let mut sink = reseed::media::create(path, clip.info())?;
    while let Some(frame) = clip.next()? {
        sink.write(&frame)?;
    }
    sink.finish()
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("reseed-resume-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (input, output) = (folder.join("small.y4m"), folder.join("large.y4m"));
    write_sample(&input)?;

    let session = Session::builder().model("nano").open()?;
    let settings = Settings { target: Target::Scale(2.0), ..Settings::default() };
    let cancelled = Job::create(&input, &output, settings)?.run(&session, &mut FirstBatch::default());
    match cancelled {
        Err(error) if error.kind() == Kind::Cancelled => println!("{error}"),
        other => return Err(format!("the job should be cancelled: {other:?}").into()),
    }

    let report = Job::resume(&output)?.run(&session, &mut ())?;
    println!("resumed: {} frames in {} batches, {}", report.frames, report.batches, output.display());
    assert_eq!(reseed::media::open(&output)?.info().frames, Some(9));
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
