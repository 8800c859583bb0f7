//! One transformer layer: a video and a text stream with joint attention in windows.

use reseed_ops::{Device, Linear, MlpActivation, Norm, Qkv, Tensor, Vector, offload, prefetch};

use super::Windows;
use super::config::HEAD_DIM;
use super::load::{EPS, Loader};
use super::time::Sublayer;
use crate::error::Result;

/// Weights of one layer.
#[derive(Clone)]
pub(super) struct Block {
    heads: usize,
    /// Whether both streams use the same matrices.
    shared: bool,
    /// Whether the matrices are in host memory.
    pub(super) offloaded: bool,
    video: PreAttention,
    video_post: PostAttention,
    text: PreAttention,
    /// `None` in the last layer: its output would be unused.
    text_post: Option<PostAttention>,
}

/// Weights of one stream before attention.
#[derive(Clone)]
struct PreAttention {
    norm: Norm,
    qkv: Linear,
    q_gain: Vector,
    k_gain: Vector,
}

/// Weights of one stream after attention.
#[derive(Clone)]
struct PostAttention {
    out: Linear,
    attn_gate: Vector,
    norm: Norm,
    mlp: Mlp,
    mlp_gate: Vector,
}

#[derive(Clone)]
struct Mlp {
    up: Linear,
    activation: MlpActivation,
    down: Linear,
}

impl Block {
    /// Loads layer `i`.
    pub(super) fn load(w: &Loader, i: usize) -> Result<Block> {
        let [video, text] = w.config.branches(i);
        let (shared, last) = (text == video, i + 1 == w.config.layers);
        let (pre, post) = (PreAttention::load(w, i, video)?, PostAttention::load(w, i, video)?);
        let mut text_pre = if shared { pre.clone() } else { PreAttention::load(w, i, text)? };
        if last && w.config.layout.unmodulated_last_text {
            text_pre.norm = w.bare_norm()?;
        }
        // Only keys and values of the text are used in the last layer.
        let text_post = match (last, shared) {
            (true, _) => None,
            (false, true) => Some(post.clone()),
            (false, false) => Some(PostAttention::load(w, i, text)?),
        };
        let (heads, offloaded) = (w.config.heads, false);
        Ok(Block { heads, shared, offloaded, video: pre, video_post: post, text: text_pre, text_post })
    }

    /// A copy with its matrices in host memory.
    pub(super) fn offload(&self, ops: &dyn Device) -> Result<Block> {
        Ok(Block { offloaded: true, ..self.map_linears(|linear| Ok(offload(ops, linear)?))? })
    }

    /// Starts the prefetch of an offloaded layer.
    pub(super) fn prefetch(&self, ops: &dyn Device) -> Result<Block> {
        Ok(Block { offloaded: false, ..self.map_linears(|linear| Ok(prefetch(ops, linear)?))? })
    }

    /// A copy with `map` applied to every linear layer, once to those that both streams share.
    fn map_linears(&self, map: impl Fn(&Linear) -> Result<Linear>) -> Result<Block> {
        let (video, video_post) = (self.video.map_linears(&map)?, self.video_post.map_linears(&map)?);
        let (text, text_post) = match self.shared {
            true => {
                let post = self.text_post.as_ref().map(|_| video_post.clone());
                (PreAttention { norm: self.text.norm.clone(), ..video.clone() }, post)
            }
            false => {
                let post = self.text_post.as_ref().map(|post| post.map_linears(&map)).transpose()?;
                (self.text.map_linears(&map)?, post)
            }
        };
        let Block { heads, shared, offloaded, .. } = *self;
        Ok(Block { heads, shared, offloaded, video, video_post, text, text_post })
    }

    /// a = attention(qkv(x), qkv(y)) in windows, each with all of y;  x ← post(x, a),  y ← post(y, mean of a)
    pub fn forward(&self, ops: &dyn Device, x: Tensor, y: Tensor, windows: &Windows) -> Result<(Tensor, Tensor)> {
        let (xs, ys) = (self.video.qkv(ops, &x)?, self.text.qkv(ops, &y)?);
        let streams = [self.video.stream(&xs), self.text.stream(&ys)];
        let qkv = ops.qk_norm_rope(streams, &windows.order, &windows.rotary, EPS)?;
        drop((xs, ys));
        let a = ops.attention(&qkv, self.heads, &windows.lengths)?;
        drop(qkv);
        let y = match &self.text_post {
            Some(post) => post.forward(ops, y, ops.gather_rows(&a, &windows.text)?)?,
            None => y,
        };
        let h = ops.gather_rows(&a, &windows.video)?;
        drop(a);
        Ok((self.video_post.forward(ops, x, h)?, y))
    }
}

impl PreAttention {
    fn load(w: &Loader, i: usize, branch: &str) -> Result<PreAttention> {
        let attn = |part: &str| format!("blocks.{i}.attn.{part}.{branch}");
        let (d, inner) = (w.config.width, w.config.heads * HEAD_DIM);
        Ok(PreAttention {
            norm: w.norm(&format!("blocks.{i}.ada.{branch}"), Sublayer::Attn)?,
            qkv: w.block_linear(&[attn("proj_qkv")], [3 * inner, d], false)?,
            q_gain: w.vector(&format!("{}.weight", attn("norm_q")), HEAD_DIM)?,
            k_gain: w.vector(&format!("{}.weight", attn("norm_k")), HEAD_DIM)?,
        })
    }

    fn map_linears(&self, map: impl Fn(&Linear) -> Result<Linear>) -> Result<PreAttention> {
        Ok(PreAttention { qkv: map(&self.qkv)?, ..self.clone() })
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

impl PostAttention {
    fn load(w: &Loader, i: usize, branch: &str) -> Result<PostAttention> {
        let (d, inner) = (w.config.width, w.config.heads * HEAD_DIM);
        let ada = format!("blocks.{i}.ada.{branch}");
        Ok(PostAttention {
            out: w.block_linear(&[format!("blocks.{i}.attn.proj_out.{branch}")], [d, inner], true)?,
            attn_gate: w.gate(&ada, Sublayer::Attn)?,
            norm: w.norm(&ada, Sublayer::Mlp)?,
            mlp: Mlp::load(w, &format!("blocks.{i}.mlp.{branch}"))?,
            mlp_gate: w.gate(&ada, Sublayer::Mlp)?,
        })
    }

    fn map_linears(&self, map: impl Fn(&Linear) -> Result<Linear>) -> Result<PostAttention> {
        let mlp = Mlp { up: map(&self.mlp.up)?, down: map(&self.mlp.down)?, ..self.mlp };
        Ok(PostAttention { out: map(&self.out)?, mlp, ..self.clone() })
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
        let biased = activation == MlpActivation::Gelu;
        let up = match activation {
            MlpActivation::SwiGlu => vec![part("proj_in_gate"), part("proj_in")],
            MlpActivation::Gelu => vec![part("proj_in")],
        };
        let up = w.block_linear(&up, [hidden, d], biased)?;
        Ok(Mlp { up, activation, down: w.block_linear(&[down], [d, hidden], biased)? })
    }

    /// down(swiglu(up(x))) or down(gelu(up(x)))
    fn forward(&self, ops: &dyn Device, x: Tensor) -> Result<Tensor> {
        let h = ops.linear(&x, &self.up, None)?;
        drop(x);
        Ok(ops.activated_linear(h, self.activation, &self.down)?)
    }
}
