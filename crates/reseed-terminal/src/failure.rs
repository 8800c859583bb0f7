//! Errors as one line for the user, with the flags that help, and their exit codes.

use std::fmt;
use std::path::Path;

use reseed::internals::Bytes;
use reseed::{Error, Kind};

use crate::shutdown;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The library's reason.
    Library(Error),
    /// The system failed.
    Failed(String),
    /// Options contradict each other or the files at hand.
    Usage(String),
    /// The input cannot be used.
    Input(String),
    /// The input is damaged, and what could be read of it is restored.
    Damaged(String),
    /// A model file is not what it should be.
    Model(String),
}

impl Failure {
    fn kind(&self) -> Kind {
        match self {
            Failure::Library(error) => error.kind(),
            Failure::Failed(_) => Kind::Failed,
            Failure::Usage(_) => Kind::Usage,
            Failure::Input(_) | Failure::Damaged(_) => Kind::Input,
            Failure::Model(_) => Kind::Model,
        }
    }

    /// The kind in JSON events.
    pub fn kind_name(&self) -> &'static str {
        self.kind().name()
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.kind().exit_code()
    }

    /// An error of the input.
    pub fn input(error: impl fmt::Display) -> Failure {
        Failure::Input(error.to_string())
    }

    /// An error of the output.
    pub fn output(error: reseed::media::Error) -> Failure {
        Failure::Library(Error::Output(error))
    }

    /// A file that could not be written.
    pub fn write(path: &Path, error: std::io::Error) -> Failure {
        Failure::Failed(format!("{}: {error}", path.display()))
    }

    /// Whether the user ended the command.
    pub fn is_cancelled(&self) -> bool {
        self.kind() == Kind::Cancelled
    }

    /// Whether values left the range of the device's type.
    pub fn is_out_of_range(&self) -> bool {
        matches!(self, Failure::Library(error) if error.is_out_of_range())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Library(error) => f.write_str(&with_flags(error)),
            Failure::Failed(line)
            | Failure::Usage(line)
            | Failure::Input(line)
            | Failure::Damaged(line)
            | Failure::Model(line) => f.write_str(line),
        }
    }
}

/// The message of an error with the flags of this command line.
fn with_flags(error: &Error) -> String {
    match error {
        Error::Kept { frames, error } if matches!(**error, Error::Cancelled) => {
            format!("cancelled; {frames} finished frames are kept: --resume continues")
        }
        Error::Kept { frames, error } => {
            format!("{}; {frames} finished frames are kept: --resume continues", with_flags(error))
        }
        Error::Cancelled => format!("cancelled; {}", shutdown::left()),
        Error::OutputExists { .. } => format!("{error}; --overwrite replaces it"),
        Error::Unfinished { .. } => format!("{error}; --resume continues, --overwrite starts again"),
        Error::SettingChanged { .. } => {
            format!("{error}; resume with the same settings, or start again with --overwrite")
        }
        error if error.is_damage() => format!("{error} with --overwrite"),
        Error::PipeNotResumable => format!("--resume: {error}"),
        Error::UnknownDevice { .. } => format!("--device {error}"),
        Error::BudgetOnCpu => "--max-vram is for --device cuda; on the CPU --slice and --tile save memory".into(),
        Error::Tf32OnCpu => "--dtype tf32 needs tensor cores; use --device cuda, or --dtype f32, f16 or bf16".into(),
        Error::TileTooSmall { .. } => format!("--{error}"),
        Error::TileOverlap { overlap, tile } => format!("overlap {overlap} must be smaller than --tile {tile}"),
        Error::OutOfUnit { setting, value } => {
            format!("--{} {value}: must be between 0 and 1", setting.replace(' ', "-"))
        }
        Error::OverlapTooLong { overlap, batch } => {
            format!("--overlap {overlap} must be smaller than --batch-size {batch}")
        }
        Error::OverBudget { device, what, available, needed } => format!(
            "{device}: {} available for {what}, at least {} needed; raise --max-vram, or use smaller frames or batches",
            Bytes(*available),
            Bytes(*needed),
        ),
        Error::SliceTooLarge { .. } => format!("{error} (--slice)"),
        Error::FrameCountUnknown => "frame count unknown; pass --frames".into(),
        Error::ModelMissing { file, model, folder } => format!(
            "{file}: not on this machine; run `reseed models pull {model}`, or put the file into {}",
            folder.display()
        ),
        Error::EmbeddedModel { name } => format!("{error}; --model {name} uses it"),
        Error::PartMissing { part, .. } => {
            format!("{error} with {}", if *part == "VAE" { "--vae" } else { "--text-embedding" })
        }
        Error::FixedFiles { name } => format!("--vae and --text-embedding are for model files; {name} has its own"),
        Error::FixedLayers { name } => format!("--layers is for formula models; {name} has its own"),
        error => error.to_string(),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Library(error)
    }
}

impl From<reseed::internals::ops::Error> for Failure {
    fn from(error: reseed::internals::ops::Error) -> Failure {
        Failure::Library(error.into())
    }
}

impl From<reseed::internals::model::Error> for Failure {
    fn from(error: reseed::internals::model::Error) -> Failure {
        Failure::Library(error.into())
    }
}

/// Result of a command.
pub type Result<T> = std::result::Result<T, Failure>;
