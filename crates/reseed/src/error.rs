//! Why a job could not be done.

use std::path::PathBuf;

use reseed_media::Size;
use reseed_ops::Shape;

/// Why a job could not be done, each as one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input could not be read.
    #[error(transparent)]
    Input(reseed_media::Error),
    /// The output could not be written.
    #[error(transparent)]
    Output(reseed_media::Error),
    /// A network or its device failed.
    #[error(transparent)]
    Model(#[from] reseed_model::Error),
    /// A VAE that is built otherwise.
    #[error("{path}: not a VAE of this family: those have RGB pictures, eight pixels and four frames a latent")]
    OtherVae {
        /// The file.
        path: PathBuf,
    },
    /// A VAE and a transformer that do not belong together.
    #[error("{vae} makes {vae_channels} channels, {dit} takes {dit_channels}; use the two files of one model")]
    Strangers {
        /// The VAE.
        vae: PathBuf,
        /// Channels of its latent.
        vae_channels: usize,
        /// The transformer.
        dit: PathBuf,
        /// Channels that it restores.
        dit_channels: usize,
    },
    /// The input ended before its first frame.
    #[error("there are no frames in the input")]
    NoFrames,
    /// The size asked for leaves nothing of the picture.
    #[error("{input} frames would become {output}: nothing would be left; ask for a larger size")]
    NoPixels {
        /// Of the input.
        input: Size,
        /// Of what would be written.
        output: Size,
    },
    /// The size asked for is beyond what can be held.
    #[error(
        "{input} frames would become {output}, larger than the {} pixels a side and {} in all that can be held; \
         ask for a smaller size",
        Size::MAX_SIDE,
        Size::MAX_PIXELS
    )]
    TooLarge {
        /// Of the input.
        input: Size,
        /// Of what would be written.
        output: Size,
    },
    /// A noise file that could not be read.
    #[error(transparent)]
    Noise(reseed_model::Error),
    /// A noise file without noise for one of the batches.
    #[error("{path}: there is no tensor `{name}`, and the job has a batch for it")]
    NoNoise {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A noise file made for another job.
    #[error("{path}: `{name}` is {found}, this job needs {needed}")]
    NoiseShape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What the file has.
        found: Shape,
        /// What the batch needs.
        needed: Shape,
    },
    /// Someone asked for the job to end.
    #[error("cancelled")]
    Cancelled,
}

/// Result of a job or of a part of it.
pub type Result<T> = std::result::Result<T, Error>;
