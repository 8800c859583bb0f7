//! The one-step diffusion transformer: noise and a condition to the restored latent.

mod block;
mod config;
mod load;
mod needs;
mod rope;
mod time;
mod windows;

pub use block::Block;
pub use config::{Activation, B3, B7, Config, Layout, Rope, Start};
pub use needs::{Case, Layers, Needs};

use reseed_ops::{Device, Linear, Norm, Rotary, Rows, Shape, Tensor, Thw};

use crate::error::Result;
use crate::weights::Source;
use config::PATCH;
use load::Loader;
use windows::Packing;

/// A transformer and its sizes.
#[derive(Clone)]
pub struct Dit {
    /// The sizes.
    pub config: Config,
    /// Cells of the latent to tokens.
    video_in: Linear,
    /// Text as it comes to tokens.
    text_in: Linear,
    /// The layers, first one first.
    pub blocks: Vec<Block>,
    head_norm: Option<Norm>,
    video_out: Linear,
}

/// Windows of one size of latent, on a device.
pub struct Windows {
    /// Tokens of each sequence.
    pub lengths: Vec<usize>,
    /// Which token stands where in the sequences.
    pub order: Rows,
    /// Where each video token stands.
    pub video: Rows,
    /// Where each text token stands, in every sequence.
    pub text: Rows,
    /// Rotary positions in the sequences.
    pub rotary: Rotary,
}

impl Windows {
    fn new(ops: &dyn Device, grid: Thw, text: usize, shifted: bool, rope: Rope) -> Result<Windows> {
        let packing = Packing::new(grid, text, shifted, rope);
        Ok(Windows {
            order: ops.rows(1, &packing.order)?,
            video: ops.rows(1, &packing.video)?,
            text: ops.rows(packing.lengths.len(), &packing.text)?,
            rotary: ops.rotary(&packing.rotary)?,
            lengths: packing.lengths,
        })
    }
}

/// Everything that depends on the size of the latent and the length of the text alone, on a device.
pub struct Plan {
    latent: Thw,
    patches: Rows,
    unpatched: Rows,
    regular: Windows,
    shifted: Windows,
}

impl Dit {
    /// Loads the network. The time embedding is spent while loading and stays behind.
    pub fn load(ops: &dyn Device, source: &dyn Source) -> Result<Dit> {
        Dit::load_keeping(ops, source, usize::MAX)
    }

    /// The same with `resident` layers on the device, evenly spread; the others wait in the host's memory and come one by
    /// one, each while the one before it computes.
    pub fn load_keeping(ops: &dyn Device, source: &dyn Source, resident: usize) -> Result<Dit> {
        let config = Config::detect(source)?;
        let w = Loader::new(ops, source, &config);
        let (d, out) = (config.width, PATCH * PATCH * config.latent);
        let block = |i: usize| {
            let block = Block::load(&w, i)?;
            if is_one_of(i, resident, config.layers) { Ok(block) } else { block.offload(ops) }
        };
        Ok(Dit {
            video_in: w.patch_in()?,
            text_in: w.linear(&["txt_in".into()], [d, config.text_width], true)?,
            blocks: (0..config.layers).map(block).collect::<Result<_>>()?,
            head_norm: config.layout.modulated_head.then(|| w.head_norm()).transpose()?,
            video_out: w.linear(&["vid_out.proj".into()], [out, d], true)?,
            config,
        })
    }

    /// The same with `held` layers on their way to the device, evenly spread, into memory like that of tensors, for as long
    /// as it lives: for several batches in a row.
    pub fn fetch_layers(&self, ops: &dyn Device, held: usize) -> Result<Dit> {
        let layers = self.blocks.len();
        let block = |(i, block): (usize, &Block)| match block.offloaded && is_one_of(i, held, layers) {
            true => block.prefetch(ops),
            false => Ok(block.clone()),
        };
        Ok(Dit { blocks: self.blocks.iter().enumerate().map(block).collect::<Result<_>>()?, ..self.clone() })
    }

