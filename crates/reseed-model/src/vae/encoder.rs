use reseed_ops::{Epilogue, Hw, Ops, Tensor};

use super::Half;
use super::blocks::{CausalConv, Downsample, Head, Mid, Resnet};
use super::state::State;
use crate::config::Config;
use crate::error::Result;
use crate::load::{Loader, cube};

/// Pictures `[1 + 4k, H, W, 3]` in [-1, 1] to moments `[1 + k, H/8, W/8, 2 · latent]`: mean, then log-variance.
pub struct Encoder {
    config: Config,
    conv_in: CausalConv,
    levels: Vec<Level>,
    mid: Mid,
    head: Head,
}

struct Level {
    name: String,
    resnets: Vec<Resnet>,
    down: Option<Downsample>,
}

impl Encoder {
    pub(crate) fn load(w: &Loader) -> Result<Encoder> {
        let config = w.config;
        let top = *config.channels.last().expect("a VAE has levels");
        let mut previous = config.channels[0];
        let conv_in = CausalConv::load(w, "encoder.conv_in", cube(config.image, previous))?;
        let mut levels = Vec::new();
        for (i, &c) in config.channels.iter().enumerate() {
            let name = format!("encoder.down_blocks.{i}");
            let resnet = |j| Resnet::load(w, &format!("{name}.resnets.{j}"), if j == 0 { previous } else { c }, c);
            let resnets = (0..config.layers).map(resnet).collect::<Result<_>>()?;
            let down = || Downsample::load(w, &format!("{name}.downsamplers.0"), c, config.down_time(i));
            let down = (i + 1 < config.channels.len()).then(down).transpose()?;
            levels.push(Level { name, resnets, down });
            previous = c;
        }
        let mid = Mid::load(w, "encoder.mid_block", top)?;
        let head = Head::load(w, "encoder", top, 2 * config.latent)?;
        Ok(Encoder { config: config.clone(), conv_in, levels, mid, head })
    }
}

impl Half for Encoder {
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
    fn run(&self, ops: &dyn Ops, slice: Tensor, state: &mut State) -> Result<Tensor> {
        let groups = self.config.groups;
        ops.stage("encoder.conv_in");
        let mut x = self.conv_in.forward(ops, slice, state, Epilogue { residual: None, groups: Some(groups) })?;
        for level in &self.levels {
            ops.stage(&level.name);
            for resnet in &level.resnets {
                x = resnet.forward(ops, x, state)?;
            }
            if let Some(down) = &level.down {
                x = down.forward(ops, x, state, groups)?;
            }
        }
        ops.stage("encoder.mid_block");
        let x = self.mid.forward(ops, x, state)?;
        ops.stage("encoder.conv_out");
        let moments = self.head.forward(ops, x, state)?;
        state.advance(moments.thw().t);
        Ok(moments)
    }
}
