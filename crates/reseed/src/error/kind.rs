//! The kind of an error.

use super::{DownloadError, Error};

/// What an error is about, for front ends that map errors to exit codes or HTTP status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The system failed, or this library did.
    Failed,
    /// The settings contradict each other or the files at hand.
    Usage,
    /// The input cannot be used.
    Input,
    /// The model cannot be used.
    Model,
    /// There is not enough memory.
    Memory,
    /// The device is not available or failed.
    Device,
    /// The observer cancelled the job.
    Cancelled,
}

impl Kind {
    /// The kind in events and exceptions.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Failed => "failed",
            Kind::Usage => "usage",
            Kind::Input => "input",
            Kind::Model => "model",
            Kind::Memory => "memory",
            Kind::Device => "device",
            Kind::Cancelled => "cancelled",
        }
    }

    /// The exit code of a command that fails with it.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Input => 3,
            Kind::Model => 4,
            Kind::Memory => 5,
            Kind::Device => 6,
            Kind::Cancelled => 130,
        }
    }
}

impl Error {
    /// What the error is about.
    pub fn kind(&self) -> Kind {
        use reseed_media::Error as Media;
        match self {
            Error::Kept { error, .. } => error.kind(),
            Error::Cancelled => Kind::Cancelled,
            Error::Shard(error) => error.kind(),
            Error::Model(reseed_model::Error::Device(error)) => match error {
                reseed_ops::Error::OutOfMemory { .. }
                | reseed_ops::Error::HostMemory { .. }
                | reseed_ops::Error::Threads { .. } => Kind::Memory,
                reseed_ops::Error::UnknownLevel { .. } => Kind::Usage,
                _ => Kind::Device,
            },
            Error::Output(
                Media::UnknownOutput { .. }
                | Media::BadName { .. }
                | Media::WrongContainer { .. }
                | Media::OddSize { .. }
                | Media::BadCrf { .. }
                | Media::NoEncoder { .. },
            ) => Kind::Usage,
            Error::Output(_)
            | Error::Write { .. }
            | Error::Download(DownloadError::Busy { .. })
            | Error::JournalDamaged { .. } => Kind::Failed,
            Error::Input(_)
            | Error::Read { .. }
            | Error::NoFrames { .. }
            | Error::NotANumber { .. }
            | Error::Noise(_)
            | Error::Tensor(_)
            | Error::Unusable { .. }
            | Error::NoNoise { .. }
            | Error::NoiseShape { .. } => Kind::Input,
            Error::Model(_)
            | Error::OtherVae { .. }
            | Error::Mismatch { .. }
            | Error::UnknownModel { .. }
            | Error::PartMissing { .. }
            | Error::EmbeddedModel { .. }
            | Error::UnknownFormula { .. }
            | Error::ModelMissing { .. }
            | Error::ModelFile { .. }
            | Error::Download(_) => Kind::Model,
            Error::OverBudget { .. }
            | Error::Contended { .. }
            | Error::SliceTooLarge { .. }
            | Error::OutOfHostMemory { .. } => Kind::Memory,
            Error::NotBuilt { .. } => Kind::Device,
            _ => Kind::Usage,
        }
    }

    /// Whether values left the range of the device's type, which a wider type cures.
    pub fn is_out_of_range(&self) -> bool {
        match self {
            Error::Kept { error, .. } => error.is_out_of_range(),
            Error::Model(reseed_model::Error::Device(reseed_ops::Error::OutOfRange { .. })) => true,
            _ => false,
        }
    }

    /// Whether the work of an interrupted job is damaged, so that it cannot be resumed.
    pub fn is_damage(&self) -> bool {
        use reseed_media::Error::{DamagedFrames, MissingFrame};
        matches!(self, Error::JournalDamaged { .. } | Error::Output(MissingFrame { .. } | DamagedFrames { .. }))
    }

    /// The same error of a job of which so many frames are safe on disk.
    pub(crate) fn keeping(self, frames: usize) -> Error {
        if frames == 0 { self } else { Error::Kept { frames, error: Box::new(self) } }
    }
}