    /// Plans a latent of `frames, rows, columns` (rows and columns even) with `text` tokens of text.
    pub fn plan(&self, ops: &dyn Device, latent: Thw, text: usize) -> Result<Plan> {
        assert!(latent.h.is_multiple_of(PATCH) && latent.w.is_multiple_of(PATCH), "a latent of {latent}");
        let grid = Thw { t: latent.t, h: latent.h / PATCH, w: latent.w / PATCH };
        let windows = |shifted| Windows::new(ops, grid, text, shifted, self.config.layout.rope);
        Ok(Plan {
            latent,
            patches: ops.rows(1, &windows::patches(latent, PATCH))?,
            unpatched: ops.rows(1, &windows::unpatched(latent, PATCH))?,
            regular: windows(false)?,
            shifted: windows(true)?,
        })
    }

    /// The restored latent `[T, H, W, c]`: noise less velocity, for the one step goes all the way.
    ///
    /// `latents` is `[2T, H, W, c]`: T frames of noise, then T frames of the condition, both scaled as the VAE says.
    /// `text` is `[tokens, text width]`.
    pub fn sample(&self, ops: &dyn Device, latents: &Tensor, text: &Tensor, plan: &Plan) -> Result<Tensor> {
        let velocity = self.velocity(ops, latents, text, plan)?;
        let noise = latents.frames(0, plan.latent.t);
        Ok(ops.axpby(1.0, &noise, -1.0, velocity)?)
    }

    /// x, y = in(latents), in(text);  x, y ← block(x, y) for each layer;  v = out(n(x) ⊙ s + b)
    pub fn velocity(&self, ops: &dyn Device, latents: &Tensor, text: &Tensor, plan: &Plan) -> Result<Tensor> {
        ops.stage("in");
        let mut ahead = self.prefetch(ops, 0)?;
        let mut x = self.patch_in(ops, latents, plan)?;
        let mut y = ops.linear(text, &self.text_in, None)?;
        for (i, block) in self.blocks.iter().enumerate() {
            ops.stage(&format!("blocks.{i}"));
            let windows = if i % 2 == 0 { &plan.regular } else { &plan.shifted };
            let prefetched = if block.offloaded { ahead.take() } else { None };
            if ahead.is_none() {
                ahead = self.prefetch(ops, i + 1)?;
            }
            (x, y) = prefetched.as_ref().unwrap_or(block).forward(ops, x, y, windows)?;
        }
        ops.stage("out");
        let x = match &self.head_norm {
            Some(norm) => ops.rms_norm_modulate(&x, norm)?,
            None => x,
        };
        self.patch_out(ops, &x, plan)
    }

    /// The next offloaded layer from layer `first` on, on its way to the device.
    fn prefetch(&self, ops: &dyn Device, first: usize) -> Result<Option<Block>> {
        self.blocks[first..].iter().find(|block| block.offloaded).map(|block| block.prefetch(ops)).transpose()
    }

    /// A token is a cell of pixels, each its noise and its condition.
    fn patch_in(&self, ops: &dyn Device, latents: &Tensor, plan: &Plan) -> Result<Tensor> {
        let (Thw { t, h, w }, c) = (plan.latent, self.config.latent);
        assert_eq!(latents.shape(), Shape::from([2 * t, h, w, c]), "noise and condition of {}", plan.latent);
        let pixels = latents.clone().reshape([2 * plan.latent.count(), c]);
        let cells = ops.gather_rows(&pixels, &plan.patches)?;
        let tokens = plan.latent.count() / (PATCH * PATCH);
        Ok(ops.linear(&cells.reshape([tokens, 2 * PATCH * PATCH * c]), &self.video_in, None)?)
    }

    fn patch_out(&self, ops: &dyn Device, x: &Tensor, plan: &Plan) -> Result<Tensor> {
        let cells = ops.linear(x, &self.video_out, None)?;
        let pixels = cells.reshape([plan.latent.count(), self.config.latent]);
        let latent = ops.gather_rows(&pixels, &plan.unpatched)?;
        Ok(latent.reshape(Shape::clip(plan.latent, self.config.latent)))
    }
}

/// Whether layer `i` is one of `count` that are evenly spread over all.
fn is_one_of(i: usize, count: usize, layers: usize) -> bool {
    let count = count.min(layers);
    (i + 1) * count / layers > i * count / layers
}
