//! Model folders: files of the VAE, the transformer and the text embedding under known names.

use std::path::{Path, PathBuf};

use reseed_ops::Shape;

use crate::dit;
use crate::error::{Error, Result};
use crate::weights::gguf::Gguf;
use crate::weights::safetensors::Safetensors;
use crate::weights::{Network, Source, torch};

/// File names of the VAE, in order of preference.
const VAE_NAMES: &[&str] = &["vae.safetensors", "ema_vae_fp16.safetensors", "seedvr2_ema_vae_fp16.safetensors"];
/// File names of the transformer, in order of preference. They precede the names of the public files.
const DIT_NAMES: &[&str] = &["dit.safetensors", "dit.gguf"];
/// File names of the text embedding, in order of preference.
const TEXT_NAMES: &[&str] = &["pos_emb.pt", "pos_emb.safetensors"];
/// Tensor name of the text embedding in a safetensors file.
const TEXT_TENSOR: &str = "positive_conditioning";

/// Paths of the files of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFolder {
    /// The folder.
    pub path: PathBuf,
    /// File of the VAE.
    pub vae: PathBuf,
    /// File of the transformer.
    pub dit: PathBuf,
    /// File of the text embedding. `None` when the transformer file includes it.
    pub text: Option<PathBuf>,
}

/// Embedding of the text prompt that conditions every restoration.
#[derive(Clone, Debug, PartialEq)]
pub struct TextEmbedding {
    /// `[tokens, width]`.
    pub shape: Shape,
    /// The values.
    pub values: Vec<f32>,
}

impl ModelFolder {
    /// Finds the files of a model in a folder.
    pub fn open(path: &Path) -> Result<ModelFolder> {
        ModelFolder::open_with(path, [None; 2])
    }

    /// The same with another VAE or text embedding, where one is given.
    pub fn open_with(path: &Path, [vae, text]: [Option<&Path>; 2]) -> Result<ModelFolder> {
        let io = |source| Error::Io { path: path.into(), source };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(io)? {
            names.extend(entry.map_err(io)?.file_name().into_string());
        }
        names.sort();
        let first = |known: &[&str]| known.iter().find(|name| names.iter().any(|n| n == *name)).map(|n| path.join(n));
        let missing = |network| Error::MissingFile { folder: path.into(), network };
        let dit = match first(DIT_NAMES) {
            Some(dit) => dit,
            None => path.join(public_dit(path, &names)?.ok_or_else(|| missing(Network::Dit))?),
        };
        let vae = vae.map(Path::to_path_buf).or_else(|| first(VAE_NAMES)).ok_or_else(|| missing(Network::Vae))?;
        let text = text.map(Path::to_path_buf).or_else(|| first(TEXT_NAMES));
        Ok(ModelFolder { path: path.into(), vae, dit, text })
    }

    /// The VAE and the text embedding in a folder, where it has them.
    pub fn parts(path: &Path) -> [Option<PathBuf>; 2] {
        let first = |known: &[&str]| known.iter().map(|name| path.join(name)).find(|path| path.is_file());
        [first(VAE_NAMES), first(TEXT_NAMES)]
    }

    /// Opens the weights of the VAE.
    pub fn vae(&self) -> Result<Safetensors> {
        Safetensors::open_network(&self.vae)
    }

    /// Opens the weights of the transformer.
    pub fn dit(&self) -> Result<Box<dyn Source>> {
        Ok(match self.dit.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")) {
            true => Box::new(Gguf::open(&self.dit)?),
            false => Box::new(dit::open(&self.dit)?),
        })
    }

    /// Reads the text embedding from its own file or from the weights of the transformer. `width` is the channels per
    /// token that the transformer expects.
    pub fn text(&self, dit: &dyn Source, width: usize) -> Result<TextEmbedding> {
        let Some(path) = &self.text else {
            let missing = || Error::MissingText { folder: self.path.clone() };
            return TextEmbedding::from_weights(dit, width)?.ok_or_else(missing);
        };
        if path.extension().is_some_and(|e| e == "pt") {
            let (shape, values) = torch::read(path)?;
            return TextEmbedding::new(path, "data/0", shape, values, width);
        }
        let file = Safetensors::open(path)?;
        let names: Vec<&String> = file.shapes().keys().collect();
        let name = match &names[..] {
            [only] => only.as_str(),
            _ if file.shapes().contains_key(TEXT_TENSOR) => TEXT_TENSOR,
            _ => return Err(Error::AmbiguousText { path: path.clone(), count: names.len() }),
        };
        TextEmbedding::new(path, name, file.shapes()[name], file.read(name)?, width)
    }
}

impl TextEmbedding {
    /// Whether the weights of a transformer include the text embedding.
    pub fn is_in(dit: &dyn Source) -> bool {
        dit.shapes().contains_key(TEXT_TENSOR)
    }

    /// Reads the text embedding that the weights of a transformer include, if any.
    pub fn from_weights(dit: &dyn Source, width: usize) -> Result<Option<TextEmbedding>> {
        match dit.shapes().get(TEXT_TENSOR) {
            Some(shape) => TextEmbedding::new(dit.path(), TEXT_TENSOR, *shape, dit.read(TEXT_TENSOR)?, width).map(Some),
            None => Ok(None),
        }
    }

    fn new(path: &Path, name: &str, found: Shape, values: Vec<f32>, width: usize) -> Result<TextEmbedding> {
        let dims = match found.dims() {
            [1, rest @ ..] if rest.len() == 2 => rest,
            dims => dims,
        };
        let expected = Shape::from([dims.first().copied().unwrap_or(1).max(1), width]);
        match expected.dims() == dims {
            true => Ok(TextEmbedding { shape: expected, values }),
            false => Err(Error::WrongShape { path: path.into(), name: name.into(), found, expected }),
        }
    }
}

/// The transformer under a public name, such as `seedvr2_ema_3b_fp16.safetensors` or `seedvr2_ema_7b-Q4_K_M.gguf`.
fn public_dit<'a>(folder: &Path, names: &'a [String]) -> Result<Option<&'a str>> {
    let is_public = |name: &&String| {
        let name = name.to_ascii_lowercase();
        name.starts_with("seedvr2")
            && (name.contains("3b") || name.contains("7b"))
            && (name.ends_with(".safetensors") || name.ends_with(".gguf"))
    };
    let found: Vec<&String> = names.iter().filter(is_public).collect();
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        [first, second, ..] => {
            Err(Error::AmbiguousDit { folder: folder.into(), first: first.clone(), second: second.clone() })
        }
    }
}
