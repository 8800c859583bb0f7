//! Sizes of a transformer, read off its tensors.

use reseed_ops::Shape;

use crate::error::{Error, Result};
use crate::weights::{self, Model, Source};

/// Channels of a head, in every public configuration.
pub const HEAD: usize = 128;
/// Values that the time embedding starts from: half of them sines, half cosines.
pub const TIME: usize = 256;
/// Latent rows and columns of a token.
pub const PATCH: usize = 2;

/// The function between a layer's two wide matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// silu(W₁ z) ⊙ W₂ z, without biases.
    SwiGlu,
    /// gelu(W z + b), by its tanh form.
    Gelu,
}

/// What positions are and which streams they turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rope {
    /// Positions count tokens, frequencies fall from 1 to 1/10000. Text stands at its own index on all three axes, video
    /// begins behind the text in time.
    Counted,
    /// Positions run from -1 to 1 over a window, frequencies are π to 128π. Text is not turned.
    Stretched,
}

/// What distinguishes the two public networks beside their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its name.
    pub name: &'static str,
    /// The function between a layer's two wide matrices.
    pub activation: Activation,
    /// Rotary positions.
    pub rope: Rope,
    /// Whether the way out is normalised and modulated.
    pub modulated_head: bool,
    /// Whether the last layer's text is normalised but not modulated.
    pub bare_last_text: bool,
}

/// The layout of the public 3B network.
pub const B3: Layout = Layout {
    name: "3B",
    activation: Activation::SwiGlu,
    rope: Rope::Counted,
    modulated_head: true,
    bare_last_text: true,
};

/// The layout of the public 7B network.
pub const B7: Layout = Layout {
    name: "7B",
    activation: Activation::Gelu,
    rope: Rope::Stretched,
    modulated_head: false,
    bare_last_text: false,
};

/// What the one step starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Noise, as in the public networks.
    Noise,
    /// The condition itself: what comes out is the condition less the velocity, whatever the seed.
    Condition,
}

/// Sizes of a transformer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What is no size.
    pub layout: Layout,
    /// Channels of both streams.
    pub width: usize,
    /// Heads of 128 channels.
    pub heads: usize,
    /// Channels between a layer's two wide matrices.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// How many layers, from the first on, have weights of their own for video and for text; the others share.
    pub separate: usize,
    /// Channels of a text token as it comes in.
    pub text_width: usize,
    /// Channels of the latent.
    pub latent: usize,
    /// What the one step starts from; the file's metadata `start` says so.
    pub start: Start,
}

impl Config {
    /// The public 3B checkpoint.
    pub fn b3() -> Config {
        let (layout, text_width, latent, start) = (B3, 5120, 16, Start::Noise);
        Config { layout, width: 2560, heads: 20, hidden: 6912, layers: 32, separate: 10, text_width, latent, start }
    }

    /// The public 7B checkpoint.
    pub fn b7() -> Config {
        let (layout, text_width, latent, start) = (B7, 5120, 16, Start::Noise);
        Config { layout, width: 3072, heads: 24, hidden: 12_288, layers: 36, separate: 36, text_width, latent, start }
    }

    /// Small enough for tests: two heads, text 96 wide.
    pub fn tiny(layout: Layout, layers: usize) -> Config {
        let heads = 2;
        let width = heads * HEAD;
        let (hidden, separate) = match layout.activation {
            Activation::SwiGlu => ((8 * width / 3).next_multiple_of(256), 2),
            Activation::Gelu => (4 * width, layers),
        };
        Config { layout, width, heads, hidden, layers, separate, text_width: 96, latent: 16, start: Start::Noise }
    }

    /// Reads layout and sizes off a source and holds every tensor against them.
    pub fn detect(source: &dyn Source) -> Result<Config> {
        refuse_scaled(source)?;
        let config = Config::read(source)?;
        weights::check(source, Model::Dit, &config.tensors(), &config.optional(source))?;
        Ok(config)
    }

    fn read(source: &dyn Source) -> Result<Config> {
        let has = |name: &str| source.shapes().contains_key(name);
        let matrix = |name: &str| match source.shapes().get(name).map(|shape| shape.dims()) {
            Some(&[rows, columns]) if rows > 0 && columns > 0 => Ok([rows, columns]),
            Some(dims) => {
                let (found, needed) = (Shape::from(dims), Shape::from([0, 0]));
                Err(Error::WrongShape { path: source.path().into(), name: name.into(), found, needed })
            }
            None => Err(Error::Missing { path: source.path().into(), name: name.into(), model: Model::Dit }),
        };
        let qkv = |i: usize, branch: &str| format!("blocks.{i}.attn.proj_qkv.{branch}.weight");
        let [width, _] = matrix("vid_in.proj.weight")?;
        let [_, text_width] = matrix("txt_in.weight")?;
        let latent = matrix("vid_out.proj.weight")?[0] / (PATCH * PATCH);
        let separate = (0..).take_while(|&i| has(&qkv(i, "vid"))).count();
        let layers = (0..).take_while(|&i| has(&qkv(i, "vid")) || has(&qkv(i, "all"))).count();
        let first = if separate > 0 { "vid" } else { "all" };
        let heads = matrix(&qkv(0, first))?[0] / (3 * HEAD);
        let hidden = matrix(&format!("blocks.0.mlp.{first}.proj_in.weight"))?[0];
        let gated = has(&format!("blocks.0.mlp.{first}.proj_in_gate.weight"));
        let layout = if gated { B3 } else { B7 };
        let (heads, latent, start) = (heads.max(1), latent.max(1), start(source)?);
        Ok(Config { layout, width, heads, hidden, layers, separate, text_width, latent, start })
    }

