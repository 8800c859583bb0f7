use std::fmt;
use std::path::PathBuf;

use reseed_ops::Shape;

/// Failure to load or run a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The length of a safetensors header is impossible.
    #[error("{path}: not a safetensors file: its header claims {header} bytes, the file has {file}")]
    InvalidHeaderLength {
        /// The file.
        path: PathBuf,
        /// Header length in the first eight bytes.
        header: u64,
        /// Length of the file.
        file: u64,
    },
    /// A safetensors header cannot be parsed.
    #[error("{path}: not a safetensors file: {reason}")]
    InvalidHeader {
        /// The file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The data offsets of a tensor contradict its shape, another tensor or the length of the file.
    #[error("{path}: `{name}` has data offsets {start}..{end} of {available} bytes: {reason}")]
    InvalidOffsets {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// First byte of its data.
        start: u64,
        /// End of its data.
        end: u64,
        /// Bytes of data in the file.
        available: u64,
        /// Reason.
        reason: &'static str,
    },
    /// The element type of a tensor is not supported.
    #[error("{path}: `{name}` is {found}; use a file with {supported} tensors")]
    UnsupportedType {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its type, as written in the file.
        found: String,
        /// Supported types.
        supported: &'static str,
    },
    /// A GGUF file cannot be parsed.
    #[error("{path}: not a usable GGUF file: {reason}")]
    InvalidGguf {
        /// The file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// A GGUF file contains another network.
    #[error("{path}: a GGUF file of architecture `{found}`; expected {}", Network::Dit)]
    WrongArchitecture {
        /// The file.
        path: PathBuf,
        /// Architecture in the metadata.
        found: String,
    },
    /// A PyTorch file does not contain exactly one tensor.
    #[error("{path}: not a tensor saved by PyTorch: {reason}")]
    InvalidTorchFile {
        /// The file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// A model folder lacks the file of a network.
    #[error("{folder}: this model folder lacks {}", missing_file(*network))]
    MissingFile {
        /// The folder.
        folder: PathBuf,
        /// The network.
        network: Network,
    },
    /// A model folder contains several transformers.
    #[error("{folder}: found both {first} and {second}; keep one, or rename it to dit.safetensors or dit.gguf")]
    AmbiguousDit {
        /// The folder.
        folder: PathBuf,
        /// First file.
        first: String,
        /// Second file.
        second: String,
    },
    /// A model folder lacks the text embedding.
    #[error("{folder}: this model folder lacks its text embedding; add pos_emb.pt or pos_emb.safetensors")]
    MissingText {
        /// The folder.
        folder: PathBuf,
    },
    /// A file of text embeddings has several tensors, none with the expected name.
    #[error("{path}: none of its {count} tensors is named `positive_conditioning`; rename the text embedding")]
    AmbiguousText {
        /// The file.
        path: PathBuf,
        /// Number of tensors.
        count: usize,
    },
    /// A file lacks a tensor of the network.
    #[error("{path}: `{name}` is missing; use {network}")]
    MissingTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The expected network.
        network: Network,
    },
    /// A file claims a size that no network of this family has.
    #[error("{path}: {found} {what}; at most {limit} are supported: use {network}")]
    OverLimit {
        /// The file.
        path: PathBuf,
        /// The size.
        what: &'static str,
        /// Its value in the file.
        found: usize,
        /// Its limit.
        limit: usize,
        /// The expected network.
        network: Network,
    },
    /// A file has scales of matrices whose format nothing describes.
    #[error(
        "{path}: `{name}` belongs to scaled weights of unknown format; use an unmodified checkpoint, such as \
         seedvr2_3b_int8_convrot.safetensors"
    )]
    ScaledWeights {
        /// The file.
        path: PathBuf,
        /// First tensor of scales.
        name: String,
    },
    /// A matrix is quantised in a format that is not supported.
    #[error(
        "{path}: `{name}` is quantised as {format}, which is not supported; use a file in f16, fp8, int8 ConvRot, \
         MXFP8, NVFP4 or GGUF, such as seedvr2_3b_int8_convrot.safetensors"
    )]
    UnsupportedQuantization {
        /// The file.
        path: PathBuf,
        /// The tensor, or the layer.
        name: String,
        /// Name of the format.
        format: String,
    },
    /// The description or the scales of a quantised matrix are invalid.
    #[error("{path}: invalid quantisation: `{name}`: {reason}; download the file again, or use an unmodified one")]
    InvalidQuantization {
        /// The file.
        path: PathBuf,
        /// The tensor, or the layer.
        name: String,
        /// Reason.
        reason: String,
    },
    /// The shape of a tensor does not match the network.
    #[error("{path}: `{name}` is {found}, this model needs {expected}")]
    WrongShape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Shape in the file.
        found: Shape,
        /// Shape that the other tensors imply.
        expected: Shape,
    },
    /// A file has tensors that are not part of the network.
    #[error("{path}: {count} tensors are not part of this model, first `{first}`; use an unmodified checkpoint")]
    UnexpectedTensors {
        /// The file.
        path: PathBuf,
        /// Number of these tensors.
        count: usize,
        /// First of them by name.
        first: String,
    },
    /// A metadata value is invalid.
    #[error("{path}: metadata `{key}` is \"{value}\"; {expected}")]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// Value in the file.
        value: String,
        /// Requirement on the value.
        expected: String,
    },
    /// A saved state does not match the model or the device.
    #[error("saved state: {0}")]
    State(String),
    /// The device failed.
    #[error(transparent)]
    Device(reseed_ops::Error),
}

/// Network that a file is expected to contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The causal video VAE.
    Vae,
    /// The diffusion transformer.
    Dit,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Network::Vae => "a SeedVR2 VAE, such as ema_vae_fp16.safetensors",
            Network::Dit => "a SeedVR2 transformer, such as seedvr2_ema_3b_fp16.safetensors",
        })
    }
}

/// A text of a file as part of one line of an error: without line breaks, and cut where it is long.
pub(crate) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut line: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}

fn missing_file(network: Network) -> &'static str {
    match network {
        Network::Vae => "its VAE; add vae.safetensors or ema_vae_fp16.safetensors",
        Network::Dit => {
            "its transformer; add dit.safetensors, dit.gguf or a public file such as seedvr2_ema_3b_fp16.safetensors"
        }
    }
}

impl From<reseed_ops::Error> for Error {
    fn from(error: reseed_ops::Error) -> Error {
        // A device wraps errors of the closures that read weights. Unwrap those of this crate.
        match error {
            reseed_ops::Error::Weight(inner) => match inner.downcast::<Error>() {
                Ok(error) => *error,
                Err(inner) => Error::Device(reseed_ops::Error::Weight(inner)),
            },
            error => Error::Device(error),
        }
    }
}

impl From<Error> for reseed_ops::Error {
    fn from(error: Error) -> reseed_ops::Error {
        reseed_ops::Error::Weight(Box::new(error))
    }
}

/// Result of loading or running a model.
pub type Result<T> = std::result::Result<T, Error>;
