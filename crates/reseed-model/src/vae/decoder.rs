use reseed_ops::{Epilogue, Hw, Ops, Summed, Tensor};

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
    slots: usize,
    /// Whether the layers wait in the host's memory.
    parked: bool,
}

struct Level {
    name: String,
    resnets: Vec<Resnet>,
    up: Option<Upsampler>,
    /// The slot behind the level's residual blocks: that of the step up, if there is one.
    end: usize,
}

impl Level {
    fn fetch(&self, ops: &dyn Ops) -> Result<Level> {
        Ok(Level {
            name: self.name.clone(),
            resnets: self.resnets.iter().map(|resnet| resnet.fetch(ops)).collect::<Result<_>>()?,
            up: self.up.as_ref().map(|up| up.fetch(ops)).transpose()?,
            end: self.end,
        })
    }
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
            let resnets = (0..config.decoder_layers).map(resnet).collect::<Result<_>>()?;
            let end = w.next_slot();
            let up = || Upsampler::load(w, &format!("{name}.upsamplers.0"), c, config.up_time(i));
            let up = (i + 1 < config.channels.len()).then(up).transpose()?;
            levels.push(Level { name, resnets, up, end });
            previous = c;
        }
        let head = Head::load(w, "decoder", previous, config.image)?;
        let (config, slots, parked) = (config.clone(), w.next_slot(), w.parked);
        Ok(Decoder { config, conv_in, mid, levels, head, slots, parked })
    }

    /// The step up to level `i`, and its residual blocks.
    fn level(&self, i: usize, ops: &dyn Ops, mut x: Summed, state: &mut State) -> Result<Summed> {
        if let Some((before, up)) = i.checked_sub(1).and_then(|i| Some((&self.levels[i], self.levels[i].up.as_ref()?)))
        {
            ops.stage(&before.name);
            x = up.forward(ops, x, state, self.config.groups)?;
        }
        ops.stage(&self.levels[i].name);
        for resnet in &self.levels[i].resnets {
            x = resnet.forward(ops, x, state)?;
        }
        Ok(x)
    }

    /// From the step up to level `i` to pictures, some frames at a time. A step that makes frames makes those of one part,
    /// so that all of them never exist together.
    fn finish(&self, i: usize, ops: &dyn Ops, x: Summed, state: &mut State) -> Result<Summed> {
        if i == self.levels.len() {
            ops.stage("decoder.conv_out");
            return Ok(Summed { tensor: self.head.forward(ops, x, state)?, stats: None });
        }
        let (at_once, first) = (state.at_once().0, self.levels[i - 1].end);
        let step = if self.config.up_time(i - 1) { at_once.div_ceil(2) } else { at_once };
        state.in_parts(ops, x, step, &(first..self.slots), |x, state| {
            let x = self.level(i, ops, x, state)?;
            self.finish(i + 1, ops, x, state)
        })
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
        // Frames are made up to here; the levels behind may run over some of them at a time.
        let made = (0..self.levels.len()).rfind(|&i| self.config.up_time(i)).unwrap_or(0);
        let last = made.max(self.levels.len().saturating_sub(1 + state.at_once().1));
        for i in 0..=last {
            x = self.level(i, ops, x, state)?;
        }
        let pictures = self.finish(last + 1, ops, x, state)?;
        state.advance(frames);
        Ok(pictures.tensor)
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn fetch(&self, ops: &dyn Ops) -> Result<Option<Box<dyn Half>>> {
        if !self.parked {
            return Ok(None);
        }
        Ok(Some(Box::new(Decoder {
            config: self.config.clone(),
            conv_in: self.conv_in.fetch(ops)?,
            mid: self.mid.fetch(ops)?,
            levels: self.levels.iter().map(|level| level.fetch(ops)).collect::<Result<_>>()?,
            head: self.head.fetch(ops)?,
            parked: false,
            ..*self
        })))
    }
}
