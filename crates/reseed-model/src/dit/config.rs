//! Configuration of a transformer, detected from its tensors.

use std::path::Path;

use reseed_ops::{MlpActivation, Shape};

use crate::error::{Error, Result, excerpt};
use crate::weights::quantized::QuantizedSafetensors;
use crate::weights::{self, Network, Source};

/// Channels per head in all public configurations.
pub const HEAD_DIM: usize = 128;
/// Channels of the sinusoidal time embedding: half sines, half cosines.
pub const TIME_DIM: usize = 256;
/// Latent rows and columns per token.
pub const PATCH: usize = 2;
/// Channels of the estimator of the low band.
pub const LOW_BAND_WIDTH: usize = 16;

/// Name and shape of the tensors of the estimator of the low band, which a file may have: three convolutions and a
/// linear layer.
pub fn low_band_tensors() -> Vec<(String, Shape)> {
    let mut list = Tensors(Vec::new());
    for (i, channels) in [3, LOW_BAND_WIDTH, LOW_BAND_WIDTH].into_iter().enumerate() {
        list.0.push((format!("low_band.{i}.weight"), Shape::from([LOW_BAND_WIDTH, channels, 3, 3])));
        list.vector(&format!("low_band.{i}.bias"), LOW_BAND_WIDTH);
    }
    list.linear("low_band.out", [1, LOW_BAND_WIDTH], true);
    list.0
}

/// Kind of rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rope {
    /// Positions are token indices; frequencies fall from 1 to 1/10000. A text token has its index on all three axes.
    /// The time index of video starts after the text.
    Lang,
    /// Positions are normalised to [-1, 1] within a window; frequencies are π to 128π. Text is not rotated.
    Pixel,
}

/// Architecture of a public network apart from its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Name of the public network.
    pub name: &'static str,
    /// Activation of the MLP.
    pub(crate) activation: MlpActivation,
    /// Rotary position embedding.
    pub(crate) rope: Rope,
    /// Whether the output projection is preceded by a modulated norm.
    pub(crate) modulated_head: bool,
    /// Whether the text norm of the last layer has no modulation.
    pub(crate) unmodulated_last_text: bool,
}

/// Layout of the public 3B network.
pub const B3: Layout = Layout {
    name: "3B",
    activation: MlpActivation::SwiGlu,
    rope: Rope::Lang,
    modulated_head: true,
    unmodulated_last_text: true,
};

/// Layout of the public 7B network.
pub const B7: Layout = Layout {
    name: "7B",
    activation: MlpActivation::Gelu,
    rope: Rope::Pixel,
    modulated_head: false,
    unmodulated_last_text: false,
};

/// Start of the one sampling step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Noise, as in the public networks.
    Noise,
    /// The condition: the result is condition - velocity and does not depend on the seed.
    Condition,
}

/// Configuration of a transformer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Architecture.
    pub layout: Layout,
    /// Channels of both streams.
    pub width: usize,
    /// Attention heads of 128 channels.
    pub heads: usize,
    /// Hidden channels of the MLP.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of leading layers with separate weights for video and text. The other layers share them.
    pub mm_layers: usize,
    /// Channels of the text embedding.
    pub text_width: usize,
    /// Channels of the latent.
    pub latent: usize,
    /// Start of the sampling step, from the metadata `start`.
    pub start: Start,
}

impl Config {
    /// Configuration of the public 3B checkpoint.
    pub fn b3() -> Config {
        let (layout, text_width, latent, start) = (B3, 5120, 16, Start::Noise);
        Config { layout, width: 2560, heads: 20, hidden: 6912, layers: 32, mm_layers: 10, text_width, latent, start }
    }

    /// Configuration of the public 7B checkpoint.
    pub fn b7() -> Config {
        let (layout, text_width, latent, start) = (B7, 5120, 16, Start::Noise);
        Config { layout, width: 3072, heads: 24, hidden: 12_288, layers: 36, mm_layers: 36, text_width, latent, start }
    }

    /// Small configuration for tests: two heads, 96 text channels.
    pub fn tiny(layout: Layout, layers: usize) -> Config {
        let heads = 2;
        let width = heads * HEAD_DIM;
        let (hidden, mm_layers) = match layout.activation {
            MlpActivation::SwiGlu => ((8 * width / 3).next_multiple_of(256), 2),
            MlpActivation::Gelu => (4 * width, layers),
        };
        Config { layout, width, heads, hidden, layers, mm_layers, text_width: 96, latent: 16, start: Start::Noise }
    }

    /// Detects the configuration from a source and checks every tensor against it.
    pub fn detect(source: &dyn Source) -> Result<Config> {
        weights::check_count(source, Network::Dit)?;
        reject_scaled(source)?;
        let config = Config::read(source)?;
        weights::check(source, Network::Dit, &config.tensors(), &config.optional(source))?;
        Ok(config)
    }

