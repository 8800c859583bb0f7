//! Why a video cannot be computed in shards.

use std::path::PathBuf;

use reseed_media::Size;

use super::Kind;

/// Why a video cannot be computed in shards.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// The output is not a video.
    #[error("{}: shards are joined into a video; choose a name ending in .mkv, .mp4, .mov or .webm", path.display())]
    OutputKind {
        /// The output.
        path: PathBuf,
    },
    /// The input is a still image.
    #[error("{}: a still image has no shards; upscale it in one job", path.display())]
    Still {
        /// The input.
        path: PathBuf,
    },
    /// The noise of a job comes from a file.
    #[error("noise from a file cannot be shared by shards; use a seed")]
    NoiseFile,
    /// The plan cannot be read.
    #[error("not a usable shard plan: {reason}; plan again")]
    Plan {
        /// What is wrong.
        reason: &'static str,
    },
    /// The plan has fewer shards.
    #[error("shard {shard}: the plan has {shards}, numbered from 0")]
    NoSuchShard {
        /// The number that was asked for.
        shard: usize,
        /// The number of shards.
        shards: usize,
    },
    /// The input is not the one of the plan.
    #[error("{}: {found}, but the plan was made for {planned}; plan again", path.display())]
    OtherSize {
        /// The input.
        path: PathBuf,
        /// Size of its frames in the plan.
        planned: Size,
        /// Size of its frames now.
        found: Size,
    },
    /// This machine computes other bytes than those that have computed shards already.
    #[error("{value} is {here} here and {there} in the finished shards; use machines of one kind, or allow mixed ones")]
    OtherClass {
        /// What differs.
        value: String,
        /// Its value on the other machines.
        there: String,
        /// Its value here.
        here: String,
    },
    /// The memory of this machine allows another plan than that of finished shards.
    #[error(
        "the free GPU memory here leads to other slices than in the finished shards; free it, or plan with a budget"
    )]
    OtherPlan,
}

impl ShardError {
    /// What the error is about.
    pub fn kind(&self) -> Kind {
        match self {
            ShardError::OutputKind { .. }
            | ShardError::Still { .. }
            | ShardError::NoiseFile
            | ShardError::NoSuchShard { .. } => Kind::Usage,
            ShardError::Plan { .. } | ShardError::OtherSize { .. } => Kind::Input,
            ShardError::OtherClass { .. } => Kind::Device,
            ShardError::OtherPlan => Kind::Memory,
        }
    }
}
