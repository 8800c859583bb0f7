use reseed_ops::{ConvOutput, Device, Hw, Tensor};

use super::Coder;
use super::blocks::{ConvLayer, Head, Mid, Resnet, Upsampler};
use super::prefetch::{prefetch_fields, prefetched};
use super::state::State;
use super::steps::{Block, Step};
use crate::config::Config;
use crate::error::Result;
use crate::load::Loader;

/// Latents `[1 + k, h, w, latent]`, unscaled, to frames `[1 + 4k, 8h, 8w, 3]`, about -1 to 1.
#[derive(Clone)]
pub struct Decoder {
    config: Config,
    stem: ConvLayer,
    mid: Mid,
    levels: Vec<Level>,
    head: Head,
    slots: usize,
    /// Whether the weights were offloaded when they were loaded.
    offloaded: bool,
}

#[derive(Clone)]
struct Level {
    name: String,
    resnets: Vec<Resnet>,
    up: Option<Upsampler>,
}

prefetch_fields! {
    Decoder { stem, mid, levels, head }
    Level { resnets, up }
}

impl Decoder {
    pub(crate) fn load(w: &Loader) -> Result<Decoder> {
        let config = w.config;
        let mut previous = *config.channels.last().expect("a VAE has levels");
        let stem = ConvLayer::stem(w, "decoder", config.latent, previous)?;
        let mid = Mid::load(w, "decoder.mid_block", previous)?;
        let mut levels = Vec::new();
        for (i, &c) in config.channels.iter().rev().enumerate() {
            let name = format!("decoder.up_blocks.{i}");
            let resnet = |j| Resnet::load(w, &format!("{name}.resnets.{j}"), if j == 0 { previous } else { c }, c);
            let resnets = (0..config.decoder_layers).map(resnet).collect::<Result<_>>()?;
            let up = || Upsampler::load(w, &format!("{name}.upsamplers.0"), c, config.up_time(i));
            let up = (i + 1 < config.channels.len()).then(up).transpose()?;
            levels.push(Level { name, resnets, up });
            previous = c;
        }
        let head = Head::load(w, "decoder", previous, config.image)?;
        let (config, slots, offloaded) = (config.clone(), w.next_slot(), w.offloaded);
        Ok(Decoder { config, stem, mid, levels, head, slots, offloaded })
    }

    /// All levels and the head. The last `levels` levels run over `at_once` frames at a time. An upsampler in front of
    /// them computes the frames of one part at a time, so that its whole output never exists.
    fn steps(&self, at_once: usize, levels: usize) -> Vec<Step<'_>> {
        let doubled = (0..self.levels.len()).rfind(|&i| self.config.up_time(i)).unwrap_or(0);
        let whole = doubled.max(self.levels.len().saturating_sub(1 + levels));
        let mut steps = Vec::new();
        for (i, level) in self.levels.iter().enumerate() {
            let at_once = (i > whole).then_some(at_once);
            if let Some((before, up)) =
                i.checked_sub(1).and_then(|i| Some((&self.levels[i], self.levels[i].up.as_ref()?)))
            {
                let factor = if self.config.up_time(i - 1) { 2 } else { 1 };
                let at_once = at_once.map(|at_once| at_once.div_ceil(factor));
                steps.push(Step { stage: &before.name, at_once, block: up });
            }
            let step = |block| Step { stage: &level.name, at_once: None, block };
            steps.extend(level.resnets.iter().map(|resnet| step(resnet)));
        }
        steps.push(Step { stage: "decoder.conv_out", at_once: None, block: &self.head });
        steps
    }
}

impl Coder for Decoder {
    fn channels_in(&self) -> usize {
        self.config.latent
    }

    fn channels_out(&self) -> usize {
        self.config.image
    }

    fn frames_out(&self, frames: usize, starts: bool) -> usize {
        let head = usize::from(starts);
        head + (frames - head) * self.config.temporal_factor()
    }

    fn plane_out(&self, plane: Hw) -> Hw {
        let factor = self.config.spatial_factor();
        Hw::new(plane.h * factor, plane.w * factor)
    }

    /// The first slice of a clip holds 1 + k latent frames, later ones k.
    fn run(&self, ops: &dyn Device, slice: Tensor, state: &mut State) -> Result<Tensor> {
        let latents = slice.thw().t;
        ops.stage("decoder.conv_in");
        let x = self.stem.forward(ops, ConvOutput { tensor: slice, stats: None }, state)?;
        ops.stage("decoder.mid_block");
        let x = self.mid.forward(ops, x, state)?;
        let (at_once, levels) = state.at_once();
        let frames = state.run(ops, &self.steps(at_once, levels), x)?;
        state.advance(latents);
        Ok(frames.tensor)
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn prefetch(&self, ops: &dyn Device) -> Result<Option<Box<dyn Coder>>> {
        let here = || Decoder { offloaded: false, ..self.clone() };
        self.offloaded.then(|| prefetched(here(), ops)).transpose()
    }
}
