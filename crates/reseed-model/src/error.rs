use std::path::PathBuf;

use reseed_ops::Shape;

use crate::weights::Model;

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused to read or write a file.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Too short for a header, or a header whose length cannot be true.
    #[error("{path}: not a safetensors file: its header claims {header} bytes, the file has {file}")]
    HeaderLength {
        /// The file.
        path: PathBuf,
        /// Length the first eight bytes claim.
        header: u64,
        /// Length of the file.
        file: u64,
    },
    /// The header is not the JSON it should be.
    #[error("{path}: not a safetensors file: {reason}")]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor's place in the file contradicts its shape, its neighbours or the file's length.
    #[error("{path}: `{name}` should stand at bytes {start}..{end} of {available}: {reason}")]
    Extent {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// First byte of its data.
        start: u64,
        /// Byte behind its data.
        end: u64,
        /// Bytes of data in the file.
        available: u64,
        /// What contradicts.
        reason: &'static str,
    },
    /// A tensor of a type that cannot be used here.
    #[error("{path}: `{name}` is {found}; use a file with {known} tensors")]
    WrongType {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its type, as the file spells it.
        found: String,
        /// Types that can be used.
        known: &'static str,
    },
    /// A GGUF file that contradicts itself.
    #[error("{path}: not a usable GGUF file: {reason}")]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A GGUF file of some other network.
    #[error("{path}: a GGUF file of architecture `{found}`, not of {}", Model::Dit)]
    Architecture {
        /// The file.
        path: PathBuf,
        /// What it says of itself.
        found: String,
    },
    /// A file of PyTorch that is not one tensor.
    #[error("{path}: not a tensor saved by PyTorch: {reason}")]
    Torch {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A model folder lacks a file.
    #[error("{folder}: this model folder lacks {}", lacking(*model))]
    NoModelFile {
        /// The folder.
        folder: PathBuf,
        /// What is not there.
        model: Model,
    },
    /// A model folder with several transformers.
    #[error("{folder}: both {first} and {second} are here; leave one, or rename it to dit.safetensors or dit.gguf")]
    WhichDit {
        /// The folder.
        folder: PathBuf,
        /// One of them.
        first: String,
        /// Another.
        second: String,
    },
    /// A model without a text embedding.
    #[error("{folder}: this model folder lacks its text embedding; add pos_emb.pt or pos_emb.safetensors")]
    NoText {
        /// The folder.
        folder: PathBuf,
    },
    /// A file of text embeddings, none of them by the right name.
    #[error("{path}: one of its {count} tensors must be called `positive_conditioning`")]
    WhichText {
        /// The file.
        path: PathBuf,
        /// How many tensors it holds.
        count: usize,
    },
    /// A tensor that the model needs is not in the file.
    #[error("{path}: `{name}` is missing; is this {model}?")]
    Missing {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What the file should hold.
        model: Model,
    },
    /// Matrices that other tensors scale.
    #[error(
        "{path}: `{name}` belongs to scaled weights, which are not supported; use a plain f16, f8_e4m3fn or GGUF file"
    )]
    Scaled {
        /// The file.
        path: PathBuf,
        /// The first tensor that says so.
        name: String,
    },
    /// A tensor has another shape than the model needs.
    #[error("{path}: `{name}` is {found}, this model needs {needed}")]
    WrongShape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What the file has.
        found: Shape,
        /// What the other tensors imply.
        needed: Shape,
    },
    /// The file holds tensors that no part of the model uses.
    #[error("{path}: {count} tensors are not part of this model, first `{first}`")]
    Extra {
        /// The file.
        path: PathBuf,
        /// How many.
        count: usize,
        /// The first by name.
        first: String,
    },
    /// A value in the file's metadata makes no sense.
    #[error("{path}: metadata `{key}` is \"{value}\"; {needed}")]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// What the file has.
        value: String,
        /// What it should be.
        needed: String,
    },
    /// A saved clip state does not belong to this model or device.
    #[error("saved state: {0}")]
    State(String),
    /// The device failed.
    #[error(transparent)]
    Device(reseed_ops::Error),
}

fn lacking(model: Model) -> &'static str {
    match model {
        Model::Vae => "its VAE; add vae.safetensors or ema_vae_fp16.safetensors",
        Model::Dit => {
            "its transformer; add dit.safetensors, dit.gguf or a public file such as seedvr2_ema_3b_fp16.safetensors"
        }
    }
}

impl From<reseed_ops::Error> for Error {
    fn from(error: reseed_ops::Error) -> Error {
        // A weight that could not be read travels through the device as a stranger; here it is at home again.
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
