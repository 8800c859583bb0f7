//! The one-step diffusion transformer: noise and a condition to the restored latent.
//!
//! Video tokens attend within windows; every window also attends to all text tokens. Odd layers shift the windows.

mod block;
mod config;
mod load;
mod requirements;
mod rope;
mod time;
mod windows;

pub(crate) use config::cropped;
pub use config::{B3, B7, Config, LOW_BAND_WIDTH, Layout, Start, low_band_tensors, open};
pub use requirements::{DitRequirements, DitWorkload, LayerPlacement};

use reseed_ops::{Device, Linear, Norm, Rotary, Rows, Shape, Tensor, Thw};

use crate::error::Result;
use crate::weights::Source;
use block::Block;
use config::PATCH;
pub(crate) use config::Rope;
use load::Loader;
use windows::WindowPacking;

/// A transformer and its configuration.
#[derive(Clone)]
pub struct Dit {
    /// The configuration.
    pub config: Config,
    video_in: Linear,
    text_in: Linear,
    blocks: Vec<Block>,
    head_norm: Option<Norm>,
    video_out: Linear,
}

/// A [`WindowPacking`] on a device.
struct Windows {
    /// Tokens of each sequence.
    lengths: Vec<usize>,
    /// Token at each position of the sequences.
    order: Rows,
    /// Position of each video token.
    video: Rows,
    /// Positions of each text token, one per sequence.
    text: Rows,
    /// Rotary embedding of each position.
    rotary: Rotary,
}

impl Windows {
    fn new(ops: &dyn Device, grid: Thw, text: usize, shifted: bool, rope: Rope) -> Result<Windows> {
        let packing = WindowPacking::new(grid, text, shifted, rope);
        Ok(Windows {
            order: ops.rows(1, &packing.order)?,
            video: ops.rows(1, &packing.video)?,
            text: ops.rows(packing.lengths.len(), &packing.text)?,
            rotary: ops.rotary(&packing.rotary)?,
            lengths: packing.lengths,
        })
    }
}

/// Index tables and rotary embeddings for one latent size and number of text tokens, on a device.
pub struct DitPlan {
    latent: Thw,
    patchified: Rows,
    unpatchified: Rows,
    regular: Windows,
    shifted: Windows,
}

impl Dit {
    /// Loads all layers onto the device. The time embedding is folded into the modulation while loading.
    pub fn load(ops: &dyn Device, source: &dyn Source) -> Result<Dit> {
        Dit::load_streamed(ops, source, usize::MAX)
    }

    /// Loads `resident` layers, evenly spread, onto the device and the others into host memory. Every step prefetches
    /// the offloaded layers one by one, each while the layer before it computes.
    pub fn load_streamed(ops: &dyn Device, source: &dyn Source, resident: usize) -> Result<Dit> {
        let config = Config::detect(source)?;
        let w = Loader::new(ops, source, &config);
        let (d, out) = (config.width, PATCH * PATCH * config.latent);
        let block = |i: usize| {
            let block = Block::load(&w, i)?;
            if is_selected(i, resident, config.layers) { Ok(block) } else { block.offload(ops) }
        };
        Ok(Dit {
            video_in: w.patch_in()?,
            text_in: w.linear("txt_in", [d, config.text_width])?,
            blocks: (0..config.layers).map(block).collect::<Result<_>>()?,
            head_norm: config.layout.modulated_head.then(|| w.head_norm()).transpose()?,
            video_out: w.linear("vid_out.proj", [out, d])?,
            config,
        })
    }

    /// A copy that prefetches `count` offloaded layers, evenly spread, into the arena and keeps them until it is
    /// dropped: for several batches in a row.
    pub fn prefetch_layers(&self, ops: &dyn Device, count: usize) -> Result<Dit> {
        let layers = self.blocks.len();
        let block = |(i, block): (usize, &Block)| match block.offloaded && is_selected(i, count, layers) {
            true => block.prefetch(ops),
            false => Ok(block.clone()),
        };
        Ok(Dit { blocks: self.blocks.iter().enumerate().map(block).collect::<Result<_>>()?, ..self.clone() })
    }

    /// Prepares the tables for latents of size `latent`, with even rows and columns, and `text` text tokens.
    pub fn plan(&self, ops: &dyn Device, latent: Thw, text: usize) -> Result<DitPlan> {
        assert!(
            latent.h.is_multiple_of(PATCH) && latent.w.is_multiple_of(PATCH),
            "latent {latent}: rows and columns must be even"
        );
        let grid = Thw { t: latent.t, h: latent.h / PATCH, w: latent.w / PATCH };
        let windows = |shifted| Windows::new(ops, grid, text, shifted, self.config.layout.rope);
        Ok(DitPlan {
            latent,
            patchified: ops.rows(1, &windows::patchify(latent, PATCH))?,
            unpatchified: ops.rows(1, &windows::unpatchify(latent, PATCH))?,
            regular: windows(false)?,
            shifted: windows(true)?,
        })
    }