    fn read(source: &dyn Source) -> Result<Config> {
        let has = |name: &str| source.shapes().contains_key(name);
        let matrix = |name: &str| match source.shapes().get(name).map(|shape| shape.dims()) {
            Some(&[rows, columns]) if rows > 0 && columns > 0 => Ok([rows, columns]),
            Some(dims) => {
                let (found, expected) = (Shape::from(dims), Shape::from([0, 0]));
                Err(Error::WrongShape { path: source.path().into(), name: name.into(), found, expected })
            }
            None => Err(Error::MissingTensor { path: source.path().into(), name: name.into(), network: Network::Dit }),
        };
        let qkv = |i: usize, branch: &str| format!("blocks.{i}.attn.proj_qkv.{branch}.weight");
        let [width, _] = matrix("vid_in.proj.weight")?;
        let [_, text_width] = matrix("txt_in.weight")?;
        let latent = matrix("vid_out.proj.weight")?[0] / (PATCH * PATCH);
        let mm_layers = (0..).take_while(|&i| has(&qkv(i, "vid"))).count();
        let layers = (0..).take_while(|&i| has(&qkv(i, "vid")) || has(&qkv(i, "all"))).count();
        let first = if mm_layers > 0 { "vid" } else { "all" };
        let heads = matrix(&qkv(0, first))?[0] / (3 * HEAD_DIM);
        let hidden = matrix(&format!("blocks.0.mlp.{first}.proj_in.weight"))?[0];
        let gated = has(&format!("blocks.0.mlp.{first}.proj_in_gate.weight"));
        let layout = if gated { B3 } else { B7 };
        let (heads, latent, start) = (heads.max(1), latent.max(1), start(source)?);
        Ok(Config { layout, width, heads, hidden, layers, mm_layers, text_width, latent, start })
    }

    /// Input values per token: noise, condition and a constant for each of its pixels.
    fn patch_in(&self) -> usize {
        PATCH * PATCH * (2 * self.latent + 1)
    }

    /// Names of the video and text weights of a layer.
    pub(super) fn branches(&self, layer: usize) -> [&'static str; 2] {
        if layer < self.mm_layers { ["vid", "txt"] } else { ["all", "all"] }
    }

    /// Name and shape of every tensor of the checkpoint.
    pub fn tensors(&self) -> Vec<(String, Shape)> {
        let mut list = Tensors(Vec::new());
        let d = self.width;
        list.linear("vid_in.proj", [d, self.patch_in()], true);
        list.linear("txt_in", [d, self.text_width], true);
        list.linear("emb_in.proj_in", [d, TIME_DIM], true);
        list.linear("emb_in.proj_hid", [d, d], true);
        list.linear("emb_in.proj_out", [6 * d, d], true);
        for i in 0..self.layers {
            let [video, text] = self.branches(i);
            list.vector(&format!("blocks.{i}.attn.rope.rope.freqs"), self.layout.rope.frequencies().len());
            self.branch(&mut list, i, video);
            if text != video {
                self.branch(&mut list, i, text);
            }
        }
        if self.layout.modulated_head {
            for name in ["vid_out_norm.weight", "vid_out_ada.out_shift", "vid_out_ada.out_scale"] {
                list.vector(name, d);
            }
        }
        list.linear("vid_out.proj", [PATCH * PATCH * self.latent, d], true);
        list.0
    }

    fn branch(&self, list: &mut Tensors, layer: usize, branch: &str) {
        let (d, inner, hidden) = (self.width, self.heads * HEAD_DIM, self.hidden);
        let attn = |part: &str| format!("blocks.{layer}.attn.{part}.{branch}");
        let mlp = |part: &str| format!("blocks.{layer}.mlp.{branch}.{part}");
        list.linear(&attn("proj_qkv"), [3 * inner, d], false);
        list.linear(&attn("proj_out"), [d, inner], true);
        list.vector(&format!("{}.weight", attn("norm_q")), HEAD_DIM);
        list.vector(&format!("{}.weight", attn("norm_k")), HEAD_DIM);
        let biased = self.layout.activation == MlpActivation::Gelu;
        if !biased {
            list.linear(&mlp("proj_in_gate"), [hidden, d], false);
        }
        list.linear(&mlp("proj_in"), [hidden, d], biased);
        list.linear(&mlp("proj_out"), [d, hidden], biased);
        for slot in ["attn", "mlp"] {
            for part in ["shift", "scale", "gate"] {
                list.vector(&format!("blocks.{layer}.ada.{branch}.{slot}_{part}"), d);
            }
        }
    }

    /// Tensors that a file may omit, or have in addition to the network.
    fn optional(&self, source: &dyn Source) -> Vec<(String, Shape)> {
        let text = |name: &str| {
            let tokens = source.shapes().get(name).and_then(|shape| shape.dims().first().copied());
            (name.to_string(), Shape::from([tokens.unwrap_or(1), self.text_width]))
        };
        let frequencies = self.tensors().into_iter().filter(|(name, _)| name.ends_with(".rope.freqs"));
        let texts = ["positive_conditioning", "negative_conditioning"].map(text);
        frequencies.chain(texts).chain(low_band_tensors()).collect()
    }
}

