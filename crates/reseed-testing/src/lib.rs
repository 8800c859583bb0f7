//! Test support of the workspace: golden files, models with formula weights, device doubles and a fake CUDA driver.
#![allow(missing_docs, clippy::unwrap_used, reason = "test support: a test stops at the first error")]

pub mod conformance;
pub mod device;
pub mod distant;
pub mod dit;
pub mod fake_driver;
pub mod faults;
pub mod files;
pub mod frames;
pub mod fuzz;
pub mod gguf;
pub mod golden;
pub mod narrow;
pub mod pipeline;
pub mod quantized;
pub mod scarce;
pub mod torch;

pub use golden::Clip;
use reseed_model::plan::{CachePlan, InputPlan, TileInput};
use reseed_model::weights::formula::Formula;
use reseed_model::{Coder, Config, State, Vae};
use reseed_ops::{Device, Hw};

/// The encoder or the decoder of the VAE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Encode,
    Decode,
}

impl Side {
    pub const BOTH: [Side; 2] = [Side::Encode, Side::Decode];

    pub fn coder(self, vae: &Vae) -> &dyn Coder {
        match self {
            Side::Encode => &vae.encoder,
            Side::Decode => &vae.decoder,
        }
    }

    pub fn cut(self) -> TileInput {
        match self {
            Side::Encode => TileInput::Frames,
            Side::Decode => TileInput::Latents,
        }
    }

    /// A clip of uniform values whose latent has `latents` frames of size `plane`.
    pub fn input(self, config: &Config, latents: usize, plane: Hw) -> Clip {
        let (time, space) = (config.temporal_factor(), config.spatial_factor());
        let name = format!("{self:?} {latents} {plane}");
        match self {
            Side::Encode => {
                let plane = Hw::new(plane.h * space, plane.w * space);
                Clip::uniform(&name, 1 + (latents - 1) * time, plane, config.image)
            }
            Side::Decode => Clip::uniform(&name, latents, plane, config.latent),
        }
    }

    /// The ranges of input frames of slices whose lengths are given in latent frames.
    pub fn slices(self, config: &Config, latents: &[usize]) -> Vec<std::ops::Range<usize>> {
        let position = |latents: usize| match self {
            Side::Encode if latents > 0 => 1 + (latents - 1) * config.temporal_factor(),
            _ => latents,
        };
        let mut seen = 0;
        let slice = |&n: &usize| {
            seen += n;
            position(seen - n)..position(seen)
        };
        latents.iter().map(slice).collect()
    }
}

/// A VAE with formula weights.
pub fn load(ops: &dyn Device, config: &Config) -> Vae {
    Vae::load(ops, &formula(config)).unwrap()
}

pub fn formula(config: &Config) -> Formula {
    Formula::new(config.tensors(), config.groups, 1)
}

/// Runs a clip in slices whose lengths are given in latent frames.
pub fn run_slices(ops: &dyn Device, vae: &Vae, side: Side, clip: &Clip, latents: &[usize]) -> Vec<f32> {
    let mut state = State::new();
    let slices = side.slices(&vae.config, latents);
    slices.into_iter().flat_map(|slice| step(ops, side.coder(vae), clip, slice, &mut state)).collect()
}

/// Runs one slice of a clip and updates `state`.
pub fn step(
    ops: &dyn Device,
    coder: &dyn Coder,
    clip: &Clip,
    frames: std::ops::Range<usize>,
    state: &mut State,
) -> Vec<f32> {
    ops.download(&coder.run(ops, clip.upload(ops, frames), state).unwrap()).unwrap()
}

/// Decodes a clip with all caches in host memory, and all chunks that wait.
pub fn decode_offloaded(ops: &dyn Device) {
    let (vae, slots) = (load(ops, &Config::tiny()), 0..100);
    let input = InputPlan { kept: 1, prefetch_distance: 2 };
    let offloaded_inputs = slots.clone().map(|slot| (slot, input)).collect();
    let plan = CachePlan { chunk_frames: 1, breadth_first: true, offloaded_inputs, ..CachePlan::default() };
    let mut state = State::with_plan(CachePlan { offloaded: slots.collect(), ..plan });
    let clip = Side::Decode.input(&vae.config, 6, Hw::new(3, 5));
    for slice in Side::Decode.slices(&vae.config, &[2, 2, 2]) {
        step(ops, &vae.decoder, &clip, slice, &mut state);
    }
}
