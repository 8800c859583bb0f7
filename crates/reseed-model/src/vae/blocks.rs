//! The layers that encoder and decoder share.

use std::ops::Range;

use reseed_ops::{
    Activation, Conv, ConvOutput, ConvSpec, Epilogue, Linear, Norm, Ops, TemporalCache, Tensor, Thw, Upsample,
    UpsampleSpec,
};

use super::parts::Block;
use super::state::State;
use crate::error::Result;
use crate::load::{Loader, cube};

/// A convolution that remembers the last frames it saw.
pub struct CausalConv {
    conv: Conv,
    slot: usize,
}

impl CausalConv {
    pub fn load(w: &Loader, name: &str, spec: ConvSpec) -> Result<Self> {
        Ok(CausalConv { conv: w.conv(name, spec)?, slot: w.slot() })
    }

    /// The same with its kernels on their way to the device.
    pub fn prefetch(&self, ops: &dyn Ops) -> Result<Self> {
        Ok(CausalConv { conv: ops.prefetch_conv(&self.conv)?, slot: self.slot })
    }

    pub fn forward(&self, ops: &dyn Ops, x: Tensor, state: &mut State, epilogue: Epilogue) -> Result<ConvOutput> {
        let keeps = self.conv.spec.keeps();
        let cache = if keeps > 0 { state.cache(ops, self.slot, &x, keeps)? } else { TemporalCache::Start };
        let y = ops.conv(cache, &x, &self.conv, epilogue)?;
        state.keep(ops, self.slot, x, keeps)?;
        Ok(y)
    }

    /// conv(silu(n(x)))
    pub fn behind(
        &self,
        ops: &dyn Ops,
        norm: &Norm,
        x: ConvOutput,
        state: &mut State,
        to: Epilogue,
    ) -> Result<ConvOutput> {
        let picture = x.tensor.thw().t == 1 && state.is_alone(self.slot);
        if picture && ops.norms_on_load(&self.conv.spec) {
            return Ok(ops.norm_conv(x, norm, &self.conv, to)?);
        }
        let h = ops.group_norm(x.tensor, x.stats, norm, Activation::Silu)?;
        self.forward(ops, h, state, to)
    }
}

/// A convolution alone, and the sums that the norm behind it wants.
pub struct ConvLayer {
    conv: CausalConv,
    groups: usize,
}

impl ConvLayer {
    /// What either half starts with.
    pub fn stem(w: &Loader, half: &str, c_in: usize, c_out: usize) -> Result<Self> {
        ConvLayer::load(w, &format!("{half}.conv_in"), cube(c_in, c_out))
    }

    /// Halves the plane and, in the deepest stages, time.
    pub fn down(w: &Loader, name: &str, c: usize, time: bool) -> Result<Self> {
        let (kt, st) = if time { (3, 2) } else { (1, 1) };
        // One row below and one column to the right: the convolution looks ahead in space, never in time.
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

    pub fn prefetch(&self, ops: &dyn Ops) -> Result<Self> {
        Ok(ConvLayer { conv: self.conv.prefetch(ops)?, groups: self.groups })
    }
}

impl Block for ConvLayer {
    fn slots(&self) -> Range<usize> {
        self.conv.slot..self.conv.slot + 1
    }

    fn forward(&self, ops: &dyn Ops, x: ConvOutput, state: &mut State) -> Result<ConvOutput> {
        self.conv.forward(ops, x.tensor, state, Epilogue { residual: None, groups: Some(self.groups) })
    }
}

/// Norm, SiLU, convolution: the way out of either half.
pub struct Head {
    norm: Norm,
    conv: CausalConv,
}

impl Head {
    pub fn load(w: &Loader, half: &str, c_in: usize, c_out: usize) -> Result<Self> {
        let norm = w.norm(&format!("{half}.conv_norm_out"), c_in)?;
        Ok(Head { norm, conv: CausalConv::load(w, &format!("{half}.conv_out"), cube(c_in, c_out))? })
    }

    pub fn prefetch(&self, ops: &dyn Ops) -> Result<Self> {
        Ok(Head { norm: self.norm.clone(), conv: self.conv.prefetch(ops)? })
    }
}

impl Block for Head {
    fn slots(&self) -> Range<usize> {
        self.conv.slot..self.conv.slot + 1
    }

