//! Sizes of a VAE, read off its tensors.

use reseed_ops::Shape;

use crate::error::{Error, Result};
use crate::weights::{Model, Source};

/// Groups of every norm, unless the file says otherwise.
const GROUPS: usize = 32;
/// `vae.scaling_factor` of the public 3B and 7B configurations, unless the file says otherwise.
const SCALING_FACTOR: f32 = 0.9152;

/// Sizes of a causal video VAE.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Width of each level, full resolution first.
    pub channels: Vec<usize>,
    /// Residual blocks of an encoder level.
    pub layers: usize,
    /// Residual blocks of a decoder level; in the public layout one more than the encoder's.
    pub decoder_layers: usize,
    /// Whether the lowest resolution attends over the whole frame between its two residual blocks.
    pub attention: bool,
    /// Channels of the latent.
    pub latent: usize,
    /// Channels of a picture.
    pub image: usize,
    /// How many of the deepest level changes also halve time.
    pub temporal_stages: usize,
    /// Groups of every norm.
    pub groups: usize,
    /// What the latent is multiplied with on its way to the transformer.
    pub scaling_factor: f32,
}

impl Config {
    /// The public checkpoint.
    pub fn full() -> Config {
        Config::with_channels(&[128, 256, 512, 512], GROUPS)
    }

    /// Small enough for tests and for a first look.
    pub fn tiny() -> Config {
        Config::with_channels(&[8, 16, 32, 32], 4)
    }

    /// The public layout at other widths.
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

    /// Reads the sizes off a source's shapes and metadata. [`crate::weights::check`] then holds every tensor against them.
    pub fn detect(source: &dyn Source) -> Result<Config> {
        let dims = |name: &str| source.shapes().get(name).map(|shape| shape.dims());
        let needed = |name: &str, rank: usize| match dims(name) {
            Some(dims) if dims.len() == rank && dims.iter().all(|&d| d > 0) => Ok(dims),
            Some(dims) => {
                let (found, needed) = (Shape::from(dims), Shape::from(&vec![0; rank][..]));
                Err(Error::WrongShape { path: source.path().into(), name: name.into(), found, needed })
            }
            None => Err(Error::Missing { path: source.path().into(), name: name.into(), model: Model::Vae }),
        };
        let image = needed("encoder.conv_in.weight", 5)?[1];
        let latent = needed("decoder.conv_in.weight", 5)?[1];
        let count = |name: &dyn Fn(usize) -> String| (0..).take_while(|&i| dims(&name(i)).is_some()).count();
        let levels = count(&|i| format!("encoder.down_blocks.{i}.resnets.0.conv1.weight"));
        let layers = count(&|j| format!("encoder.down_blocks.0.resnets.{j}.conv1.weight"));
        needed("encoder.down_blocks.0.resnets.0.conv1.weight", 5)?;
        let any = |start: &str| source.shapes().keys().any(|name| name.starts_with(start));
        let decoder_layers = (0..).take_while(|j| any(&format!("decoder.up_blocks.0.resnets.{j}."))).count();
        needed("decoder.up_blocks.0.resnets.0.conv1.weight", 5)?;
        let attention = ["encoder", "decoder"].iter().any(|half| any(&format!("{half}.mid_block.attentions.")));
        let mut channels = Vec::new();
        let mut temporal_stages = 0;
        for i in 0..levels {
            channels.push(needed(&format!("encoder.down_blocks.{i}.resnets.0.conv1.weight"), 5)?[0]);
            if i + 1 < levels && needed(&format!("encoder.down_blocks.{i}.downsamplers.0.conv.weight"), 5)?[2] > 1 {
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

    /// Pixels per latent row or column.
    pub fn spatial_factor(&self) -> usize {
        1 << (self.channels.len() - 1)
    }

    /// Frames per latent frame behind the first.
    pub fn temporal_factor(&self) -> usize {
        1 << self.temporal_stages
    }

    /// Whether the step down from level `i` halves time.
    pub fn down_time(&self, i: usize) -> bool {
        i + 1 + self.temporal_stages >= self.channels.len()
    }

    /// Whether the step up behind decoder level `i` doubles time.
    pub fn up_time(&self, i: usize) -> bool {
        i < self.temporal_stages
    }

    /// Every tensor of the checkpoint: name and shape.
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
        Some(text) => (text.parse().ok(), text.to_string()),
        None => (Some(default), "not given".to_string()),
    };
    value.filter(valid).ok_or_else(|| Error::Metadata {
        path: source.path().into(),
        key,
        value: text,
        needed: match key {
            "groups" => "it must be a whole number that divides the width of every level".into(),
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
    fn the_public_checkpoint_has_250_tensors_of_250_million_values() {
        let tensors = Config::full().tensors();
        assert_eq!(tensors.len(), 250);
        assert_eq!(tensors.iter().map(|(_, shape)| shape.count()).sum::<usize>(), 250_648_227);
    }

    #[test]
    fn sizes_are_read_off_the_tensors() {
        let mut odd = Config::with_channels(&[6, 12, 18], 3);
        odd.latent = 5;
        odd.image = 4;
        odd.layers = 1;
        odd.temporal_stages = 1;
        let mut light = Config::tiny();
        (light.layers, light.decoder_layers, light.attention, light.groups) = (2, 1, false, 1);
        for config in [Config::tiny(), Config::full(), odd, light] {
            let source = Formula::new(config.tensors(), config.groups, 1);
            assert_eq!(Config::detect(&source).unwrap(), config);
        }
    }
}
