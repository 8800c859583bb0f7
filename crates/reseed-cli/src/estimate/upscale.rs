//! `reseed estimate upscale`: what a whole job would need.

use reseed::media::video::Options;
use reseed::{Error, Settings};

use crate::failure::{Failure, Result};
use crate::plan::Plan;
use crate::upscale::open_session;
use reseed_args::batching;
use reseed_args::estimate::UpscaleEstimateArgs;

pub fn run(args: &UpscaleEstimateArgs) -> Result<()> {
    let source = reseed::media::open(&args.input).map_err(Failure::input)?;
    let mut info = source.info().clone();
    info.frames = args.frames.map(|frames| frames as usize).or(info.frames);
    if info.frames.is_none() {
        let path = args.input.display();
        return Err(Failure::Usage(format!("{path}: {}", Failure::from(Error::FrameCountUnknown))));
    }
    let settings = Settings { batching: batching(args.batch_size, args.overlap, false), ..args.job.settings() };
    settings.check()?;
    let video = Options { codec: args.codec, crf: args.crf, ..Options::default() };
    let machines = args.machines.map(|machines| (machines as usize, args.segments.into()));
    let (json, mut session) = (args.job.compute.json, None);
    let plan =
        Plan { input: &args.input, info: &info, settings: &settings, video: &video, json, place: None, machines };
    plan.print(|| Ok(session.insert(open_session(&args.job)?)))
}