    /// Latents for [`Dit::sample`] from those of the condition and, where the step starts from noise, of the noise.
    pub fn joined(ops: &dyn Device, noise: Option<Tensor>, condition: Tensor) -> Result<Tensor> {
        let frames = 2 * condition.thw().t;
        Ok(ops.tail(Some(noise.unwrap_or_else(|| condition.clone())), condition, frames)?)
    }

    /// Runs the one step and returns the restored latent `[T, H, W, c]`: noise - velocity.
    ///
    /// `latents` is `[2T, H, W, c]`: T frames of noise, or of the condition where the step starts from it, then T
    /// frames of the condition, all multiplied by the scaling factor of the VAE. `text` is `[tokens, text width]`.
    pub fn sample(&self, ops: &dyn Device, latents: &Tensor, text: &Tensor, plan: &DitPlan) -> Result<Tensor> {
        let velocity = self.velocity(ops, latents, text, plan)?;
        let noise = latents.frames(0, plan.latent.t);
        Ok(ops.axpby(1.0, &noise, -1.0, velocity)?)
    }

    /// Velocity of the flow at the timestep of pure noise. Arguments as for [`Dit::sample`].
    ///
    /// x, y = in(latents), in(text);  x, y ← block(x, y) for each layer;  v = out(n(x) ⊙ s + b)
    pub fn velocity(&self, ops: &dyn Device, latents: &Tensor, text: &Tensor, plan: &DitPlan) -> Result<Tensor> {
        ops.stage("in");
        let mut pending = self.prefetch_next(ops, 0)?;
        let mut x = self.patchify(ops, latents, plan)?;
        let mut y = ops.linear(text, &self.text_in, None)?;
        for (i, block) in self.blocks.iter().enumerate() {
            ops.stage(&format!("blocks.{i}"));
            let windows = if i % 2 == 0 { &plan.regular } else { &plan.shifted };
            let prefetched = if block.offloaded { pending.take() } else { None };
            if pending.is_none() {
                pending = self.prefetch_next(ops, i + 1)?;
            }
            (x, y) = prefetched.as_ref().unwrap_or(block).forward(ops, x, y, windows)?;
        }
        ops.stage("out");
        let x = match &self.head_norm {
            Some(norm) => ops.rms_norm_modulate(&x, norm)?,
            None => x,
        };
        self.unpatchify(ops, &x, plan)
    }

    /// Starts the prefetch of the first offloaded layer at or after layer `first`.
    fn prefetch_next(&self, ops: &dyn Device, first: usize) -> Result<Option<Block>> {
        self.blocks[first..].iter().find(|block| block.offloaded).map(|block| block.prefetch(ops)).transpose()
    }

    /// Projects patches of latent pixels, each with its noise and its condition, to video tokens.
    fn patchify(&self, ops: &dyn Device, latents: &Tensor, plan: &DitPlan) -> Result<Tensor> {
        let (Thw { t, h, w }, c) = (plan.latent, self.config.latent);
        assert_eq!(latents.shape(), Shape::from([2 * t, h, w, c]), "expected noise and condition of {}", plan.latent);
        let pixels = latents.clone().reshape([2 * plan.latent.count(), c]);
        let patches = ops.gather_rows(&pixels, &plan.patchified)?;
        let tokens = plan.latent.count() / (PATCH * PATCH);
        Ok(ops.linear(&patches.reshape([tokens, 2 * PATCH * PATCH * c]), &self.video_in, None)?)
    }

    fn unpatchify(&self, ops: &dyn Device, x: &Tensor, plan: &DitPlan) -> Result<Tensor> {
        let patches = ops.linear(x, &self.video_out, None)?;
        let pixels = patches.reshape([plan.latent.count(), self.config.latent]);
        let latent = ops.gather_rows(&pixels, &plan.unpatchified)?;
        Ok(latent.reshape(Shape::clip(plan.latent, self.config.latent)))
    }
}

/// Whether layer `i` is among `count` layers evenly spread over `layers`.
fn is_selected(i: usize, count: usize, layers: usize) -> bool {
    let count = count.min(layers);
    (i + 1) * count / layers > i * count / layers
}
