//! From the name of a model to its weights.

use std::path::{Path, PathBuf};

use reseed_model::weights::Source;
use reseed_model::weights::formula::{Formula, uniform};
use reseed_model::weights::safetensors::Safetensors;
use reseed_model::{Config, ModelFolder, TextEmbedding, dit, nano};
use reseed_ops::{Device, Quant, Shape};

use super::file;
use crate::error::{Error, Result};
use crate::low_band::ModelLowBand;
use crate::networks::{NetworkResidency, Networks, check_family};

/// Seed of formula weights.
const SEED: u64 = 1;
/// Tokens of the public text embedding.
const TEXT_TOKENS: usize = 58;
/// What the name of a formula model starts with.
const FORMULA: &str = "formula:";
/// The formula models.
const SIZES: &str = "tiny, 3b and 7b, each also with -q4, -q8, -fp8, -int8, -mxfp8 or -nvfp4";

/// Files that a user gives for a model in place of those that would be found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The VAE.
    pub vae: Option<PathBuf>,
    /// The text embedding.
    pub text: Option<PathBuf>,
}

/// The opened weights of a model; no tensor is read yet.
pub struct Weights {
    name: String,
    vae: Box<dyn Source>,
    dit: Box<dyn Source>,
    origin: Origin,
}

enum Origin {
    Files(ModelFolder),
    Embedded(Vec<&'static [u8]>),
    Formula,
}

impl Weights {
    /// Opens a folder, a transformer file, a public model on this machine, the embedded model, or a formula model such
    /// as `formula:tiny`.
    pub fn open(name: &str) -> Result<Weights> {
        Weights::open_with(name, &Parts::default())
    }

    /// The same with another VAE or text embedding, where one is given.
    pub fn open_with(name: &str, parts: &Parts) -> Result<Weights> {
        if (name.starts_with(FORMULA) || super::is_embedded(name)) && *parts != Parts::default() {
            return Err(Error::FixedFiles { name: name.into() });
        }
        if name.starts_with(FORMULA) {
            return Weights::formula(name, None);
        }
        if let Some(vae) = embedded_vae(name)? {
            let files = nano::packed(name == nano::SHARP_NAME);
            let (dit, origin) = (Box::new(nano::dit()?), Origin::Embedded(files));
            return Ok(Weights { name: name.into(), vae, dit, origin });
        }
        let (path, given) = (Path::new(name), [parts.vae.as_deref(), parts.text.as_deref()]);
        let folder = if path.is_dir() {
            ModelFolder::open_with(path, given)?
        } else if path.is_file() {
            file::folder(path, given)?
        } else {
            super::folder(name, given)?
        };
        let (vae, dit) = (Box::new(folder.vae()?), folder.dit()?);
        check_family(&*vae)?;
        Ok(Weights { name: name.into(), vae, dit, origin: Origin::Files(folder) })
    }

    /// A formula model with so many layers, or with its own number.
    pub fn formula(name: &str, layers: Option<usize>) -> Result<Weights> {
        let size = name.strip_prefix(FORMULA).ok_or_else(|| Error::FixedLayers { name: name.into() })?;
        let (size, quant) = match size.split_once('-') {
            None => (size, None),
            Some((size, "q4")) => (size, Some(Quant::Q4K)),
            Some((size, "q8")) => (size, Some(Quant::Q8_0)),
            Some((size, "fp8")) => (size, Some(Quant::E4m3)),
            Some((size, "int8")) => (size, Some(Quant::Int8ConvRot)),
            Some((size, "mxfp8")) => (size, Some(Quant::Mxfp8)),
            Some((size, "nvfp4")) => (size, Some(Quant::Nvfp4)),
            Some(_) => ("", None),
        };
        let (vae, mut dit) = match size {
            "tiny" => (Config::tiny(), dit::Config::tiny(dit::B3, 4)),
            "3b" => (Config::full(), dit::Config::b3()),
            "7b" => (Config::full(), dit::Config::b7()),
            _ => return Err(Error::UnknownFormula { name: name.into(), known: SIZES }),
        };
        if let Some(layers) = layers {
            // In a network whose last layers share weights, the new last layer shares them too.
            dit.mm_layers = dit.mm_layers.min(if dit.mm_layers < dit.layers { layers - 1 } else { layers });
            dit.layers = layers;
        }
        let vae = Box::new(Formula::new(vae.tensors(), vae.groups, SEED));
        let dit = Formula::plain(dit.tensors(), SEED);
        let dit = Box::new(match quant {
            Some(quant) => dit.quantized(quant),
            None => dit,
        });
        Ok(Weights { name: name.into(), vae, dit, origin: Origin::Formula })
    }

