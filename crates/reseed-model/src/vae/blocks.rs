//! The layers that encoder and decoder share.

use std::ops::Range;

use reseed_ops::{
    Activation, Conv, ConvOutput, ConvSpec, Device, Epilogue, Linear, Norm, TemporalCache, Tensor, Thw, Upsample,
    UpsampleSpec,
};

use super::prefetch::prefetch_fields;
use super::state::State;
use super::steps::Block;
use crate::error::Result;
use crate::load::{Loader, cube};

prefetch_fields! {
    CausalConv { conv }
    ConvLayer { conv }
    Head { conv }
    Resnet { conv1, conv2, shortcut }
    Attention { qkv, out }
    Mid { first, attention, last }
    Upsampler { upsample }
}

/// A convolution with a temporal cache.
#[derive(Clone)]
pub struct CausalConv {
    conv: Conv,
    slot: usize,
}

impl CausalConv {
    pub fn load(w: &Loader, name: &str, spec: ConvSpec) -> Result<Self> {
        Ok(CausalConv { conv: w.conv(name, spec)?, slot: w.slot() })
    }

    /// A 3x3x3 convolution, and the norm that its input passes.
    fn load_normed(w: &Loader, norm: &str, conv: &str, c_in: usize, c_out: usize) -> Result<(Norm, Self)> {
        let (norm, conv) = w.norm_conv(norm, conv, cube(c_in, c_out))?;
        Ok((norm, CausalConv { conv, slot: w.slot() }))
    }

    pub fn forward(&self, ops: &dyn Device, x: Tensor, state: &mut State, epilogue: Epilogue) -> Result<ConvOutput> {
        let frames = self.conv.spec.cached_frames();
        let cache = if frames > 0 { state.cache(ops, self.slot, &x, frames)? } else { TemporalCache::Start };
        let y = ops.conv(cache, &x, &self.conv, epilogue)?;
        state.update(ops, self.slot, x, frames)?;
        Ok(y)
    }

    /// conv(silu(n(x)))
    pub fn norm_silu_conv(
        &self,
        ops: &dyn Device,
        norm: &Norm,
        x: ConvOutput,
        state: &mut State,
        epilogue: Epilogue,
    ) -> Result<ConvOutput> {
        let h = ops.group_norm(x.tensor, x.stats, norm, Activation::Silu)?;
        self.forward(ops, h, state, epilogue)
    }
}

/// A convolution that also returns the statistics for the next norm.
#[derive(Clone)]
pub struct ConvLayer {
    conv: CausalConv,
    groups: usize,
}

impl ConvLayer {
    /// The first layer of a coder.
    pub fn stem(w: &Loader, coder: &str, c_in: usize, c_out: usize) -> Result<Self> {
        ConvLayer::load(w, &format!("{coder}.conv_in"), cube(c_in, c_out))
    }

    /// Halves the plane and, in the coarsest levels, the frame rate.
    pub fn down(w: &Loader, name: &str, c: usize, time: bool) -> Result<Self> {
        let (kt, st) = if time { (3, 2) } else { (1, 1) };
        // Padding only below and on the right; time is causal.
        let spec = ConvSpec {
            c_in: c,
            c_out: c,
            taps: Thw::new(kt, 3, 3),
            stride: Thw::new(st, 2, 2),
            pad_before: 0,
            pad_after: 1,
        };
        ConvLayer::load(w, &format!("{name}.conv"), spec)
    }

    fn load(w: &Loader, name: &str, spec: ConvSpec) -> Result<Self> {
        Ok(ConvLayer { conv: CausalConv::load(w, name, spec)?, groups: w.config.groups })
    }
}

impl Block for ConvLayer {
    fn slots(&self) -> Range<usize> {
        self.conv.slot..self.conv.slot + 1
    }

    fn forward(&self, ops: &dyn Device, x: ConvOutput, state: &mut State) -> Result<ConvOutput> {
        self.conv.forward(ops, x.tensor, state, Epilogue { residual: None, groups: Some(self.groups) })
    }
}

/// Norm, SiLU, convolution: the last layer of a coder.
#[derive(Clone)]
pub struct Head {
    norm: Norm,
    conv: CausalConv,
}

impl Head {
    pub fn load(w: &Loader, coder: &str, c_in: usize, c_out: usize) -> Result<Self> {
        let norm = w.norm(&format!("{coder}.conv_norm_out"), c_in)?;
        Ok(Head { norm, conv: CausalConv::load(w, &format!("{coder}.conv_out"), cube(c_in, c_out))? })
    }
}

impl Block for Head {
    fn slots(&self) -> Range<usize> {
        self.conv.slot..self.conv.slot + 1
    }

    /// y = conv(silu(n(x)))
    fn forward(&self, ops: &dyn Device, x: ConvOutput, state: &mut State) -> Result<ConvOutput> {
        self.conv.norm_silu_conv(ops, &self.norm, x, state, Epilogue::default())
    }
}

/// A residual block: two convolutions and a shortcut.
#[derive(Clone)]
pub struct Resnet {
    norm1: Norm,
    conv1: CausalConv,
    norm2: Norm,
    conv2: CausalConv,
    shortcut: Option<CausalConv>,
}

