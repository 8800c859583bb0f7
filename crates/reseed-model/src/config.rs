//! Configuration of a VAE, detected from its tensors.

use std::ops::Bound;

use reseed_ops::Shape;

use crate::error::{Error, Result, excerpt};
use crate::weights::{self, Network, Source};

/// Groups per norm, unless the metadata sets `groups`.
const GROUPS: usize = 32;
/// `vae.scaling_factor` of the public 3B and 7B configurations, unless the metadata sets `scaling_factor`.
const SCALING_FACTOR: f32 = 0.9152;
/// Limit of levels. The public checkpoint has 4; a side of a frame is padded to a multiple of two to their number.
const MAX_LEVELS: usize = 8;
/// Limit of residual blocks per level. The public checkpoint has 2 and 3.
const MAX_LAYERS: usize = 16;
/// Limit of the channels of a frame and of a latent. The public checkpoint has 3 and 16.
const MAX_CHANNELS: usize = 4096;

/// Configuration of a causal video VAE.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Channels of each level, full resolution first.
    pub channels: Vec<usize>,
    /// Residual blocks per encoder level.
    pub layers: usize,
    /// Residual blocks per decoder level. The public checkpoint has one more than in the encoder.
    pub decoder_layers: usize,
    /// Whether the mid block has self-attention over each frame.
    pub attention: bool,
    /// Channels of the latent.
    pub latent: usize,
    /// Channels of a frame.
    pub image: usize,
    /// Number of resampling stages, the deepest ones, that also halve time.
    pub temporal_stages: usize,
    /// Groups per norm.
    pub groups: usize,
    /// Factor between the latents of the VAE and those of the transformer.
    pub scaling_factor: f32,
}

impl Config {
    /// Configuration of the public checkpoint.
    pub fn full() -> Config {
        Config::with_channels(&[128, 256, 512, 512], GROUPS)
    }

    /// Small configuration for tests.
    pub fn tiny() -> Config {
        Config::with_channels(&[8, 16, 32, 32], 4)
    }

    /// The public architecture with other channel counts.
    pub fn with_channels(channels: &[usize], groups: usize) -> Config {
        Config {
            channels: channels.to_vec(),
            layers: 2,
            decoder_layers: 3,
            attention: true,
            latent: 16,
            image: 3,
            temporal_stages: 2,
            groups,
            scaling_factor: SCALING_FACTOR,
        }
    }

