use std::ops::Range;

use reseed_ops::{Epilogue, Hw, Ops, Summed, Tensor};

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
    /// Levels before the first one that takes frames together, and their slots: these may run over some at a time.
    fine: usize,
    fine_slots: Range<usize>,
    slots: usize,
    /// Whether the layers wait in the host's memory.
    parked: bool,
}

struct Level {
    name: String,
    resnets: Vec<Resnet>,
    down: Option<Downsample>,
}

impl Level {
    fn fetch(&self, ops: &dyn Ops) -> Result<Level> {
        Ok(Level {
            name: self.name.clone(),
            resnets: self.resnets.iter().map(|resnet| resnet.fetch(ops)).collect::<Result<_>>()?,
            down: self.down.as_ref().map(|down| down.fetch(ops)).transpose()?,
        })
    }
}

impl Encoder {
    pub(crate) fn load(w: &Loader) -> Result<Encoder> {
        let config = w.config;
        let top = *config.channels.last().expect("a VAE has levels");
        let mut previous = config.channels[0];
        let conv_in = CausalConv::load(w, "encoder.conv_in", cube(config.image, previous))?;
        let fine = (0..config.channels.len()).find(|&i| config.down_time(i)).unwrap_or(config.channels.len() - 1);
        let (mut levels, mut fine_slots) = (Vec::new(), 0..0);
        for (i, &c) in config.channels.iter().enumerate() {
            let name = format!("encoder.down_blocks.{i}");
            fine_slots.end = if i == fine { w.next_slot() } else { fine_slots.end };
            let resnet = |j| Resnet::load(w, &format!("{name}.resnets.{j}"), if j == 0 { previous } else { c }, c);
            let resnets = (0..config.layers).map(resnet).collect::<Result<_>>()?;
            let down = || Downsample::load(w, &format!("{name}.downsamplers.0"), c, config.down_time(i));
            let down = (i + 1 < config.channels.len()).then(down).transpose()?;
            levels.push(Level { name, resnets, down });
            previous = c;
        }
        let mid = Mid::load(w, "encoder.mid_block", top)?;
        let head = Head::load(w, "encoder", top, 2 * config.latent)?;
        let (config, slots, parked) = (config.clone(), w.next_slot(), w.parked);
        Ok(Encoder { config, conv_in, levels, mid, head, fine, fine_slots, slots, parked })
    }

    fn level(&self, i: usize, ops: &dyn Ops, mut x: Summed, state: &mut State) -> Result<Summed> {
        let level = &self.levels[i];
        ops.stage(&level.name);
        for resnet in &level.resnets {
            x = resnet.forward(ops, x, state)?;
        }
        match &level.down {
            Some(down) => down.forward(ops, x, state, self.config.groups),
            None => Ok(x),
        }
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
        let slice = Summed { tensor: slice, stats: None };
        let mut x = state.in_parts(ops, slice, state.at_once().0, &self.fine_slots, |x, state| {
            ops.stage("encoder.conv_in");
            let epilogue = Epilogue { residual: None, groups: Some(groups) };
            let mut x = self.conv_in.forward(ops, x.tensor, state, epilogue)?;
            for i in 0..self.fine {
                x = self.level(i, ops, x, state)?;
            }
            Ok(x)
        })?;
        for i in self.fine..self.levels.len() {
            x = self.level(i, ops, x, state)?;
        }
        ops.stage("encoder.mid_block");
        let x = self.mid.forward(ops, x, state)?;
        ops.stage("encoder.conv_out");
        let moments = self.head.forward(ops, x, state)?;
        state.advance(moments.thw().t);
        Ok(moments)
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn fetch(&self, ops: &dyn Ops) -> Result<Option<Box<dyn Half>>> {
        if !self.parked {
            return Ok(None);
        }
        Ok(Some(Box::new(Encoder {
            config: self.config.clone(),
            conv_in: self.conv_in.fetch(ops)?,
            levels: self.levels.iter().map(|level| level.fetch(ops)).collect::<Result<_>>()?,
            mid: self.mid.fetch(ops)?,
            head: self.head.fetch(ops)?,
            parked: false,
            fine_slots: self.fine_slots.clone(),
            ..*self
        })))
    }
}
