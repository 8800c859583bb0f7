//! From `--model` to the weights of a whole model.

use std::path::Path;

use reseed::{Color, NetworkResidency, Networks, low_band};
use reseed_model::weights::Source;
use reseed_model::weights::formula::{Formula, uniform};
use reseed_model::{Config, ModelFolder, TextEmbedding, dit, nano};
use reseed_ops::{Device, Quant, Shape};

use crate::args::JobArgs;
use crate::engine::SEED;
use crate::failure::{Failure, Result};
use crate::job::settings::Settings;
use crate::models::{self, Hash};

/// Tokens of the public text embedding.
const TEXT_TOKENS: usize = 58;

/// A model's weights, opened but not read.
pub struct Weights {
    vae: Box<dyn Source>,
    dit: Box<dyn Source>,
    origin: Origin,
}

/// Where weights come from.
enum Origin {
    Files(ModelFolder),
    Program,
    Formula,
}

impl Weights {
    /// A folder's, a public model's that is on this machine, the one's inside this program, or those of a formula and a size,
    /// of whose transformer `layers` are enough.
    pub fn open(name: &str, layers: Option<usize>) -> Result<Weights> {
        let Some(size) = name.strip_prefix("formula:") else {
            if layers.is_some() {
                return Err(Failure::Usage(format!("--layers is for formula: models; {name} has its own")));
            }
            if name == nano::NAME {
                let (vae, dit) = (Box::new(nano::vae()?), Box::new(nano::dit()?));
                return Ok(Weights { vae, dit, origin: Origin::Program });
            }
            let path = Path::new(name);
            let folder = if path.is_dir() { ModelFolder::open(path)? } else { models::folder(name)? };
            return Ok(Weights { vae: Box::new(folder.vae()?), dit: folder.dit()?, origin: Origin::Files(folder) });
        };
        let (size, quant) = match size.split_once('-') {
            None => (size, None),
            Some((size, "q4")) => (size, Some(Quant::Q4K)),
            Some((size, "q8")) => (size, Some(Quant::Q8_0)),
            Some((size, "fp8")) => (size, Some(Quant::E4m3)),
            Some(_) => ("", None),
        };
        let (vae, mut dit) = match size {
            "tiny" => (Config::tiny(), dit::Config::tiny(dit::B3, 4)),
            "3b" => (Config::full(), dit::Config::b3()),
            "7b" => (Config::full(), dit::Config::b7()),
            _ => {
                let known = "the sizes are tiny, 3b and 7b, and each may end in -q4, -q8 or -fp8";
                return Err(Failure::Model(format!("{name}: {known}")));
            }
        };
        if let Some(layers) = layers {
            // The last layer of a network that shares weights at its end shares them still.
            dit.mm_layers = dit.mm_layers.min(if dit.mm_layers < dit.layers { layers - 1 } else { layers });
            dit.layers = layers;
        }
        let vae = Box::new(Formula::new(vae.tensors(), vae.groups, SEED));
        let dit = Formula::plain(dit.tensors(), SEED);
        let dit = Box::new(match quant {
            Some(quant) => dit.quantized(quant),
            None => dit,
        });
        Ok(Weights { vae, dit, origin: Origin::Formula })
    }

    /// With the files of the model, where it has some.
    pub fn described(&self, settings: Settings) -> Result<Settings> {
        let folder = match &self.origin {
            Origin::Files(folder) => folder,
            Origin::Program => {
                let mut hash = Hash::new();
                [nano::VAE, nano::DIT].iter().for_each(|file| hash.update(file));
                return Ok(settings.with("model", format!("nano ({})", &hash.finish()[..16])));
            }
            Origin::Formula => return Ok(settings),
        };
        let files = [("VAE", Some(&folder.vae)), ("transformer", Some(&folder.dit)), ("text", folder.text.as_ref())];
        let mut present = files.into_iter().filter_map(|(name, path)| Some((name, path?)));
        present.try_fold(settings, |settings, (name, path)| settings.with_input(name, path))
    }

    /// The autoencoder's.
    pub fn vae(&self) -> &dyn Source {
        &*self.vae
    }

    /// The transformer's.
    pub fn dit(&self) -> &dyn Source {
        &*self.dit
    }

    /// The text embedding, `width` wide.
    pub fn text(&self, width: usize) -> reseed_model::Result<TextEmbedding> {
        match &self.origin {
            Origin::Files(folder) => folder.text(&*self.dit, width),
            Origin::Program => {
                Ok(TextEmbedding::from_weights(&*self.dit, width)?.expect("the model inside the program has its text"))
            }
            Origin::Formula => Ok(formula_text(width)),
        }
    }

    /// How much of what the input holds the model wants given back to its results.
    pub fn low_band(&self) -> Result<f32> {
        Ok(low_band::default_strength(&*self.dit)?)
    }

    /// Whether the model's file asks for a decoder in f32: one that rounds to bf16 would make clips flicker more than their
    /// inputs, where pictures are a small signal beside a constant one.
    pub fn decodes_in_f32(&self) -> bool {
        self.vae.metadata("decoder") == Some("f32")
    }

    /// The settings of a job with what the model asks for, where nobody asked otherwise. What a low band leaves of a
    /// result's colours is the input's already.
    pub fn suited(&self, settings: reseed::Settings, args: &JobArgs) -> Result<reseed::Settings> {
        let own = self.low_band()?;
        let low_band = if args.low_band.is_some() { settings.low_band } else { own };
        let color = if args.color.is_none() && own > 0.0 { Color::None } else { settings.color };
        Ok(reseed::Settings { low_band, color, ..settings })
    }

    /// Brings the networks to their devices.
    pub fn load(&self, halves: [&dyn Device; 2], dit_ops: &dyn Device, between: NetworkResidency) -> Result<Networks> {
        let text = |width| self.text(width);
        Ok(Networks::load((halves, &*self.vae), (dit_ops, &*self.dit), between, text)?)
    }
}

/// A text of unit variance.
fn formula_text(width: usize) -> TextEmbedding {
    let values = uniform("text", TEXT_TOKENS * width, SEED).iter().map(|v| (v * 3f64.sqrt()) as f32).collect();
    TextEmbedding { shape: Shape::from([TEXT_TOKENS, width]), values }
}