/// Opens the safetensors file of a transformer, quantised or not.
pub fn open(path: &Path) -> Result<QuantizedSafetensors> {
    QuantizedSafetensors::open(path).map(cropped)
}

/// Removes the padding of quantised matrices. A file without a configuration keeps it; loading then reports why.
pub(crate) fn cropped(mut file: QuantizedSafetensors) -> QuantizedSafetensors {
    if weights::check_count(&file, Network::Dit).is_ok()
        && let Ok(config) = Config::read(&file)
    {
        file.crop(&config.tensors());
    }
    file
}

fn start(source: &dyn Source) -> Result<Start> {
    match source.metadata("start") {
        None | Some("noise") => Ok(Start::Noise),
        Some("condition") => Ok(Start::Condition),
        Some(other) => Err(Error::Metadata {
            path: source.path().into(),
            key: "start",
            value: excerpt(other),
            expected: "it must be noise or condition".into(),
        }),
    }
}

/// Rejects scales that are still visible: the source knows no format for them and would return unscaled weights.
fn reject_scaled(source: &dyn Source) -> Result<()> {
    const SUFFIXES: [&str; 4] = [".comfy_quant", ".weight_scale", ".scale_weight", "scaled_fp8"];
    match source.shapes().keys().find(|name| SUFFIXES.iter().any(|suffix| name.ends_with(suffix))) {
        Some(name) => Err(Error::ScaledWeights { path: source.path().into(), name: name.clone() }),
        None => Ok(()),
    }
}

struct Tensors(Vec<(String, Shape)>);

impl Tensors {
    fn linear(&mut self, name: &str, [rows, columns]: [usize; 2], biased: bool) {
        self.0.push((format!("{name}.weight"), Shape::from([rows, columns])));
        if biased {
            self.vector(&format!("{name}.bias"), rows);
        }
    }

    fn vector(&mut self, name: &str, len: usize) {
        self.0.push((name.to_string(), Shape::from([len])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::formula::Formula;

    #[test]
    fn public_checkpoints_have_the_published_numbers_of_tensors_and_values() {
        for (config, tensors, values) in
            [(Config::b3(), 635, 3_391_475_776 + 672), (Config::b7(), 1128, 8_239_607_872 + 360)]
        {
            let list = config.tensors();
            assert_eq!(list.len(), tensors, "{}", config.layout.name);
            assert_eq!(list.iter().map(|(_, shape)| shape.count()).sum::<usize>(), values, "{}", config.layout.name);
        }
    }

    #[test]
    fn configuration_is_detected_from_the_tensors() {
        let mut odd = Config::tiny(B3, 5);
        (odd.heads, odd.latent, odd.text_width, odd.hidden, odd.mm_layers) = (3, 5, 40, 100, 0);
        let configs = [Config::b3(), Config::b7(), Config::tiny(B3, 4), Config::tiny(B7, 3), odd];
        for config in configs {
            assert_eq!(Config::detect(&Formula::plain(config.tensors(), 1)).unwrap(), config);
        }
    }

    #[test]
    fn metadata_start_selects_noise_or_condition() {
        let source = |start| Formula::plain(Config::tiny(B3, 3).tensors(), 1).with_metadata("start", start);
        assert_eq!(Config::detect(&source("noise")).unwrap().start, Start::Noise);
        assert_eq!(Config::detect(&source("condition")).unwrap().start, Start::Condition);
        let message = Config::detect(&source("zero")).unwrap_err().to_string();
        assert!(message.contains("`start` is \"zero\"; it must be noise or condition"), "{message}");
    }

    #[test]
    fn frequencies_text_embeddings_and_the_low_band_are_optional() {
        let config = Config::tiny(B7, 2);
        let mut tensors = config.tensors();
        tensors.retain(|(name, _)| !name.ends_with("freqs"));
        tensors.extend(low_band_tensors());
        tensors.push(("positive_conditioning".into(), Shape::from([58, 96])));
        assert_eq!(Config::detect(&Formula::plain(tensors.clone(), 1)).unwrap(), config);
        tensors.last_mut().unwrap().1 = Shape::from([58, 95]);
        let message = Config::detect(&Formula::plain(tensors, 1)).unwrap_err().to_string();
        assert!(message.contains("`positive_conditioning` is [58, 95], this model needs [58, 96]"), "{message}");
    }

    #[test]
    fn scaled_weights_are_rejected() {
        let mut tensors = Config::tiny(B3, 3).tensors();
        tensors.push(("blocks.0.mlp.vid.proj_in.weight_scale".into(), Shape::from([1])));
        let message = Config::detect(&Formula::plain(tensors, 1)).unwrap_err().to_string();
        assert!(message.contains("`blocks.0.mlp.vid.proj_in.weight_scale`") && message.contains("scaled"), "{message}");
    }
}
