//! A layer: two streams that meet in the attention of windows.

use reseed_ops::{Linear, Norm, Ops, Qkv, Tensor, Vector};

use super::Windows;
use super::config::{Activation, HEAD};
use super::load::{EPS, Loader};
use super::time::Slot;
use crate::error::Result;

/// One layer's weights, plain data.
pub struct Block {
    heads: usize,
    video: Branch,
    text: Branch,
}

/// One stream's weights.
#[derive(Clone)]
struct Branch {
    norm: Norm,
    qkv: Linear,
    q_gain: Vector,
    k_gain: Vector,
    rest: Option<Rest>,
}

/// What comes behind attention; absent where nothing reads what it would compute.
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
        let last = i + 1 == w.config.layers;
        let video_branch = Branch::load(w, i, video, true)?;
        let mut text_branch = match text == video {
            true => video_branch.clone(),
            false => Branch::load(w, i, text, !last)?,
        };
        if last {
            // Only the last layer's keys and values of text are ever read.
            text_branch.rest = None;
            if w.config.layout.bare_last_text {
                text_branch.norm = w.bare_norm()?;
            }
        }
        Ok(Block { heads: w.config.heads, video: video_branch, text: text_branch })
    }

    /// a = attention(qkv(x), qkv(y)) within windows, each with all of y;  x ← rest(x, a),  y ← rest(y, mean of a)
    pub fn forward(&self, ops: &dyn Ops, x: Tensor, y: Tensor, windows: &Windows) -> Result<(Tensor, Tensor)> {
        let (xs, ys) = (self.video.qkv(ops, &x)?, self.text.qkv(ops, &y)?);
        let streams = [self.video.stream(&xs), self.text.stream(&ys)];
        let qkv = ops.qk_norm_rope(streams, &windows.order, &windows.rotary, EPS)?;
        drop((xs, ys));
        let a = ops.attention(&qkv, self.heads, &windows.lengths)?;
        drop(qkv);
        let y = match &self.text.rest {
            Some(rest) => rest.forward(ops, y, ops.gather_rows(&a, &windows.text)?)?,
            None => y,
        };
        let x = match &self.video.rest {
            Some(rest) => {
                let video = ops.gather_rows(&a, &windows.video)?;
                drop(a);
                rest.forward(ops, x, video)?
            }
            None => x,
        };
        Ok((x, y))
    }
}

impl Branch {
    fn load(w: &Loader, i: usize, branch: &str, whole: bool) -> Result<Branch> {
        let attn = |part: &str| format!("blocks.{i}.attn.{part}.{branch}");
        let (d, inner) = (w.config.width, w.config.heads * HEAD);
        Ok(Branch {
            norm: w.norm(&format!("blocks.{i}.ada.{branch}"), Slot::Attn)?,
            qkv: w.linear(&[attn("proj_qkv")], [3 * inner, d], false)?,
            q_gain: w.vector(&format!("{}.weight", attn("norm_q")), HEAD)?,
            k_gain: w.vector(&format!("{}.weight", attn("norm_k")), HEAD)?,
            rest: whole.then(|| Rest::load(w, i, branch)).transpose()?,
        })
    }

    /// (n(x) ⊙ s + b) W
    fn qkv(&self, ops: &dyn Ops, x: &Tensor) -> Result<Tensor> {
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

    /// x ← x + g₁ ⊙ out(a)
    /// x ← x + g₂ ⊙ mlp(n(x) ⊙ s + b)
    fn forward(&self, ops: &dyn Ops, x: Tensor, a: Tensor) -> Result<Tensor> {
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
    fn forward(&self, ops: &dyn Ops, x: Tensor) -> Result<Tensor> {
        let h = ops.linear(&x, &self.up, None)?;
        drop(x);
        let h = match self.activation {
            Activation::SwiGlu => ops.swiglu(&h)?,
            Activation::Gelu => ops.gelu(h)?,
        };
        Ok(ops.linear(&h, &self.down, None)?)
    }
}
