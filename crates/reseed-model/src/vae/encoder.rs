use std::iter;

use reseed_ops::{ConvOutput, Device, Hw, Tensor};

use super::Coder;
use super::blocks::{ConvLayer, Head, Mid, Resnet};
use super::prefetch::{prefetch_fields, prefetched};
use super::state::State;
use super::steps::{Block, Step};
use crate::config::Config;
use crate::error::Result;
use crate::load::Loader;

/// Frames `[1 + 4k, H, W, 3]` from -1 to 1 to moments `[1 + k, H/8, W/8, 2 · latent]`: mean, then log-variance.
#[derive(Clone)]
pub struct Encoder {
    config: Config,
    stem: ConvLayer,
    levels: Vec<Level>,
    mid: Mid,
    head: Head,
    /// Levels before the first one that halves the frame rate: these may run over a few frames at a time.
    fine: usize,
    slots: usize,
    /// Whether the weights were offloaded when they were loaded.
    offloaded: bool,
}

#[derive(Clone)]
struct Level {
    name: String,
    resnets: Vec<Resnet>,
    down: Option<ConvLayer>,
}

prefetch_fields! {
    Encoder { stem, levels, mid, head }
    Level { resnets, down }
}

impl Encoder {
    pub(crate) fn load(w: &Loader) -> Result<Encoder> {
        let config = w.config;
        let top = *config.channels.last().expect("a VAE has levels");
        let mut previous = config.channels[0];
        let stem = ConvLayer::stem(w, "encoder", config.image, previous)?;
        let fine = (0..config.channels.len()).find(|&i| config.down_time(i)).unwrap_or(config.channels.len() - 1);
        let mut levels = Vec::new();
        for (i, &c) in config.channels.iter().enumerate() {
            let name = format!("encoder.down_blocks.{i}");
            let resnet = |j| Resnet::load(w, &format!("{name}.resnets.{j}"), if j == 0 { previous } else { c }, c);
            let resnets = (0..config.layers).map(resnet).collect::<Result<_>>()?;
            let down = || ConvLayer::down(w, &format!("{name}.downsamplers.0"), c, config.down_time(i));
            let down = (i + 1 < config.channels.len()).then(down).transpose()?;
            levels.push(Level { name, resnets, down });
            previous = c;
        }
        let mid = Mid::load(w, "encoder.mid_block", top)?;
        let head = Head::load(w, "encoder", top, 2 * config.latent)?;
        let (config, slots, offloaded) = (config.clone(), w.next_slot(), w.offloaded);
        Ok(Encoder { config, stem, levels, mid, head, fine, slots, offloaded })
    }
}

/// The blocks of levels in order.
fn steps(levels: &[Level]) -> impl Iterator<Item = Step<'_>> {
    levels.iter().flat_map(|level| {
        let blocks = level.resnets.iter().map(|resnet| resnet as &dyn Block);
        let down = level.down.iter().map(|down| down as &dyn Block);
        blocks.chain(down).map(|block| Step { stage: &level.name, at_once: None, block })
    })
}

impl Coder for Encoder {
    fn channels_in(&self) -> usize {
        self.config.image
    }

    fn channels_out(&self) -> usize {
        2 * self.config.latent
    }

    fn frames_out(&self, frames: usize, starts: bool) -> usize {
        let head = usize::from(starts);
        head + (frames - head) / self.config.temporal_factor()
    }

    fn plane_out(&self, plane: Hw) -> Hw {
        let factor = self.config.spatial_factor();
        Hw::new(plane.h / factor, plane.w / factor)
    }

    /// The first slice of a clip holds 1 + 4k frames, later ones 4k; sides are multiples of 8.
    fn run(&self, ops: &dyn Device, slice: Tensor, state: &mut State) -> Result<Tensor> {
        let (fine, coarse) = self.levels.split_at(self.fine);
        let stem = Step { stage: "encoder.conv_in", at_once: Some(state.at_once().0), block: &self.stem };
        let fine: Vec<Step> = iter::once(stem).chain(steps(fine)).collect();
        let x = state.run(ops, &fine, ConvOutput { tensor: slice, stats: None })?;
        let x = state.run(ops, &steps(coarse).collect::<Vec<_>>(), x)?;
        ops.stage("encoder.mid_block");
        let x = self.mid.forward(ops, x, state)?;
        ops.stage("encoder.conv_out");
        let moments = self.head.forward(ops, x, state)?.tensor;
        state.advance(moments.thw().t);
        Ok(moments)
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn prefetch(&self, ops: &dyn Device) -> Result<Option<Box<dyn Coder>>> {
        let here = || Encoder { offloaded: false, ..self.clone() };
        self.offloaded.then(|| prefetched(here(), ops)).transpose()
    }
}
