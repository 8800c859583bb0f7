//! What of a whole job's networks stays on the device.
//!
//! Autoencoder and transformer take turns on one piece of memory. The autoencoder is given the room that it computes
//! fastest in, where that is there; as many of the transformer's layers as then fit stay, and the others come from the
//! host's memory behind the arithmetic.

use reseed_media::Size;
use reseed_model::dit::{Case, Config, Needs};
use reseed_model::plan::{Cut, whole_frames};
use reseed_model::{Half, Vae};
use reseed_ops::{Hw, Thw};
use reseed_upscale::{Networks, Settings, VaePlan};

use crate::args::PlanArgs;
use crate::budget::{self, Clip, SPARE, Sharing};
use crate::engine::Device;
use crate::failure::{Failure, Result};
use crate::model::Weights;
use crate::report::bytes;

/// Networks, devices and sizes of a job.
pub struct Outline<'a> {
    pub weights: &'a Weights,
    /// The autoencoder's.
    pub device: &'a Device,
    /// The transformer's.
    pub transformer: &'a Device,
    pub plan: PlanArgs,
    /// Pictures as the networks see them.
    pub padded: Size,
    /// Frames of a batch.
    pub batch: usize,
}

/// What the networks take beside the autoencoder's tensors.
#[derive(Clone, Copy)]
pub struct Share {
    /// The transformer's.
    pub step: Needs,
    /// Bytes of the autoencoder's weights.
    pub vae: usize,
}

impl Share {
    /// Bytes of weights on the device.
    pub fn weights(&self) -> usize {
        self.vae + self.step.weights
    }

    /// Bytes that the transformer's step takes where the autoencoder's tensors were.
    pub fn turn(&self) -> usize {
        self.step.arena + SPARE
    }
}

impl<'a> Outline<'a> {
    /// Both halves of the autoencoder over a batch.
    pub fn clips<'v>(&self, vae: &'v Vae) -> [Clip<'v>; 2] {
        let (config, latent) = (&vae.config, self.latent(vae));
        let plane = Hw::new(self.padded.h, self.padded.w);
        let frames = whole_frames(self.batch, config.temporal_factor());
        let encode = Clip { half: &vae.encoder, config, cut: Cut::Pictures, plane, frames };
        let decode = Clip {
            half: &vae.decoder,
            config,
            cut: Cut::Latents,
            plane: Hw::new(latent.h, latent.w),
            frames: latent.t,
        };
        [encode, decode]
    }

    /// Extent of a batch's latent.
    pub fn latent(&self, vae: &Vae) -> Thw {
        let plane = vae.encoder.plane_out(Hw::new(self.padded.h, self.padded.w));
        let frames = whole_frames(self.batch, vae.config.temporal_factor());
        Thw::new(vae.encoder.frames_out(frames, true), plane.h, plane.w)
    }

    /// What the networks take of the room there is before they are loaded.
    pub fn share(&self) -> Result<Share> {
        let trace = (self.device.trace)();
        let vae = Vae::load(&trace, self.weights.vae())?;
        let vae_weights = trace.ledger().weights;
        let dit = self.weights.dit();
        let text = self.weights.text(Config::detect(dit)?.text_width)?;
        let case = Case { source: dit, latent: self.latent(&vae), text: text.shape.dims()[0] };
        let share = |step| Share { step, vae: vae_weights };
        let Some(room) = (self.device.room)()? else {
            return Ok(share(case.needs(&(self.transformer.trace)(), usize::MAX)?));
        };
        let fastest = budget::plan_within(self.device, &self.plan, &self.clips(&vae), usize::MAX)?;
        let fastest = fastest.iter().map(|planned| planned.plan.ledger.arena + SPARE).max().unwrap_or(0);
        // A little more, for what the plan counts only roughly.
        let fits = |needs: &Needs| {
            let share = share(*needs);
            share.weights() + share.weights() / 64 + share.turn().max(fastest) <= room
        };
        if let Some(needs) = case.most(&self.transformer.trace, fits)? {
            return Ok(share(needs));
        }
        let least = share(case.needs(&(self.transformer.trace)(), 0)?);
        match least.weights() + least.turn() <= room {
            true => Ok(least),
            false => Err(Failure::Memory(format!(
                "{}: {} for the model, {} needed at the least; raise --max-vram or use smaller pictures or batches",
                self.device.ops.device(),
                bytes(room),
                bytes(least.weights() + least.turn()),
            ))),
        }
    }

    /// The networks on their devices, and the settings with a plan that fits beside them.
    pub fn load(&self, settings: Settings, share: &Share) -> Result<(Networks<'a>, Settings)> {
        let transformer: &'a Device = self.transformer;
        let networks = self.weights.load(&*self.device.ops, &*transformer.ops, share.step.resident)?;
        let settings = self.reserve(settings, share, networks.model().vae)?;
        Ok((networks, settings))
    }

    /// The settings with the plan of the autoencoder that fits beside the loaded networks, and its memory taken.
    fn reserve(&self, settings: Settings, share: &Share, vae: &Vae) -> Result<Settings> {
        let sharing = Sharing::Turns(share.turn());
        let planned = budget::reserve(self.device, &self.plan, &self.clips(vae), sharing)?;
        let [encode, decode] = &planned[..] else { unreachable!("two plans") };
        let (slice, encode, decode) = (encode.plan.slice, encode.plan.keeping.clone(), decode.plan.keeping.clone());
        Ok(Settings { vae: VaePlan { slice, encode, decode, ..settings.vae }, ..settings })
    }
}
