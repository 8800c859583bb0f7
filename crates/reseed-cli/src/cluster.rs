//! `reseed plan`, `reseed shard` and `reseed join`.

use std::env::temp_dir;
use std::time::Instant;

use reseed::{Budget, JobSpec, Kind, ShardPlan, ShardSettings};
use reseed_cluster::{ClusterJob, Done, Error, RunOptions, local_file};
use serde_json::json;

use crate::console;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::report::counted;
use crate::warning;
use reseed_args::cluster::{JoinArgs, PlaceArgs, ShardArgs, ShardPlanArgs};
use reseed_args::threads;

pub fn plan(args: &ShardPlanArgs) -> Result<()> {
    let (settings, json, options) = (args.batches.settings(&args.job), args.job.compute.json, options(&args.places));
    settings.check()?;
    ClusterJob::check_new(&args.out).map_err(failure)?;
    let input = local_file(&args.input, &options.cache).map_err(failure)?;
    let spec = JobSpec::new(input, &args.output, settings);
    let spec = JobSpec { clip: args.video.part.clip()?, video: args.video.options(), ..spec };
    let shards = ShardSettings {
        model: args.job.model().into(),
        vae: args.job.vae.clone(),
        text: args.job.text_embedding.clone(),
        dtype: args.job.compute.math.dtype,
        math: args.job.compute.math.precision,
        budget: args.job.max_vram.map(Budget::bytes),
        segments: args.segments.into(),
    };
    let mut progress = Progress::new("plan", None, json);
    let mut plan = ShardPlan::create(&spec, shards, &mut progress)?;
    drop(progress);
    plan.input = absolute(&args.input);
    plan.output = absolute(&args.output);
    let job = ClusterJob::create(&args.out, plan).map_err(failure)?;
    let (shards, frames, shots) = (job.plan().shards(), job.plan().frames(), job.plan().cuts().len() + 1);
    match json {
        true => say!(
            "{}",
            json!({
                "event": "done", "command": "plan", "plan": args.out, "shards": shards, "frames": frames,
                "shots": shots,
            })
        ),
        false if console::is_quiet() => {}
        false => say!(
            "{}: {} of {} in {}; run `reseed shard {} N` for N = 0 to {}, then `reseed join {0}`",
            args.out,
            counted(frames, "frame"),
            counted(shots, "shot"),
            counted(shards, "shard"),
            args.out,
            shards - 1,
        ),
    }
    Ok(())
}

pub fn shard(args: &ShardArgs) -> Result<()> {
    let job = ClusterJob::open(&args.plan).map_err(failure)?;
    let Some(shard) = args.shard.filter(|_| !args.missing) else { return missing(&job, args) };
    if job.is_done(shard).map_err(failure)? {
        return finished(args, shard, None, 0.0);
    }
    let start = Instant::now();
    let session = job.plan().builder().device(&args.device).threads(threads(args.threads)).open()?;
    session.warnings()?.iter().for_each(warning::show);
    let options = RunOptions { mixed: args.mixed, ..options(&args.places) };
    let mut progress = Progress::new("shard", None, args.json).of_session(&session);
    let done = job.run(shard, &session, &options, &mut progress).map_err(failure)?;
    drop(progress);
    let frames = match done {
        Done::Before => None,
        Done::Now(report) => Some(report.frames),
    };
    finished(args, shard, frames, start.elapsed().as_secs_f64())
}

/// Lists the shards that are not finished, one per line.
fn missing(job: &ClusterJob, args: &ShardArgs) -> Result<()> {
    let missing = job.missing().map_err(failure)?;
    match args.json {
        true => say!("{}", json!({"plan": args.plan, "shards": job.plan().shards(), "missing": missing})),
        false => missing.iter().for_each(|shard| say!("{shard}")),
    }
    Ok(())
}

/// Reports a shard; no frames for one that was finished before.
fn finished(args: &ShardArgs, shard: usize, frames: Option<usize>, seconds: f64) -> Result<()> {
    match (args.json, frames) {
        (true, frames) => say!(
            "{}",
            json!({
                "event": "done", "command": "shard", "plan": args.plan, "shard": shard, "frames": frames,
                "seconds": seconds,
            })
        ),
        _ if console::is_quiet() => {}
        (false, None) => say!("shard {shard}: already complete"),
        (false, Some(frames)) => say!("shard {shard}: {} in {seconds:.1} s", counted(frames, "frame")),
    }
    Ok(())
}

pub fn join(args: &JoinArgs) -> Result<()> {
    let job = ClusterJob::open(&args.plan).map_err(failure)?;
    let output = args.output.as_ref().unwrap_or(&job.plan().output);
    if !args.overwrite {
        ClusterJob::check_output(output).map_err(failure)?;
    }
    let start = Instant::now();
    job.join(output, &options(&args.places)).map_err(failure)?;
    let (frames, seconds) = (job.plan().frames(), start.elapsed().as_secs_f64());
    match args.json {
        true => say!(
            "{}",
            json!({"event": "done", "command": "join", "output": output, "frames": frames, "seconds": seconds})
        ),
        false if console::is_quiet() => {}
        false => say!("{output}: {} joined in {seconds:.1} s", counted(frames, "frame")),
    }
    Ok(())
}

fn options(places: &PlaceArgs) -> RunOptions {
    let work = places.work.clone().unwrap_or_else(temp_dir);
    let cache = places.cache.clone().unwrap_or_else(|| temp_dir().join("reseed-inputs"));
    RunOptions { mixed: false, work, cache }
}

/// A path that does not depend on the folder of a process; addresses stay as they are.
fn absolute(text: &str) -> String {
    match reseed_cluster::is_address(text) {
        true => text.into(),
        false => std::path::absolute(text).map_or(text.into(), |path| path.to_string_lossy().into_owned()),
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Library(error) => Failure::Library(error),
        error if error.kind() == Kind::Usage => Failure::Usage(error.to_string()),
        error if error.kind() == Kind::Input => Failure::Input(error.to_string()),
        error => Failure::Failed(error.to_string()),
    }
}