    /// Detects the configuration from the shapes and the metadata of a source. Loading then checks every tensor.
    pub fn detect(source: &dyn Source) -> Result<Config> {
        weights::check_count(source, Network::Vae)?;
        let dims = |name: &str| source.shapes().get(name).map(|shape| shape.dims());
        let required = |name: &str, rank: usize| match dims(name) {
            Some(dims) if dims.len() == rank && dims.iter().all(|&d| d > 0) => Ok(dims),
            Some(dims) => {
                let (found, expected) = (Shape::from(dims), Shape::from(&vec![0; rank][..]));
                Err(Error::WrongShape { path: source.path().into(), name: name.into(), found, expected })
            }
            None => Err(Error::MissingTensor { path: source.path().into(), name: name.into(), network: Network::Vae }),
        };
        let image = required("encoder.conv_in.weight", 5)?[1];
        let latent = required("decoder.conv_in.weight", 5)?[1];
        let limit = |what, found, limit| weights::check_limit(source, Network::Vae, what, found, limit);
        let count = |name: &dyn Fn(usize) -> String| (0..).take_while(|&i| dims(&name(i)).is_some()).count();
        let levels = count(&|i| format!("encoder.down_blocks.{i}.resnets.0.conv1.weight"));
        let layers = count(&|j| format!("encoder.down_blocks.0.resnets.{j}.conv1.weight"));
        required("encoder.down_blocks.0.resnets.0.conv1.weight", 5)?;
        // Names are sorted: the first one that is not before the prefix has it, if any has.
        let any = |start: &str| {
            let mut from = source.shapes().range::<str, _>((Bound::Included(start), Bound::Unbounded));
            from.next().is_some_and(|(name, _)| name.starts_with(start))
        };
        let decoder_layers = (0..).take_while(|j| any(&format!("decoder.up_blocks.0.resnets.{j}."))).count();
        required("decoder.up_blocks.0.resnets.0.conv1.weight", 5)?;
        limit("levels", levels, MAX_LEVELS)?;
        limit("residual blocks per level", layers.max(decoder_layers), MAX_LAYERS)?;
        limit("channels per frame", image, MAX_CHANNELS)?;
        limit("channels per latent", latent, MAX_CHANNELS)?;
        let attention = ["encoder", "decoder"].iter().any(|coder| any(&format!("{coder}.mid_block.attentions.")));
        let mut channels = Vec::new();
        let mut temporal_stages = 0;
        for i in 0..levels {
            channels.push(required(&format!("encoder.down_blocks.{i}.resnets.0.conv1.weight"), 5)?[0]);
            if i + 1 < levels && required(&format!("encoder.down_blocks.{i}.downsamplers.0.conv.weight"), 5)?[2] > 1 {
                temporal_stages += 1;
            }
        }
        let groups = metadata(source, "groups", GROUPS, |&g| g > 0 && channels.iter().all(|c| c % g == 0))?;
        let scaling_factor = metadata(source, "scaling_factor", SCALING_FACTOR, |s: &f32| s.is_finite() && *s > 0.0)?;
        Ok(Config {
            channels,
            layers,
            decoder_layers,
            attention,
            latent,
            image,
            temporal_stages,
            groups,
            scaling_factor,
        })
    }

    /// Pixels per latent pixel along each side.
    pub fn spatial_factor(&self) -> usize {
        1 << (self.channels.len() - 1)
    }

    /// Frames per latent frame after the first.
    pub fn temporal_factor(&self) -> usize {
        1 << self.temporal_stages
    }

    /// Whether the downsampler of encoder level `i` halves time.
    pub(crate) fn down_time(&self, i: usize) -> bool {
        i + 1 + self.temporal_stages >= self.channels.len()
    }

    /// Whether the upsampler of decoder level `i` doubles time.
    pub(crate) fn up_time(&self, i: usize) -> bool {
        i < self.temporal_stages
    }

    /// Name and shape of every tensor of the checkpoint.
    pub fn tensors(&self) -> Vec<(String, Shape)> {
        let mut list = Tensors(Vec::new());
        let (levels, top) = (self.channels.len(), *self.channels.last().expect("a VAE has levels"));
        let mut previous = self.channels[0];
        list.conv("encoder.conv_in", previous, self.image, [3, 3, 3]);
        for (i, &c) in self.channels.iter().enumerate() {
            for j in 0..self.layers {
                list.resnet(&format!("encoder.down_blocks.{i}.resnets.{j}"), if j == 0 { previous } else { c }, c);
            }
            if i + 1 < levels {
                let kt = if self.down_time(i) { 3 } else { 1 };
                list.conv(&format!("encoder.down_blocks.{i}.downsamplers.0.conv"), c, c, [kt, 3, 3]);
            }
            previous = c;
        }
        list.mid("encoder.mid_block", top, self.attention);
        list.norm("encoder.conv_norm_out", top);
        list.conv("encoder.conv_out", 2 * self.latent, top, [3, 3, 3]);
        list.conv("decoder.conv_in", top, self.latent, [3, 3, 3]);
        list.mid("decoder.mid_block", top, self.attention);
        previous = top;
        for (i, &c) in self.channels.iter().rev().enumerate() {
            for j in 0..self.decoder_layers {
                list.resnet(&format!("decoder.up_blocks.{i}.resnets.{j}"), if j == 0 { previous } else { c }, c);
            }
            if i + 1 < levels {
                let phases = if self.up_time(i) { 8 } else { 4 };
                let name = format!("decoder.up_blocks.{i}.upsamplers.0");
                list.conv(&format!("{name}.upscale_conv"), phases * c, c, [1, 1, 1]);
                list.conv(&format!("{name}.conv"), c, c, [3, 3, 3]);
            }
            previous = c;
        }
        list.norm("decoder.conv_norm_out", self.channels[0]);
        list.conv("decoder.conv_out", self.image, self.channels[0], [3, 3, 3]);
        list.0
    }
}