    /// Values of a token as it comes in: noise, condition and a constant of each of its pixels.
    pub fn patch_in(&self) -> usize {
        PATCH * PATCH * (2 * self.latent + 1)
    }

    /// Names of the weights for video and for text in a layer.
    pub fn branches(&self, layer: usize) -> [&'static str; 2] {
        if layer < self.separate { ["vid", "txt"] } else { ["all", "all"] }
    }

    /// Every tensor of the checkpoint: name and shape.
    pub fn tensors(&self) -> Vec<(String, Shape)> {
        let mut list = Tensors(Vec::new());
        let d = self.width;
        list.linear("vid_in.proj", [d, self.patch_in()], true);
        list.linear("txt_in", [d, self.text_width], true);
        list.linear("emb_in.proj_in", [d, TIME], true);
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
        let (d, inner, hidden) = (self.width, self.heads * HEAD, self.hidden);
        let attn = |part: &str| format!("blocks.{layer}.attn.{part}.{branch}");
        let mlp = |part: &str| format!("blocks.{layer}.mlp.{branch}.{part}");
        list.linear(&attn("proj_qkv"), [3 * inner, d], false);
        list.linear(&attn("proj_out"), [d, inner], true);
        list.vector(&format!("{}.weight", attn("norm_q")), HEAD);
        list.vector(&format!("{}.weight", attn("norm_k")), HEAD);
        let biased = self.layout.activation == Activation::Gelu;
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

    /// Tensors that a file may lack, or hold beside the network's.
    fn optional(&self, source: &dyn Source) -> Vec<(String, Shape)> {
        let text = |name: &str| {
            let tokens = source.shapes().get(name).and_then(|shape| shape.dims().first().copied());
            (name.to_string(), Shape::from([tokens.unwrap_or(1), self.text_width]))
        };
        let frequencies = self.tensors().into_iter().filter(|(name, _)| name.ends_with(".rope.freqs"));
        frequencies.chain(["positive_conditioning", "negative_conditioning"].map(text)).collect()
    }
}

fn start(source: &dyn Source) -> Result<Start> {
    match source.metadata("start") {
        None | Some("noise") => Ok(Start::Noise),
        Some("condition") => Ok(Start::Condition),
        Some(other) => Err(Error::Metadata {
            path: source.path().into(),
            key: "start",
            value: other.into(),
            needed: "it must be noise or condition".into(),
        }),
    }
}

/// Files whose matrices are scaled by other tensors would load as if they were not.
fn refuse_scaled(source: &dyn Source) -> Result<()> {
    const MARKS: [&str; 4] = [".comfy_quant", ".weight_scale", ".scale_weight", "scaled_fp8"];
    match source.shapes().keys().find(|name| MARKS.iter().any(|mark| name.ends_with(mark))) {
        Some(name) => Err(Error::Scaled { path: source.path().into(), name: name.clone() }),
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
    fn the_public_checkpoints_have_the_published_numbers_of_tensors_and_values() {
        for (config, tensors, values) in
            [(Config::b3(), 635, 3_391_475_776 + 672), (Config::b7(), 1128, 8_239_607_872 + 360)]
        {
            let list = config.tensors();
            assert_eq!(list.len(), tensors, "{}", config.layout.name);
            assert_eq!(list.iter().map(|(_, shape)| shape.count()).sum::<usize>(), values, "{}", config.layout.name);
        }
    }

    #[test]
    fn layout_and_sizes_are_read_off_the_tensors() {
        let mut odd = Config::tiny(B3, 5);
        (odd.heads, odd.latent, odd.text_width, odd.hidden, odd.separate) = (3, 5, 40, 100, 0);
        let configs = [Config::b3(), Config::b7(), Config::tiny(B3, 4), Config::tiny(B7, 3), odd];
        for config in configs {
            assert_eq!(Config::detect(&Formula::plain(config.tensors(), 1)).unwrap(), config);
        }
    }

    #[test]
    fn a_file_may_say_what_the_step_starts_from() {
        let source = |start| Formula::plain(Config::tiny(B3, 3).tensors(), 1).saying("start", start);
        assert_eq!(Config::detect(&source("noise")).unwrap().start, Start::Noise);
        assert_eq!(Config::detect(&source("condition")).unwrap().start, Start::Condition);
        let refused = Config::detect(&source("zero")).unwrap_err().to_string();
        assert!(refused.contains("`start` is \"zero\"; it must be noise or condition"), "{refused}");
    }

    #[test]
    fn frequencies_may_be_left_out_and_text_may_be_there() {
        let config = Config::tiny(B7, 2);
        let mut tensors = config.tensors();
        tensors.retain(|(name, _)| !name.ends_with("freqs"));
        tensors.push(("positive_conditioning".into(), Shape::from([58, 96])));
        assert_eq!(Config::detect(&Formula::plain(tensors.clone(), 1)).unwrap(), config);
        tensors.last_mut().unwrap().1 = Shape::from([58, 95]);
        let refused = Config::detect(&Formula::plain(tensors, 1)).unwrap_err().to_string();
        assert!(refused.contains("`positive_conditioning` is [58, 95], this model needs [58, 96]"), "{refused}");
    }

    #[test]
    fn matrices_with_scales_beside_them_are_refused() {
        let mut tensors = Config::tiny(B3, 3).tensors();
        tensors.push(("blocks.0.mlp.vid.proj_in.weight_scale".into(), Shape::from([1])));
        let refused = Config::detect(&Formula::plain(tensors, 1)).unwrap_err().to_string();
        assert!(refused.contains("`blocks.0.mlp.vid.proj_in.weight_scale`") && refused.contains("scaled"), "{refused}");
    }
}