    /// y = conv(silu(n(x)))
    fn forward(&self, ops: &dyn Ops, x: ConvOutput, state: &mut State) -> Result<ConvOutput> {
        self.conv.behind(ops, &self.norm, x, state, Epilogue::default())
    }
}

/// Two convolutions around a shortcut.
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
        Ok(Resnet {
            norm1: w.norm(&part("norm1"), c_in)?,
            conv1: CausalConv::load(w, &part("conv1"), cube(c_in, c_out))?,
            norm2: w.norm(&part("norm2"), c_out)?,
            conv2: CausalConv::load(w, &part("conv2"), cube(c_out, c_out))?,
            shortcut: (c_in != c_out).then(shortcut).transpose()?,
        })
    }

    pub fn prefetch(&self, ops: &dyn Ops) -> Result<Self> {
        Ok(Resnet {
            norm1: self.norm1.clone(),
            conv1: self.conv1.prefetch(ops)?,
            norm2: self.norm2.clone(),
            conv2: self.conv2.prefetch(ops)?,
            shortcut: self.shortcut.as_ref().map(|shortcut| shortcut.prefetch(ops)).transpose()?,
        })
    }
}

impl Block for Resnet {
    fn slots(&self) -> Range<usize> {
        self.conv1.slot..self.shortcut.as_ref().unwrap_or(&self.conv2).slot + 1
    }

    /// h = conv₁(silu(n₁(x)));  y = s(x) + conv₂(silu(n₂(h)))        s: the identity, or 1x1x1
    fn forward(&self, ops: &dyn Ops, x: ConvOutput, state: &mut State) -> Result<ConvOutput> {
        let groups = Some(self.norm2.groups);
        // With a convolution as shortcut x is done with here, and the norm may work in its memory.
        let skip = match &self.shortcut {
            Some(shortcut) => shortcut.forward(ops, x.tensor.clone(), state, Epilogue::default())?.tensor,
            None => x.tensor.clone(),
        };
        let h = self.conv1.behind(ops, &self.norm1, x, state, Epilogue { residual: None, groups })?;
        self.conv2.behind(ops, &self.norm2, h, state, Epilogue { residual: Some(skip), groups })
    }
}

/// Self-attention of one head over each frame's pixels.
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

    pub fn prefetch(&self, ops: &dyn Ops) -> Result<Self> {
        let (qkv, out) = (ops.prefetch_linear(&self.qkv)?, ops.prefetch_linear(&self.out)?);
        Ok(Attention { norm: self.norm.clone(), qkv, out })
    }

    /// y = x + out(softmax(q kᵀ / √c) v)        q, k, v = n(x) W + b
    pub fn forward(&self, ops: &dyn Ops, x: ConvOutput) -> Result<ConvOutput> {
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

/// Residual block, attention if the model has it, residual block at the lowest resolution.
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

    pub fn prefetch(&self, ops: &dyn Ops) -> Result<Self> {
        Ok(Mid {
            first: self.first.prefetch(ops)?,
            attention: self.attention.as_ref().map(|attention| attention.prefetch(ops)).transpose()?,
            last: self.last.prefetch(ops)?,
        })
    }

    pub fn forward(&self, ops: &dyn Ops, x: ConvOutput, state: &mut State) -> Result<ConvOutput> {
        let x = self.first.forward(ops, x, state)?;
        let x = match &self.attention {
            Some(attention) => attention.forward(ops, x)?,
            None => x,
        };
        self.last.forward(ops, x, state)
    }
}

/// Doubles the plane and, in the deepest stages, time.
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

    pub fn prefetch(&self, ops: &dyn Ops) -> Result<Self> {
        Ok(Upsampler { upsample: ops.prefetch_upsample(&self.upsample)?, ..*self })
    }
}

impl Block for Upsampler {
    fn slots(&self) -> Range<usize> {
        self.slot..self.slot + 1
    }

    fn forward(&self, ops: &dyn Ops, x: ConvOutput, state: &mut State) -> Result<ConvOutput> {
        let keeps = self.upsample.spec.keeps();
        let cache = state.cache(ops, self.slot, &x.tensor, keeps)?;
        let y = ops.upsample(cache, &x.tensor, &self.upsample, Some(self.groups))?;
        state.keep(ops, self.slot, x.tensor, keeps)?;
        Ok(y)
    }
}
