//! Upscales a video file, or the embedded sample, and shows the progress.
//!
//!     cargo run --release --example upscale [INPUT OUTPUT [MODEL]]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::error::Error;
use std::path::PathBuf;

use reseed::{Event, Observer, Session, Settings, Target};

/// Counts frames on standard error.
struct Counter(usize);

impl Observer for Counter {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Frames(frames) => {
                self.0 += frames;
                eprintln!("{} frames", self.0);
            }
            Event::Warning(warning) => eprintln!("warning: {warning}"),
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (input, output) = (arguments.next(), arguments.next());
    let output = output.map_or(std::env::temp_dir().join("reseed-example.y4m"), PathBuf::from);
    let model = arguments.next().unwrap_or("nano".into());

    let mut source = match input {
        Some(path) => reseed::media::open(path.as_ref())?,
        None => reseed::media::sample(),
    };
    let settings = Settings { target: Target::Scale(2.0), ..Settings::default() };
    let session = Session::builder().model(model).open()?;
    let sink = reseed::media::create(&output, &settings.output(source.info())?)?;
    let report = session.upscale(&mut *source, sink, &settings, &mut Counter(0))?;

    println!("{}: {} frames, {:.2} fps on {}", output.display(), report.frames, report.fps(), session.device()?);
    Ok(())
}
