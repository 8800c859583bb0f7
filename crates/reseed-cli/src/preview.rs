//! `reseed preview`.

use std::path::Path;
use std::time::Instant;

use reseed::media::video::Options;
use reseed::media::{Frame, ImageTags, Info, Kind, create, needs_even_sides, open_clip};
use reseed::{Error, Event, Observer, RangeError};
use serde_json::json;

use crate::console;
use crate::failure::{Failure, Result};
use crate::shutdown;
use crate::upscale::{note_default, open_session};
use crate::warning;
use reseed_args::PreviewArgs;

/// The output that a video gets unless another is named: its odd sides are cropped.
const USUAL_OUTPUT: &str = "video.mp4";

pub fn run(args: &PreviewArgs) -> Result<()> {
    note_default(&args.job);
    let (start, json) = (Instant::now(), args.job.compute.json);
    let mut settings = args.batches.settings(&args.job);
    settings.check()?;
    if args.output.exists() && !args.overwrite {
        return Err(Error::OutputExists { path: args.output.clone() }.into());
    }
    let mut source = open_clip(&args.input, args.part.clip()?).map_err(Failure::input)?;
    let info = source.info().clone();
    if info.kind.is_still() {
        let input = args.input.display();
        return Err(Failure::Usage(format!("{input}: a still image; use `reseed image` for all of it")));
    }
    settings.even_sides =
        matches!(info.kind, Kind::Video(_)) && needs_even_sides(Path::new(USUAL_OUTPUT), &info, &Options::default());
    // Finds a name that is no image before anything is computed.
    let image = described(&info, &settings.output(&info)?);
    let sink = |image: &Info| create(&args.output, image).map_err(Error::Output);
    drop(sink(&image)?);
    let session = open_session(&args.job)?;
    let preview = session.preview(&mut *source, args.position(), &settings, &mut Warnings);
    let problems = source.problems();
    problems.into_iter().for_each(|problem| warning::show(&reseed::Warning::DamagedInput { problem }));
    let preview = preview.map_err(|error| named(error, &args.input))?;
    let frame = args.compare.map_or_else(|| preview.output.clone(), |how| preview.compared(how.into()));
    let mut sink = sink(&Info { size: frame.size, ..image })?;
    sink.write(&frame).and_then(|()| sink.finish()).map_err(Error::Output)?;
    report(args, preview.number, &frame, start, json);
    Ok(())
}

/// The image that is written.
fn described(input: &Info, output: &Info) -> Info {
    let (frames, names) = (Some(1), Vec::new());
    Info { kind: Kind::Image, frames, names, tags: ImageTags::default(), size: output.size, ..input.clone() }
}

/// The error with the name of the input, where it is about that.
fn named(error: Error, input: &Path) -> Failure {
    match error {
        Error::Range(RangeError::BeyondEnd { .. }) => Failure::Usage(format!("{}: {error}", input.display())),
        Error::NoFrames { .. } => Error::NoFrames { path: Some(input.into()) }.into(),
        error => error.into(),
    }
}

fn report(args: &PreviewArgs, number: usize, frame: &Frame, start: Instant, json: bool) {
    let (output, seconds) = (args.output.display(), start.elapsed().as_secs_f64());
    match json {
        true => say!(
            "{}",
            json!({
                "event": "done", "command": "preview", "output": args.output.to_string_lossy(), "frame": number,
                "width": frame.size.w, "height": frame.size.h, "seconds": seconds,
            })
        ),
        false if console::is_quiet() => {}
        false => say!("{output}: frame {number}, {}, {seconds:.1} s", frame.size),
    }
}

/// Shows warnings, and cancels on Ctrl-C.
struct Warnings;

impl Observer for Warnings {
    fn event(&mut self, event: &Event) {
        if let Event::Warning(warning) = event {
            warning::show(warning);
        }
    }

    fn cancelled(&mut self) -> bool {
        shutdown::is_cancelled()
    }
}