fn metadata<T: std::str::FromStr>(
    source: &dyn Source,
    key: &'static str,
    default: T,
    valid: impl Fn(&T) -> bool,
) -> Result<T> {
    let (value, text) = match source.metadata(key) {
        Some(text) => (text.parse().ok(), excerpt(text)),
        None => (Some(default), "not given".to_string()),
    };
    value.filter(valid).ok_or_else(|| Error::Metadata {
        path: source.path().into(),
        key,
        value: text,
        expected: match key {
            "groups" => "it must be an integer that divides the channels of every level".into(),
            _ => "it must be a positive number".into(),
        },
    })
}

struct Tensors(Vec<(String, Shape)>);

impl Tensors {
    fn push(&mut self, name: String, shape: &[usize]) {
        self.0.push((name, Shape::from(shape)));
    }

    fn conv(&mut self, name: &str, c_out: usize, c_in: usize, [t, h, w]: [usize; 3]) {
        self.push(format!("{name}.weight"), &[c_out, c_in, t, h, w]);
        self.push(format!("{name}.bias"), &[c_out]);
    }

    fn norm(&mut self, name: &str, c: usize) {
        self.push(format!("{name}.weight"), &[c]);
        self.push(format!("{name}.bias"), &[c]);
    }

    fn resnet(&mut self, name: &str, c_in: usize, c_out: usize) {
        self.norm(&format!("{name}.norm1"), c_in);
        self.conv(&format!("{name}.conv1"), c_out, c_in, [3, 3, 3]);
        self.norm(&format!("{name}.norm2"), c_out);
        self.conv(&format!("{name}.conv2"), c_out, c_out, [3, 3, 3]);
        if c_in != c_out {
            self.conv(&format!("{name}.conv_shortcut"), c_out, c_in, [1, 1, 1]);
        }
    }

    fn mid(&mut self, name: &str, c: usize, attention: bool) {
        if attention {
            self.norm(&format!("{name}.attentions.0.group_norm"), c);
            for linear in ["to_q", "to_k", "to_v", "to_out.0"] {
                self.push(format!("{name}.attentions.0.{linear}.weight"), &[c, c]);
                self.push(format!("{name}.attentions.0.{linear}.bias"), &[c]);
            }
        }
        self.resnet(&format!("{name}.resnets.0"), c, c);
        self.resnet(&format!("{name}.resnets.1"), c, c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::formula::Formula;

    #[test]
    fn public_checkpoint_has_250_tensors_of_250_million_values() {
        let tensors = Config::full().tensors();
        assert_eq!(tensors.len(), 250);
        assert_eq!(tensors.iter().map(|(_, shape)| shape.count()).sum::<usize>(), 250_648_227);
    }

    #[test]
    fn configuration_is_detected_from_the_tensors() {
        let mut odd = Config::with_channels(&[6, 12, 18], 3);
        odd.latent = 5;
        odd.image = 4;
        odd.layers = 1;
        odd.temporal_stages = 1;
        let mut reduced = Config::tiny();
        (reduced.layers, reduced.decoder_layers, reduced.attention, reduced.groups) = (2, 1, false, 1);
        for config in [Config::tiny(), Config::full(), odd, reduced] {
            let source = Formula::new(config.tensors(), config.groups, 1);
            assert_eq!(Config::detect(&source).unwrap(), config);
        }
    }
}
