use reseed_ops::{Epilogue, Hw, Ops, Tensor};

use super::Half;
use super::blocks::{CausalConv, Head, Mid, Resnet, Upsampler};
use super::state::State;
use crate::config::Config;
use crate::error::Result;
use crate::load::{Loader, cube};

/// Latents `[1 + k, h, w, latent]`, unscaled, to pictures `[1 + 4k, 8h, 8w, 3]` around [-1, 1].
pub struct Decoder {
    config: Config,
    conv_in: CausalConv,
    mid: Mid,
    levels: Vec<Level>,
    head: Head,
}

struct Level {
    name: String,
    resnets: Vec<Resnet>,
    up: Option<Upsampler>,
}

impl Decoder {
    pub(crate) fn load(w: &Loader) -> Result<Decoder> {
        let config = w.config;
        let mut previous = *config.channels.last().expect("a VAE has levels");
        let conv_in = CausalConv::load(w, "decoder.conv_in", cube(config.latent, previous))?;
        let mid = Mid::load(w, "decoder.mid_block", previous)?;
        let mut levels = Vec::new();
        for (i, &c) in config.channels.iter().rev().enumerate() {
            let name = format!("decoder.up_blocks.{i}");
            let resnet = |j| Resnet::load(w, &format!("{name}.resnets.{j}"), if j == 0 { previous } else { c }, c);
            let resnets = (0..=config.layers).map(resnet).collect::<Result<_>>()?;
            let up = || Upsampler::load(w, &format!("{name}.upsamplers.0"), c, config.up_time(i));
            let up = (i + 1 < config.channels.len()).then(up).transpose()?;
            levels.push(Level { name, resnets, up });
            previous = c;
        }
        let head = Head::load(w, "decoder", previous, config.image)?;
        Ok(Decoder { config: config.clone(), conv_in, mid, levels, head })
    }
}

impl Half for Decoder {
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
    fn run(&self, ops: &dyn Ops, slice: Tensor, state: &mut State) -> Result<Tensor> {
        let (groups, frames) = (self.config.groups, slice.thw().t);
        ops.stage("decoder.conv_in");
        let x = self.conv_in.forward(ops, slice, state, Epilogue { residual: None, groups: Some(groups) })?;
        ops.stage("decoder.mid_block");
        let mut x = self.mid.forward(ops, x, state)?;
        for level in &self.levels {
            ops.stage(&level.name);
            for resnet in &level.resnets {
                x = resnet.forward(ops, x, state)?;
            }
            if let Some(up) = &level.up {
                x = up.forward(ops, x, state, groups)?;
            }
        }
        ops.stage("decoder.conv_out");
        let pictures = self.head.forward(ops, x, state)?;
        state.advance(frames);
        Ok(pictures)
    }
}
