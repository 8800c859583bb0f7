//! Every way to fail, with the exit code that scripts see.

use std::fmt;
use std::path::Path;

use crate::ending;

/// A clear line and a code.
#[derive(Debug)]
pub enum Failure {
    /// Nobody's fault but ours, or the system's.
    Failed(String),
    /// Options that contradict each other.
    Usage(String),
    /// The input cannot be used.
    Input(String),
    /// The model cannot be used.
    Model(String),
    /// Not enough memory.
    Memory(String),
    /// Values left the range of the device's type.
    OutOfRange(String),
    /// The device is not there.
    Device(String),
    /// Ctrl-C; so many frames stay for a later run.
    Cancelled { kept: usize },
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Input(_) => 3,
            Failure::Model(_) => 4,
            Failure::Memory(_) => 5,
            Failure::Device(_) | Failure::OutOfRange(_) => 6,
            Failure::Cancelled { .. } => 130,
        }
    }

    /// An error that the input is to blame for.
    pub fn input(error: impl fmt::Display) -> Failure {
        Failure::Input(error.to_string())
    }

    /// Pictures that could not be written; a name, a codec or a size that does not fit them is a slip of the pen.
    pub fn output(error: reseed_media::Error) -> Failure {
        use reseed_media::Error;
        match error {
            Error::UnknownOutput { .. }
            | Error::WrongContainer { .. }
            | Error::OddSize { .. }
            | Error::NoEncoder { .. } => Failure::Usage(error.to_string()),
            error => Failure::Failed(error.to_string()),
        }
    }

    /// The same failure of a job of which so many frames stay for a later run.
    pub fn keeping(self, frames: usize) -> Failure {
        let note = |line: String| match frames {
            0 => line,
            _ => format!("{line}; {frames} finished frames are kept: --resume goes on"),
        };
        match self {
            Failure::Failed(line) => Failure::Failed(note(line)),
            Failure::Input(line) => Failure::Input(note(line)),
            Failure::Memory(line) => Failure::Memory(note(line)),
            Failure::Device(line) => Failure::Device(note(line)),
            other => other,
        }
    }

    /// A file that could not be written.
    pub fn write(path: &Path, error: std::io::Error) -> Failure {
        Failure::Failed(format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(line)
            | Failure::Usage(line)
            | Failure::Input(line)
            | Failure::Model(line)
            | Failure::Memory(line)
            | Failure::OutOfRange(line)
            | Failure::Device(line) => f.write_str(line),
            Failure::Cancelled { kept: 0 } => f.write_str("cancelled; nothing was written"),
            Failure::Cancelled { kept } => write!(f, "cancelled; {kept} finished frames are kept: --resume goes on"),
        }
    }
}

impl From<reseed_ops::Error> for Failure {
    fn from(error: reseed_ops::Error) -> Failure {
        match &error {
            reseed_ops::Error::OutOfMemory { .. } | reseed_ops::Error::HostMemory { .. } => {
                Failure::Memory(error.to_string())
            }
            reseed_ops::Error::OutOfRange { .. } => Failure::OutOfRange(error.to_string()),
            reseed_ops::Error::UnknownLevel { .. } => Failure::Usage(error.to_string()),
            _ => Failure::Device(error.to_string()),
        }
    }
}

impl From<reseed_model::Error> for Failure {
    fn from(error: reseed_model::Error) -> Failure {
        match error {
            reseed_model::Error::Device(error) => error.into(),
            error => Failure::Model(error.to_string()),
        }
    }
}

impl From<reseed::Error> for Failure {
    fn from(error: reseed::Error) -> Failure {
        use reseed::Error;
        match error {
            Error::Output(error) => Failure::output(error),
            Error::Model(error) => error.into(),
            Error::OtherVae { .. } | Error::Strangers { .. } => Failure::Model(error.to_string()),
            Error::NoPixels { .. } | Error::TooLarge { .. } => Failure::Usage(error.to_string()),
            Error::Cancelled => ending::cancelled(),
            error => Failure::Input(error.to_string()),
        }
    }
}

/// Result of a command.
pub type Result<T> = std::result::Result<T, Failure>;
