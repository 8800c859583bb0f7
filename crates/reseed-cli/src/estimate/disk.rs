//! What a job would take on the disk.

use reseed::Settings;
use reseed_media::video::Options;
use reseed_media::{Disk, Info, disk};

use crate::args::estimate::UpscaleEstimateArgs;
use crate::failure::Result;

/// Batches whose pictures may wait in the work folder: the one that is written, and the next.
const WAITING: usize = 2;

/// The output of a job on this input, and what lies beside it while the job runs.
pub fn needs(args: &UpscaleEstimateArgs, settings: &Settings, input: &Info, frames: usize) -> Result<Disk> {
    let (batch, shared) = (settings.batching.size, settings.batching.shared());
    let options = Options { codec: args.codec, crf: args.crf, ..Options::default() };
    let taken = disk(&settings.output(input)?, &options, frames, batch);
    let padded = settings.geometry(input)?.padded.pixels();
    // Pictures are kept as the networks made them, in floats; so are those that later batches may still change.
    let pictures = (WAITING * batch + 2 * shared).min(frames) * 3 * size_of::<f32>() * padded;
    Ok(Disk { work: taken.work + pictures as u64, ..taken })
}