impl Resnet {
    pub fn load(w: &Loader, name: &str, c_in: usize, c_out: usize) -> Result<Self> {
        let part = |part: &str| format!("{name}.{part}");
        let shortcut = || CausalConv::load(w, &part("conv_shortcut"), ConvSpec::same(c_in, c_out, Thw::new(1, 1, 1)));
        let (norm1, conv1) = CausalConv::load_normed(w, &part("norm1"), &part("conv1"), c_in, c_out)?;
        let (norm2, conv2) = CausalConv::load_normed(w, &part("norm2"), &part("conv2"), c_out, c_out)?;
        let shortcut = (c_in != c_out).then(shortcut).transpose()?;
        Ok(Resnet { norm1, conv1, norm2, conv2, shortcut })
    }
}

impl Block for Resnet {
    fn slots(&self) -> Range<usize> {
        self.conv1.slot..self.shortcut.as_ref().unwrap_or(&self.conv2).slot + 1
    }

    /// h = conv₁(silu(n₁(x)));  y = s(x) + conv₂(silu(n₂(h)))        s: the identity, or 1x1x1
    fn forward(&self, ops: &dyn Device, x: ConvOutput, state: &mut State) -> Result<ConvOutput> {
        let groups = Some(self.norm2.groups);
        // After a convolution as shortcut x has no other reference, and the norm may overwrite it.
        let skip = match &self.shortcut {
            Some(shortcut) => shortcut.forward(ops, x.tensor.clone(), state, Epilogue::default())?.tensor,
            None => x.tensor.clone(),
        };
        let h = self.conv1.norm_silu_conv(ops, &self.norm1, x, state, Epilogue { residual: None, groups })?;
        self.conv2.norm_silu_conv(ops, &self.norm2, h, state, Epilogue { residual: Some(skip), groups })
    }
}

/// Self-attention with one head over the pixels of each frame.
#[derive(Clone)]
pub struct Attention {
    norm: Norm,
    qkv: Linear,
    out: Linear,
}

impl Attention {
    pub fn load(w: &Loader, name: &str, c: usize) -> Result<Self> {
        let part = |part: &str| format!("{name}.{part}");
        Ok(Attention {
            norm: w.norm(&part("group_norm"), c)?,
            qkv: w.linears(&[part("to_q"), part("to_k"), part("to_v")], c)?,
            out: w.linears(&[part("to_out.0")], c)?,
        })
    }

    /// y = x + out(softmax(q kᵀ / √c) v)        q, k, v = n(x) W + b
    pub fn forward(&self, ops: &dyn Device, x: ConvOutput) -> Result<ConvOutput> {
        let thw = x.tensor.thw();
        let h = ops.group_norm(x.tensor.clone(), x.stats, &self.norm, Activation::None)?;
        let tokens = h.rows();
        let qkv = ops.linear(&h.reshape([tokens, self.norm.channels]), &self.qkv, None)?;
        let a = ops.attention(&qkv, 1, &vec![thw.h * thw.w; thw.t])?;
        let shape = x.tensor.shape();
        let y = ops.linear(&a, &self.out, Some(x.tensor.reshape(a.shape())))?;
        Ok(ConvOutput { tensor: y.reshape(shape), stats: None })
    }
}

/// The lowest resolution: residual block, attention if the model has it, residual block.
#[derive(Clone)]
pub struct Mid {
    first: Resnet,
    attention: Option<Attention>,
    last: Resnet,
}

impl Mid {
    pub fn load(w: &Loader, name: &str, c: usize) -> Result<Self> {
        let attention = || Attention::load(w, &format!("{name}.attentions.0"), c);
        Ok(Mid {
            first: Resnet::load(w, &format!("{name}.resnets.0"), c, c)?,
            attention: w.config.attention.then(attention).transpose()?,
            last: Resnet::load(w, &format!("{name}.resnets.1"), c, c)?,
        })
    }

    pub fn forward(&self, ops: &dyn Device, x: ConvOutput, state: &mut State) -> Result<ConvOutput> {
        let x = self.first.forward(ops, x, state)?;
        let x = match &self.attention {
            Some(attention) => attention.forward(ops, x)?,
            None => x,
        };
        self.last.forward(ops, x, state)
    }
}

/// Doubles the plane and, in the coarsest levels, the frame rate.
#[derive(Clone)]
pub struct Upsampler {
    upsample: Upsample,
    slot: usize,
    groups: usize,
}

impl Upsampler {
    pub fn load(w: &Loader, name: &str, channels: usize, time: bool) -> Result<Self> {
        let upsample = w.upsample(name, UpsampleSpec { channels, time })?;
        Ok(Upsampler { upsample, slot: w.slot(), groups: w.config.groups })
    }
}

impl Block for Upsampler {
    fn slots(&self) -> Range<usize> {
        self.slot..self.slot + 1
    }

    fn forward(&self, ops: &dyn Device, x: ConvOutput, state: &mut State) -> Result<ConvOutput> {
        let frames = self.upsample.spec.cached_frames();
        let cache = state.cache(ops, self.slot, &x.tensor, frames)?;
        let y = ops.upsample(cache, &x.tensor, &self.upsample, Some(self.groups))?;
        state.update(ops, self.slot, x.tensor, frames)?;
        Ok(y)
    }
}