    /// The name that it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The model's files, each with its role.
    pub fn files(&self) -> Vec<(&'static str, &Path)> {
        let Origin::Files(folder) = &self.origin else { return Vec::new() };
        let text = folder.text.iter().map(|path| ("text embedding", path.as_path()));
        [("VAE", folder.vae.as_path()), ("transformer", &folder.dit)].into_iter().chain(text).collect()
    }

    /// The content of an embedded model.
    pub fn embedded(&self) -> Vec<&'static [u8]> {
        if let Origin::Embedded(files) = &self.origin { files.clone() } else { Vec::new() }
    }

    /// The weights of the VAE.
    pub fn vae(&self) -> &dyn Source {
        &*self.vae
    }

    /// The weights of the transformer.
    pub fn dit(&self) -> &dyn Source {
        &*self.dit
    }

    /// The text embedding, `width` wide.
    pub fn text(&self, width: usize) -> reseed_model::Result<TextEmbedding> {
        match &self.origin {
            Origin::Files(folder) => folder.text(&*self.dit, width),
            Origin::Embedded(_) => {
                Ok(TextEmbedding::from_weights(&*self.dit, width)?.expect("the embedded model has its text"))
            }
            Origin::Formula => Ok(formula_text(width)),
        }
    }

    /// The low band that the model asks for, and its range limit.
    pub fn low_band(&self) -> Result<ModelLowBand> {
        Ok(ModelLowBand::load(&*self.dit)?)
    }

    /// Whether the model asks for a decoder in f32: where frames are a small signal on a large constant, a decoder in
    /// bf16 would make clips flicker.
    pub fn decodes_in_f32(&self) -> bool {
        self.vae.metadata("decoder") == Some("f32")
    }

    /// Loads the networks on their devices: encoder, decoder and transformer.
    pub fn load(
        &self,
        coders: [&dyn Device; 2],
        dit_ops: &dyn Device,
        residency: NetworkResidency,
    ) -> Result<Networks> {
        let text = |width| self.text(width);
        Networks::load((coders, &*self.vae), (dit_ops, &*self.dit), residency, text)
    }
}

/// The VAE of an embedded model.
fn embedded_vae(name: &str) -> Result<Option<Box<dyn Source>>> {
    Ok(match name {
        nano::NAME => Some(Box::new(nano::vae()?)),
        nano::SHARP_NAME => Some(Box::new(nano::sharp_vae()?)),
        _ => None,
    })
}

/// A text of unit variance.
fn formula_text(width: usize) -> TextEmbedding {
    let values = uniform("text", TEXT_TOKENS * width, SEED).iter().map(|v| (v * 3f64.sqrt()) as f32).collect();
    TextEmbedding { shape: Shape::from([TEXT_TOKENS, width]), values }
}

/// The weights of a VAE alone: a safetensors file, an embedded one, or `formula:tiny` and `formula:full`.
pub fn vae_weights(name: &str) -> Result<Box<dyn Source>> {
    if let Some(vae) = embedded_vae(name)? {
        return Ok(vae);
    }
    let config = match name.strip_prefix(FORMULA) {
        None => {
            let file = Safetensors::open_network(Path::new(name))?;
            check_family(&file)?;
            return Ok(Box::new(file));
        }
        Some("tiny") => Config::tiny(),
        Some("full") => Config::full(),
        Some(_) => return Err(Error::UnknownFormula { name: name.into(), known: "tiny and full" }),
    };
    Ok(Box::new(Formula::new(config.tensors(), config.groups, SEED)))
}
