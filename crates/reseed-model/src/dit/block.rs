//! A layer: two streams that meet in the attention of windows.

use reseed_ops::{Device, Linear, Norm, Qkv, Tensor, Vector, offload, prefetch};

use super::Windows;
use super::config::{Activation, HEAD};
use super::load::{EPS, Loader};
use super::time::Slot;
use crate::error::Result;

/// One layer's weights, plain data.
#[derive(Clone)]
pub struct Block {
    heads: usize,
    /// Whether both streams have the same matrices.
    shared: bool,
    /// Whether its matrices are in the host's memory.
    pub(super) offloaded: bool,
    video: Branch,
    video_rest: Rest,
    text: Branch,
    /// Absent where nothing reads what it would compute.
    text_rest: Option<Rest>,
}

/// One stream's weights up to attention.
#[derive(Clone)]
struct Branch {
    norm: Norm,
    qkv: Linear,
    q_gain: Vector,
    k_gain: Vector,
}

/// One stream's weights behind attention.
#[derive(Clone)]
struct Rest {
    out: Linear,
    attn_gate: Vector,
    norm: Norm,
    mlp: Mlp,
    mlp_gate: Vector,
}

#[derive(Clone)]
struct Mlp {
    up: Linear,
    activation: Activation,
    down: Linear,
}

impl Block {
    /// Layer `i`.
    pub(super) fn load(w: &Loader, i: usize) -> Result<Block> {
        let [video, text] = w.config.branches(i);
        let (shared, last) = (text == video, i + 1 == w.config.layers);
        let (branch, rest) = (Branch::load(w, i, video)?, Rest::load(w, i, video)?);
        let mut text_branch = if shared { branch.clone() } else { Branch::load(w, i, text)? };
        if last && w.config.layout.bare_last_text {
            text_branch.norm = w.bare_norm()?;
        }
        // Of the last layer's text only keys and values are ever read.
        let text_rest = match (last, shared) {
            (true, _) => None,
            (false, true) => Some(rest.clone()),
            (false, false) => Some(Rest::load(w, i, text)?),
        };
        let (heads, offloaded) = (w.config.heads, false);
        Ok(Block { heads, shared, offloaded, video: branch, video_rest: rest, text: text_branch, text_rest })
    }

    /// The same layer with its matrices in the host's memory.
    pub(super) fn offload(&self, ops: &dyn Device) -> Result<Block> {
        Ok(Block { offloaded: true, ..self.with_matrices(|matrix| Ok(offload(ops, matrix)?))? })
    }

    /// A offloaded layer on its way back.
    pub(super) fn prefetch(&self, ops: &dyn Device) -> Result<Block> {
        Ok(Block { offloaded: false, ..self.with_matrices(|matrix| Ok(prefetch(ops, matrix)?))? })
    }

    /// The same layer with every matrix replaced, those that both streams share once.
    fn with_matrices(&self, each: impl Fn(&Linear) -> Result<Linear>) -> Result<Block> {
        let (video, video_rest) = (self.video.with_matrices(&each)?, self.video_rest.with_matrices(&each)?);
        let (text, text_rest) = match self.shared {
            true => {
                let rest = self.text_rest.as_ref().map(|_| video_rest.clone());
                (Branch { norm: self.text.norm.clone(), ..video.clone() }, rest)
            }
            false => {
                let rest = self.text_rest.as_ref().map(|rest| rest.with_matrices(&each)).transpose()?;
                (self.text.with_matrices(&each)?, rest)
            }
        };
        let Block { heads, shared, offloaded, .. } = *self;
        Ok(Block { heads, shared, offloaded, video, video_rest, text, text_rest })
    }

    /// a = attention(qkv(x), qkv(y)) within windows, each with all of y;  x ← rest(x, a),  y ← rest(y, mean of a)
    pub fn forward(&self, ops: &dyn Device, x: Tensor, y: Tensor, windows: &Windows) -> Result<(Tensor, Tensor)> {
        let (xs, ys) = (self.video.qkv(ops, &x)?, self.text.qkv(ops, &y)?);
        let streams = [self.video.stream(&xs), self.text.stream(&ys)];
        let qkv = ops.qk_norm_rope(streams, &windows.order, &windows.rotary, EPS)?;
        drop((xs, ys));
        let a = ops.attention(&qkv, self.heads, &windows.lengths)?;
        drop(qkv);
        let y = match &self.text_rest {
            Some(rest) => rest.forward(ops, y, ops.gather_rows(&a, &windows.text)?)?,
            None => y,
        };
        let h = ops.gather_rows(&a, &windows.video)?;
        drop(a);
        Ok((self.video_rest.forward(ops, x, h)?, y))
    }
}

