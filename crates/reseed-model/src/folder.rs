//! A model folder: the VAE, the transformer and the text embedding that steers it, each under a name that people know.

use std::path::{Path, PathBuf};

use reseed_ops::Shape;

use crate::error::{Error, Result};
use crate::weights::gguf::Gguf;
use crate::weights::safetensors::Safetensors;
use crate::weights::{Model, Source, torch};

/// Names of the VAE, best first.
const VAE: &[&str] = &["vae.safetensors", "ema_vae_fp16.safetensors"];
/// Our names of the transformer, best first.
const DIT: &[&str] = &["dit.safetensors", "dit.gguf"];
/// Names of the text embedding, best first.
const TEXT: &[&str] = &["pos_emb.pt", "pos_emb.safetensors"];
/// The text embedding's name inside a safetensors file.
const CONDITIONING: &str = "positive_conditioning";

/// Where a model's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// The folder.
    pub path: PathBuf,
    /// The VAE.
    pub vae: PathBuf,
    /// The transformer.
    pub dit: PathBuf,
    /// The text embedding, unless the transformer's file holds it.
    pub text: Option<PathBuf>,
}

/// The text that every restoration is steered by, as numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// `[tokens, width]`.
    pub shape: Shape,
    /// The values.
    pub values: Vec<f32>,
}

impl Folder {
    /// Finds the files.
    pub fn open(path: &Path) -> Result<Folder> {
        let io = |source| Error::Io { path: path.into(), source };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(io)? {
            names.extend(entry.map_err(io)?.file_name().into_string());
        }
        names.sort();
        let first = |wanted: &[&str]| wanted.iter().find(|name| names.iter().any(|n| n == *name)).map(|n| path.join(n));
        let missing = |model| Error::NoModelFile { folder: path.into(), model };
        let dit = match first(DIT) {
            Some(dit) => dit,
            None => path.join(public(path, &names)?.ok_or_else(|| missing(Model::Dit))?),
        };
        let vae = first(VAE).ok_or_else(|| missing(Model::Vae))?;
        Ok(Folder { path: path.into(), vae, dit, text: first(TEXT) })
    }

    /// Opens the VAE's weights.
    pub fn vae(&self) -> Result<Safetensors> {
        Safetensors::open(&self.vae)
    }

    /// Opens the transformer's weights.
    pub fn dit(&self) -> Result<Box<dyn Source>> {
        Ok(match self.dit.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")) {
            true => Box::new(Gguf::open(&self.dit)?),
            false => Box::new(Safetensors::open(&self.dit)?),
        })
    }

    /// The text embedding, `width` wide: a file of its own, or a tensor of the transformer's.
    pub fn text(&self, dit: &dyn Source, width: usize) -> Result<Text> {
        let Some(path) = &self.text else {
            return Text::within(dit, width)?.ok_or_else(|| Error::NoText { folder: self.path.clone() });
        };
        if path.extension().is_some_and(|e| e == "pt") {
            let (shape, values) = torch::read(path)?;
            return Text::new(path, "data/0", shape, values, width);
        }
        let file = Safetensors::open(path)?;
        let names: Vec<&String> = file.shapes().keys().collect();
        let name = match &names[..] {
            [only] => only.as_str(),
            _ if file.shapes().contains_key(CONDITIONING) => CONDITIONING,
            _ => return Err(Error::WhichText { path: path.clone(), count: names.len() }),
        };
        Text::new(path, name, file.shapes()[name], file.read(name)?, width)
    }
}

impl Text {
    /// The text embedding that a transformer's own weights hold, if they do, `width` wide.
    pub fn within(dit: &dyn Source, width: usize) -> Result<Option<Text>> {
        match dit.shapes().get(CONDITIONING) {
            Some(shape) => Text::new(dit.path(), CONDITIONING, *shape, dit.read(CONDITIONING)?, width).map(Some),
            None => Ok(None),
        }
    }

    fn new(path: &Path, name: &str, found: Shape, values: Vec<f32>, width: usize) -> Result<Text> {
        let dims = match found.dims() {
            [1, rest @ ..] if rest.len() == 2 => rest,
            dims => dims,
        };
        let needed = Shape::from([dims.first().copied().unwrap_or(1).max(1), width]);
        match needed.dims() == dims {
            true => Ok(Text { shape: needed, values }),
            false => Err(Error::WrongShape { path: path.into(), name: name.into(), found, needed }),
        }
    }
}

/// The one file under a public name, such as `seedvr2_ema_3b_fp16.safetensors` or `seedvr2_ema_7b-Q4_K_M.gguf`.
fn public<'a>(folder: &Path, names: &'a [String]) -> Result<Option<&'a str>> {
    let known = |name: &&String| {
        let name = name.to_ascii_lowercase();
        name.starts_with("seedvr2")
            && (name.contains("3b") || name.contains("7b"))
            && (name.ends_with(".safetensors") || name.ends_with(".gguf"))
    };
    let found: Vec<&String> = names.iter().filter(known).collect();
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        [first, second, ..] => {
            Err(Error::WhichDit { folder: folder.into(), first: first.clone(), second: second.clone() })
        }
    }
}
