//! Options of `reseed preview`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use reseed::{Comparison, Position};

use super::JobArgs;
use super::upscale::BatchArgs;
use super::video::{ClipArgs, time};

#[derive(Args, Clone)]
#[command(group = ArgGroup::new("position").required(true).args(["at", "frame"]))]
pub struct PreviewArgs {
    /// A video, an animation or a folder of images.
    pub input: PathBuf,
    /// Time of the frame in the input: seconds, or h:m:s.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub at: Option<Duration>,
    /// Number of the frame, counted from 0.
    #[arg(long, value_name = "N")]
    pub frame: Option<usize>,
    /// The image to write; its extension sets the format.
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// Show the bicubic upscaled input too: beside the result (side), or
    /// instead of its left half, with a line between them (wipe)
    #[arg(long, value_enum, value_name = "side|wipe", hide_possible_values = true, verbatim_doc_comment)]
    pub compare: Option<CompareMode>,
    /// Replace an existing output.
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub job: JobArgs,
    #[command(flatten)]
    pub part: ClipArgs,
    #[command(flatten)]
    pub batches: BatchArgs,
}

impl PreviewArgs {
    /// The frame.
    pub fn position(&self) -> Position {
        match (self.at, self.frame) {
            (Some(time), _) => Position::Time(time),
            (None, frame) => Position::Frame(frame.unwrap_or(0)),
        }
    }
}

/// How the result is shown beside its input.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompareMode {
    Side,
    Wipe,
}

impl From<CompareMode> for Comparison {
    fn from(mode: CompareMode) -> Comparison {
        match mode {
            CompareMode::Side => Comparison::Side,
            CompareMode::Wipe => Comparison::Wipe,
        }
    }
}
