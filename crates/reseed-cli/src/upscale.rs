//! `reseed upscale` and `reseed image`.

mod summary;

use std::path::Path;

use reseed::media::{Info, Kind, Size};
use reseed::{Error, Existing, Job, JobSpec, Session};
use serde_json::json;

use crate::console;
use crate::failure::{Failure, Result};
use crate::folder;
use crate::plan::Plan;
use crate::progress::{Place, Progress};
use crate::report;
use crate::shutdown;
use crate::warning;
use reseed_args::{ImageArgs, JobArgs, UpscaleArgs};
pub use summary::stages;

pub fn run(args: &UpscaleArgs) -> Result<()> {
    note_default(&args.job);
    let settings = args.settings();
    settings.check()?;
    let ignored = args.video.public.given();
    if !ignored.is_empty() {
        console::warn("ignored_options", &format_args!("{}: decided by the engine, ignored", ignored.join(", ")));
    }
    let clip = args.video.part.clip()?;
    let existing = match (args.resume, args.overwrite) {
        (true, _) => Existing::Resume,
        (_, true) => Existing::Overwrite,
        _ => Existing::Refuse,
    };
    let mut session = None;
    folder::each(&args.input, &args.output, !args.dry_run, |input, output, place| {
        let spec = JobSpec::new(input, output, settings.clone());
        let spec = JobSpec { clip, video: args.video.options(), existing, ..spec };
        let run = Run { name: "upscale", args: &args.job, strict: args.strict, place };
        if args.dry_run { run.plan(&spec, &mut session) } else { run.run(spec, &mut session) }
    })
}

pub fn image(args: &ImageArgs) -> Result<()> {
    note_default(&args.job);
    let existing = if args.overwrite { Existing::Overwrite } else { Existing::Refuse };
    let spec = JobSpec { existing, ..JobSpec::new(&args.input, &args.output, args.job.settings()) };
    let run = Run { name: "image", args: &args.job, strict: args.strict, place: None };
    if args.dry_run { run.plan(&spec, &mut None) } else { run.run(spec, &mut None) }
}

/// How a job is run.
struct Run<'a> {
    name: &'static str,
    args: &'a JobArgs,
    strict: bool,
    place: Option<Place>,
}

impl Run<'_> {
    /// Runs a job. All jobs of a command share one [`Session`], which the first of them opens.
    fn run(&self, spec: JobSpec, session: &mut Option<Session>) -> Result<()> {
        let (input, output) = (spec.input.clone(), spec.output.clone());
        console::make_way_for(&output);
        let job = Job::open(spec)?;
        self.check_kind(job.input(), job.info())?;
        if job.is_complete() {
            match self.args.compute.json {
                true => {
                    say!("{}", json!({"event": "complete", "command": self.name, "output": output.to_string_lossy()}))
                }
                false => console::note(&format!("{}: already complete", output.display())),
            }
            return Ok(());
        }
        let _guard = shutdown::guard_journal(&output);
        let (before, info) = (job.info().size, job.output_info()?);
        if !self.args.compute.json && !console::is_quiet() {
            let place = Place::prefix(self.place);
            say!("{place}{}", report::sizes(&input, before, info.size, info.frames));
        }
        let session = opened(session, self.args)?;
        let progress = Progress::new(self.name, None, self.args.compute.json).of_session(session);
        let mut progress = progress.of_job([before, info.size], self.place);
        let report = job.run(session, &mut progress)?;
        let damaged = progress.saw_damage();
        drop(progress);
        let done = Done { name: self.name, args: self.args, output: &output, before, info: &info, session };
        done.summarize(&report)?;
        match damaged && self.strict {
            true => Err(Failure::Damaged(format!(
                "{}: damaged, see the warnings above; {} holds what could be restored",
                input.display(),
                output.display()
            ))),
            false => Ok(()),
        }
    }

    /// Prints what a job would need, and writes nothing.
    fn plan(&self, spec: &JobSpec, session: &mut Option<Session>) -> Result<()> {
        let source = reseed::media::open_clip(&spec.input, spec.clip).map_err(Failure::input)?;
        self.check_kind(&spec.input, source.info())?;
        if spec.existing == Existing::Refuse && spec.output.is_file() {
            return Err(Error::OutputExists { path: spec.output.clone() }.into());
        }
        let json = self.args.compute.json;
        let (info, settings) = (source.info(), &spec.settings_for(source.info()));
        Plan { input: &spec.input, info, settings, video: &spec.video, json, place: self.place, machines: None }
            .print(|| opened(session, self.args))
    }

    fn check_kind(&self, path: &Path, info: &Info) -> Result<()> {
        match self.name == "image" && info.kind != Kind::Image {
            true => Err(Failure::Usage(format!(
                "{}: not one image; use `reseed upscale` for videos and folders",
                path.display()
            ))),
            false => Ok(()),
        }
    }
}

/// The [`Session`] that all jobs of a command share.
fn opened<'s>(session: &'s mut Option<Session>, args: &JobArgs) -> Result<&'s Session> {
    Ok(match session {
        Some(session) => session,
        none => none.insert(open_session(args)?),
    })
}

/// Opens a session and shows the remarks of its devices.
pub fn open_session(args: &JobArgs) -> Result<Session> {
    let builder = args.compute.builder(args.model(), args.max_vram)?;
    let session = builder.vae(args.vae.clone()).text(args.text_embedding.clone()).open()?;
    session.warnings()?.iter().for_each(warning::show);
    Ok(session)
}

/// A note for users who did not choose a model.
pub fn note_default(args: &JobArgs) {
    if args.model.is_none() {
        console::note(
            "using nano, a small built-in model; `reseed models pull 3b` downloads a much better one, for --model 3b",
        );
    }
}

/// A finished job.
struct Done<'a> {
    name: &'static str,
    args: &'a JobArgs,
    output: &'a Path,
    /// Size of the input.
    before: Size,
    info: &'a Info,
    session: &'a Session,
}
