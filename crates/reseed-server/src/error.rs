//! Why a server cannot start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("{address}: {cause}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The reason of the system.
        cause: io::Error,
    },
    /// The network could use the server without a token.
    #[error("{address}: reachable from the network, so that a token is needed; choose one, or a loopback address")]
    OpenToNetwork {
        /// The address.
        address: SocketAddr,
    },
    /// A token that is too easily guessed.
    #[error("the token has {length} characters, at least {least} visible ASCII characters are needed")]
    WeakToken {
        /// Its length.
        length: usize,
        /// The shortest length.
        least: usize,
    },
    /// A root is not a folder.
    #[error("{}: not a folder that can be served: {cause}", path.display())]
    Root {
        /// The root.
        path: PathBuf,
        /// The reason of the system.
        cause: io::Error,
    },
    /// A file of the data folder cannot be used.
    #[error("{}: {cause}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// The reason of the system.
        cause: io::Error,
    },
    /// Another server uses the data folder.
    #[error("{}: another server uses this folder; stop it, or choose another data folder", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// Two devices with one name.
    #[error("device {name} is given twice")]
    DeviceTwice {
        /// The device.
        name: String,
    },
    /// The system has no secure random numbers.
    #[error("the system has no random numbers for a token")]
    NoRandomness,
    /// The model or a device cannot be used.
    #[error(transparent)]
    Library(#[from] reseed::Error),
    /// The system refused a thread or a timer.
    #[error("the server cannot run: {0}")]
    System(io::Error),
}

/// Result of starting a server.
pub type Result<T> = std::result::Result<T, Error>;