impl Branch {
    fn load(w: &Loader, i: usize, branch: &str) -> Result<Branch> {
        let attn = |part: &str| format!("blocks.{i}.attn.{part}.{branch}");
        let (d, inner) = (w.config.width, w.config.heads * HEAD);
        Ok(Branch {
            norm: w.norm(&format!("blocks.{i}.ada.{branch}"), Slot::Attn)?,
            qkv: w.linear(&[attn("proj_qkv")], [3 * inner, d], false)?,
            q_gain: w.vector(&format!("{}.weight", attn("norm_q")), HEAD)?,
            k_gain: w.vector(&format!("{}.weight", attn("norm_k")), HEAD)?,
        })
    }

    fn with_matrices(&self, each: impl Fn(&Linear) -> Result<Linear>) -> Result<Branch> {
        Ok(Branch { qkv: each(&self.qkv)?, ..self.clone() })
    }

    /// (n(x) ⊙ s + b) W
    fn qkv(&self, ops: &dyn Device, x: &Tensor) -> Result<Tensor> {
        let h = ops.rms_norm_modulate(x, &self.norm)?;
        Ok(ops.linear(&h, &self.qkv, None)?)
    }

    fn stream<'a>(&'a self, qkv: &'a Tensor) -> Qkv<'a> {
        Qkv { qkv, q_gain: &self.q_gain, k_gain: &self.k_gain }
    }
}

impl Rest {
    fn load(w: &Loader, i: usize, branch: &str) -> Result<Rest> {
        let (d, inner) = (w.config.width, w.config.heads * HEAD);
        let ada = format!("blocks.{i}.ada.{branch}");
        Ok(Rest {
            out: w.linear(&[format!("blocks.{i}.attn.proj_out.{branch}")], [d, inner], true)?,
            attn_gate: w.gate(&ada, Slot::Attn)?,
            norm: w.norm(&ada, Slot::Mlp)?,
            mlp: Mlp::load(w, &format!("blocks.{i}.mlp.{branch}"))?,
            mlp_gate: w.gate(&ada, Slot::Mlp)?,
        })
    }

    fn with_matrices(&self, each: impl Fn(&Linear) -> Result<Linear>) -> Result<Rest> {
        let mlp = Mlp { up: each(&self.mlp.up)?, down: each(&self.mlp.down)?, ..self.mlp };
        Ok(Rest { out: each(&self.out)?, mlp, ..self.clone() })
    }

    /// x ← x + g₁ ⊙ out(a)
    /// x ← x + g₂ ⊙ mlp(n(x) ⊙ s + b)
    fn forward(&self, ops: &dyn Device, x: Tensor, a: Tensor) -> Result<Tensor> {
        let h = ops.linear(&a, &self.out, None)?;
        drop(a);
        let x = ops.gated_add(x, &h, &self.attn_gate)?;
        drop(h);
        let h = ops.rms_norm_modulate(&x, &self.norm)?;
        let h = self.mlp.forward(ops, h)?;
        Ok(ops.gated_add(x, &h, &self.mlp_gate)?)
    }
}

impl Mlp {
    fn load(w: &Loader, name: &str) -> Result<Mlp> {
        let (d, hidden) = (w.config.width, w.config.hidden);
        let part = |part: &str| format!("{name}.{part}");
        let (activation, down) = (w.config.layout.activation, part("proj_out"));
        let biased = activation == Activation::Gelu;
        let up = match activation {
            Activation::SwiGlu => vec![part("proj_in_gate"), part("proj_in")],
            Activation::Gelu => vec![part("proj_in")],
        };
        let up = w.linear(&up, [hidden, d], biased)?;
        Ok(Mlp { up, activation, down: w.linear(&[down], [d, hidden], biased)? })
    }

    /// down(swiglu(up(x))), or down(gelu(up(x)))
    fn forward(&self, ops: &dyn Device, x: Tensor) -> Result<Tensor> {
        let h = ops.linear(&x, &self.up, None)?;
        drop(x);
        let h = match self.activation {
            Activation::SwiGlu => ops.swiglu(&h)?,
            Activation::Gelu => ops.gelu(h)?,
        };
        Ok(ops.linear(&h, &self.down, None)?)
    }
}
