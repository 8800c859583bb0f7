//! Options of `reseed plan`, `reseed shard` and `reseed join`.

use std::path::PathBuf;

use clap::Args;
use reseed::internals::AUTO;

use super::upscale::{BatchArgs, JobArgs};
use super::video::VideoArgs;
use super::{SEGMENTS, device};

#[derive(Args, Clone)]
pub struct ShardPlanArgs {
    /// A video, or a folder of images; a path that all machines know, or an address such as s3://bucket/tape.mp4.
    pub input: String,
    /// .mp4, .mkv, .mov or .webm; a path, or an address such as s3://bucket/restored.mkv.
    pub output: String,
    /// The plan to write: job.json, or an address such as s3://bucket/jobs/tape.json.
    #[arg(long, short, value_name = "PLAN")]
    pub out: String,
    /// Segments of 120 frames in a shard.
    #[arg(long, value_name = "N", default_value_t = SEGMENTS, value_parser = clap::value_parser!(u16).range(1..))]
    pub segments: u16,
    #[command(flatten)]
    pub places: PlaceArgs,
    #[command(flatten)]
    pub job: JobArgs,
    #[command(flatten)]
    pub video: VideoArgs,
    #[command(flatten)]
    pub batches: BatchArgs,
}

#[derive(Args, Clone)]
pub struct ShardArgs {
    /// A plan of `reseed plan`.
    pub plan: String,
    /// The number of the shard, counted from 0.
    #[arg(required_unless_present = "missing")]
    pub shard: Option<usize>,
    /// List the shards that are not finished, and compute nothing.
    #[arg(long, conflicts_with = "shard")]
    pub missing: bool,
    /// cpu, cuda:N, cuda for all GPUs, or several such as cuda:0,cuda:1;
    /// auto is the first GPU if there is one
    #[arg(long, value_name = "NAME", default_value = AUTO, value_parser = device, verbatim_doc_comment)]
    pub device: String,
    /// CPU threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Compute on a machine of another kind than the finished shards; the
    /// bytes of the result then depend on which machine computed what
    #[arg(long, verbatim_doc_comment)]
    pub mixed: bool,
    #[command(flatten)]
    pub places: PlaceArgs,
    /// Print one JSON object per line on stdout instead of text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone)]
pub struct JoinArgs {
    /// A plan of `reseed plan`.
    pub plan: String,
    /// Another output than that of the plan.
    #[arg(long, value_name = "FILE")]
    pub output: Option<String>,
    /// Replace an existing output.
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub places: PlaceArgs,
    /// Print one JSON object per line on stdout instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Folders of this machine.
#[derive(Args, Clone)]
pub struct PlaceArgs {
    /// Folder for segments until they are stored [default: the folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub work: Option<PathBuf>,
    /// Folder for copies of inputs in object storage [default: in the folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub cache: Option<PathBuf>,
}
