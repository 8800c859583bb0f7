//! `reseed upscale` and `reseed image`.

mod summary;

use std::path::Path;

use reseed::media::{Info, Kind};
use reseed::{Existing, Job, JobSpec, Report, Session};
use serde_json::json;

use crate::args::{ImageArgs, JobArgs, UpscaleArgs};
use crate::failure::{Failure, Result};
use crate::folder;
use crate::progress::Progress;
use crate::report;
use crate::shutdown;
pub use summary::stages;

pub fn run(args: &UpscaleArgs) -> Result<()> {
    note_default(&args.job);
    let settings = args.settings();
    settings.check()?;
    let ignored = args.video.public.given();
    if !ignored.is_empty() {
        report::warn(&format!("{}: decided by the engine, ignored", ignored.join(", ")));
    }
    let clip = args.video.clip()?;
    let mut session = None;
    folder::each(&args.input, &args.output, |input, output| {
        let existing = match (args.resume, args.overwrite) {
            (true, _) => Existing::Resume,
            (_, true) => Existing::Overwrite,
            _ => Existing::Refuse,
        };
        let spec = JobSpec::new(input, output, settings.clone());
        let spec = JobSpec { clip, video: args.video.options(), existing, ..spec };
        run_job("upscale", &args.job, spec, &mut session)
    })
}

pub fn image(args: &ImageArgs) -> Result<()> {
    note_default(&args.job);
    let existing = if args.overwrite { Existing::Overwrite } else { Existing::Refuse };
    let spec = JobSpec { existing, ..JobSpec::new(&args.input, &args.output, args.job.settings()) };
    run_job("image", &args.job, spec, &mut None)
}

/// Runs a job on the session of the job before, or on a new one.
fn run_job(name: &'static str, args: &JobArgs, spec: JobSpec, session: &mut Option<Session>) -> Result<()> {
    let output = spec.output.clone();
    report::make_way_for(&output);
    let job = Job::open(spec)?;
    if name == "image" && job.info().kind != Kind::Image {
        let path = job.input().display();
        return Err(Failure::Usage(format!("{path}: not one image; use `reseed upscale` for videos and folders")));
    }
    if job.is_complete() {
        match args.compute.json {
            true => say!("{}", json!({"event": "complete", "command": name, "output": output.to_string_lossy()})),
            false => report::note(&format!("{}: already complete", output.display())),
        }
        return Ok(());
    }
    shutdown::catch_ctrl_c();
    let _guard = shutdown::guard_journal(&output);
    let info = job.output_info()?;
    let session = match session {
        Some(session) => session,
        none => none.insert(open_session(args)?),
    };
    let mut progress = Progress::new(name, None, args.compute.json).of_session(session);
    let report = job.run(session, &mut progress)?;
    drop(progress);
    Done { name, args, output: &output, info: &info, session, report: &report }.summarize()
}

/// Opens a session and shows the remarks of its devices.
pub fn open_session(args: &JobArgs) -> Result<Session> {
    let session = args.compute.builder(args.model(), args.max_vram)?.open()?;
    session.warnings()?.iter().for_each(|warning| report::warn(warning));
    Ok(session)
}

/// A note for users who did not choose a model.
fn note_default(args: &JobArgs) {
    if args.model.is_none() {
        report::note(
            "using nano, a small embedded model; `reseed models pull 3b` downloads a large one for --model 3b",
        );
    }
}

/// A finished job.
struct Done<'a> {
    name: &'static str,
    args: &'a JobArgs,
    output: &'a Path,
    info: &'a Info,
    session: &'a Session,
    report: &'a Report,
}
