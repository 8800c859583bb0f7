//! Why something could not be done: errors with data, and the kind that a front end maps to an exit code or a status.

mod convert;
mod download;
mod kind;
mod range;
mod shard;

use std::io;
use std::path::PathBuf;

use reseed_media::Size;
use reseed_ops::{Hw, Shape};

use crate::bytes::Bytes;
pub use convert::Result;
use convert::prefix;
pub use download::DownloadError;
pub use kind::Kind;
pub use range::RangeError;
pub use shard::ShardError;

/// Why something could not be done. Each is one line: what failed, why, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input could not be read.
    #[error(transparent)]
    Input(reseed_media::Error),
    /// The output could not be written.
    #[error(transparent)]
    Output(reseed_media::Error),
    /// A file that is read beside the input could not be read.
    #[error("{}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// A file could not be written.
    #[error("{}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// A network or its device failed.
    #[error(transparent)]
    Model(#[from] reseed_model::Error),
    /// The file holds a VAE of another family.
    #[error(
        "{}: not a VAE of this family, which has RGB frames, 8 pixels and 4 frames per latent; use its own VAE file",
        path.display()
    )]
    OtherVae {
        /// The file.
        path: PathBuf,
    },
    /// The VAE and the transformer belong to different models.
    #[error(
        "{} has {vae_channels} latent channels and {} has {dit_channels}; use the two files of one model",
        vae.display(),
        dit.display()
    )]
    Mismatch {
        /// The VAE.
        vae: PathBuf,
        /// Channels of its latent.
        vae_channels: usize,
        /// The transformer.
        dit: PathBuf,
        /// Channels of its latent.
        dit_channels: usize,
    },
    /// The input has no frames.
    #[error("{}there are no frames in {}", prefix(path), if path.is_some() { "it" } else { "the input" })]
    NoFrames {
        /// The input, where it is a file.
        path: Option<PathBuf>,
    },
    /// A value of a frame is not a number.
    #[error("frame {frame}, row {}, column {}, channel {}: not a number; give values in 0 to 1", at[0], at[1], at[2])]
    NotANumber {
        /// Index of the frame.
        frame: usize,
        /// Indices of row, column and channel.
        at: [usize; 3],
    },
    /// The input does not know how many frames it has.
    #[error("frame count unknown; set the number of frames")]
    FrameCountUnknown,
    /// A part of a clip cannot be computed.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// A video cannot be computed in shards.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// The target size has no pixels.
    #[error("{input} frames would become {output}, which has no pixels; choose a larger size")]
    NoPixels {
        /// Size of the input.
        input: Size,
        /// Size of the output.
        output: Size,
    },
    /// The target size is too large.
    #[error(
        "{input} frames would become {output}, larger than the limit of {} pixels per side and {} per frame; \
         choose a smaller size",
        Size::MAX_SIDE,
        Size::MAX_PIXELS
    )]
    TooLarge {
        /// Size of the input.
        input: Size,
        /// Size of the output.
        output: Size,
    },
    /// A noise file could not be read.
    #[error(transparent)]
    Noise(reseed_model::Error),
    /// A noise file has no noise for a batch.
    #[error("{}: no tensor `{name}`, which a batch of this job needs", path.display())]
    NoNoise {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A noise file was made for another job.
    #[error("{}: `{name}` is {found}, this job needs {needed}", path.display())]
    NoiseShape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its shape.
        found: Shape,
        /// The shape that the batch needs.
        needed: Shape,
    },
    /// A tensor file could not be read.
    #[error(transparent)]
    Tensor(reseed_model::Error),
    /// A file is not what it should be.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A setting is outside of 0 to 1.
    #[error("{setting} {value}: must be between 0 and 1")]
    OutOfUnit {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: f32,
    },
    /// Batches share more frames than they have.
    #[error("an overlap of {overlap} frames must be smaller than the batch size of {batch}")]
    OverlapTooLong {
        /// Frames shared by neighbouring batches.
        overlap: usize,
        /// Frames of a batch.
        batch: usize,
    },
    /// A spatial tile is too small.
    #[error("tile {tile}: a tile has at least {least} pixels per side")]
    TileTooSmall {
        /// The tile in pixels.
        tile: Hw,
        /// The smallest side.
        least: usize,
    },
    /// Tiles overlap by more than their size.
    #[error("a tile overlap of {overlap} must be smaller than the tile {tile}")]
    TileOverlap {
        /// The overlap in pixels.
        overlap: Hw,
        /// The tile in pixels.
        tile: Hw,
    },
    /// No device has this name.
    #[error("{name}: unknown device; the devices are auto, cpu, cuda and cuda:N, or several with commas between them")]
    UnknownDevice {
        /// The name.
        name: String,
    },
    /// The devices of a session compute differently.
    #[error("{first} and {other} compute with different rounding; use devices of one kind for a job")]
    MixedDevices {
        /// The first device.
        first: String,
        /// One that differs.
        other: String,
    },
    /// The library was built without support for this device.
    #[error("{name}: this build has no support for it; build with the cargo feature `{feature}`, or use the CPU")]
    NotBuilt {
        /// The device.
        name: String,
        /// The missing cargo feature.
        feature: &'static str,
    },
    /// A memory budget was set for the CPU.
    #[error("a memory budget is for GPUs; on the CPU short slices and tiles save memory")]
    BudgetOnCpu,
    /// The CPU has no tf32.
    #[error("tf32 needs the tensor cores of a GPU; use f32, f16 or bf16 on the CPU")]
    Tf32OnCpu,
    /// The budget is too small.
    #[error(
        "{device}: {} available for {what}, at least {} needed; raise the memory budget, or use smaller frames or \
         batches",
        Bytes(*available),
        Bytes(*needed)
    )]
    OverBudget {
        /// The device.
        device: String,
        /// What the memory is for.
        what: &'static str,
        /// Bytes within the budget.
        available: usize,
        /// Bytes of the smallest plan.
        needed: usize,
    },
    /// Other processes allocate the memory that was planned with.
    #[error("{device}: another process keeps allocating its memory; gave up after {attempts} attempts")]
    Contended {
        /// The device.
        device: String,
        /// Plans that were tried.
        attempts: usize,
    },
    /// The host cannot hold the frames of a slice.
    #[error("a slice needs {} of host memory; use shorter slices", Bytes(*bytes))]
    SliceTooLarge {
        /// Bytes of one slice.
        bytes: usize,
    },
    /// The host has no memory left.
    #[error("out of host memory: {what} need {}; use smaller frames or shorter batches", Bytes(*bytes))]
    OutOfHostMemory {
        /// What the memory is for.
        what: &'static str,
        /// Bytes of the allocation.
        bytes: usize,
    },
    /// No model has this name.
    #[error("{name}: no such file or folder and no such model; the models are {}", known.join(", "))]
    UnknownModel {
        /// The name.
        name: String,
        /// The names of the registry.
        known: Vec<&'static str>,
    },
    /// The VAE or the text embedding of a model file was not found.
    #[error("{}: its {part} {file} is neither beside it nor in {}; give its path", model.display(), folder.display())]
    PartMissing {
        /// The transformer.
        model: PathBuf,
        /// VAE or text embedding.
        part: &'static str,
        /// The name of the public file.
        file: &'static str,
        /// The folder for files that a user brings.
        folder: PathBuf,
    },
    /// The model cannot be combined with another VAE or text embedding.
    #[error("{name}: this model has its own VAE and text embedding; give other ones with a model file or folder")]
    FixedFiles {
        /// The model.
        name: String,
    },
    /// The model is embedded in the library and has no files.
    #[error("{name}: this model is embedded and has no files")]
    EmbeddedModel {
        /// The name.
        name: String,
    },
    /// No formula model has this size.
    #[error("{name}: unknown size; the sizes are {known}")]
    UnknownFormula {
        /// The name.
        name: String,
        /// The sizes, in words.
        known: &'static str,
    },
    /// Only formula models can be cut to a number of layers.
    #[error("{name}: only formula models can have another number of layers")]
    FixedLayers {
        /// The model.
        name: String,
    },
    /// A file of a model is not on this machine.
    #[error("{file}: not on this machine; download the model {model}, or put the file into {}", folder.display())]
    ModelMissing {
        /// The file.
        file: &'static str,
        /// The model that needs it.
        model: &'static str,
        /// The folder for files that a user brings.
        folder: PathBuf,
    },
    /// A file of a model could not be downloaded.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// A file of a model could not be read.
    #[error("{}: {cause}", path.display())]
    ModelFile {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The output is the input.
    #[error("{} is both input and output", path.display())]
    SameFile {
        /// The file.
        path: PathBuf,
    },
    /// The output exists.
    #[error("{}: already exists", path.display())]
    OutputExists {
        /// The output.
        path: PathBuf,
    },
    /// An interrupted job has left finished work at this output.
    #[error("{}: an interrupted job has finished {frames} frames of it", path.display())]
    Unfinished {
        /// The output.
        path: PathBuf,
        /// Finished frames.
        frames: usize,
    },
    /// A job can be resumed only with the settings that it started with.
    #[error("{}: cannot be resumed: {setting} was {before} and is now {now}", path.display())]
    SettingChanged {
        /// The output.
        path: PathBuf,
        /// The setting.
        setting: String,
        /// Its value when the job started.
        before: String,
        /// Its value now.
        now: String,
    },
    /// Pipes cannot be resumed.
    #[error("a pipe cannot be resumed; use files")]
    PipeNotResumable,
    /// There is no interrupted job at this output.
    #[error("{}: no interrupted job to resume", path.display())]
    NothingToResume {
        /// The output.
        path: PathBuf,
    },
    /// Another process works at this output.
    #[error("{}: another process is writing this output; wait for it", path.display())]
    Busy {
        /// The work folder.
        path: PathBuf,
    },
    /// The journal of an interrupted job, or a file that it needs, is damaged.
    #[error("{}: the journal of the interrupted job is damaged; start again", path.display())]
    JournalDamaged {
        /// The work folder or its damaged file.
        path: PathBuf,
    },
    /// A job stopped after some frames were safe on disk.
    #[error("{error}; {frames} finished frames are kept")]
    Kept {
        /// Frames that a resumed job does not compute again.
        frames: usize,
        /// Why it stopped.
        #[source]
        error: Box<Error>,
    },
    /// The observer cancelled the job.
    #[error("cancelled")]
    Cancelled,
}
