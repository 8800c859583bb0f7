//! Loads layers from a source to a device, each tensor once.

use std::cell::Cell;

use reseed_ops::{
    Conv, ConvData, ConvSpec, Device, Linear, LinearSpec, Norm, Thw, Upsample, UpsampleData, UpsampleSpec, offload,
};

use crate::config::Config;
use crate::error::Result;
use crate::weights::Source;

/// Added to every variance, in all public configurations.
const EPS: f32 = 1e-6;

/// Loads layers by name, and numbers the cache slots.
pub(crate) struct Loader<'a> {
    pub ops: &'a dyn Device,
    pub source: &'a dyn Source,
    pub config: &'a Config,
    /// Whether weights are offloaded.
    pub offloaded: bool,
    slots: Cell<usize>,
}

impl<'a> Loader<'a> {
    pub fn new(ops: &'a dyn Device, source: &'a dyn Source, config: &'a Config) -> Self {
        Loader { ops, source, config, offloaded: false, slots: Cell::new(0) }
    }

    /// Sets whether weights are offloaded.
    pub fn offloaded(self, offloaded: bool) -> Self {
        Loader { offloaded, ..self }
    }

    /// The next slot.
    pub fn next_slot(&self) -> usize {
        self.slots.get()
    }

    pub fn slot(&self) -> usize {
        self.slots.replace(self.slots.get() + 1)
    }

    fn read(&self, name: &str) -> Result<ConvData> {
        let weight = self.source.read(&format!("{name}.weight"))?;
        Ok(ConvData { weight, bias: self.source.read(&format!("{name}.bias"))? })
    }

    pub fn conv(&self, name: &str, spec: ConvSpec) -> Result<Conv> {
        let conv = self.ops.conv_weights(spec, &|| Ok(self.read(name)?))?;
        Ok(if self.offloaded { offload(self.ops, &conv)? } else { conv })
    }

    pub fn norm(&self, name: &str, channels: usize) -> Result<Norm> {
        Ok(self.ops.norm_weights(self.config.groups, EPS, channels, &|| Ok(self.read(name)?))?)
    }

    /// A norm, and the convolution that reads its result through SiLU.
    pub fn norm_conv(&self, norm: &str, conv: &str, spec: ConvSpec) -> Result<(Norm, Conv)> {
        let groups = self.config.groups;
        let (read_norm, read_conv) = (|| Ok(self.read(norm)?), || Ok(self.read(conv)?));
        let (norm, conv) = self.ops.norm_conv_weights(groups, EPS, spec, &read_norm, &read_conv)?;
        Ok((norm, if self.offloaded { offload(self.ops, &conv)? } else { conv }))
    }

    /// Several linear layers of `d` columns as one, their rows concatenated.
    pub fn linears(&self, names: &[String], d: usize) -> Result<Linear> {
        let read = || {
            let mut all = ConvData { weight: Vec::new(), bias: Vec::new() };
            for name in names {
                let one = self.read(name)?;
                all.weight.extend(one.weight);
                all.bias.extend(one.bias);
            }
            Ok(all.into())
        };
        let linear = self.ops.linear_weights(LinearSpec::floats(d, d * names.len()), &read)?;
        Ok(if self.offloaded { offload(self.ops, &linear)? } else { linear })
    }

    /// `upscale_conv`, shuffle and `conv` as one layer.
    pub fn upsample(&self, name: &str, spec: UpsampleSpec) -> Result<Upsample> {
        let read = || {
            let upscale = self.read(&format!("{name}.upscale_conv"))?;
            Ok(UpsampleData { upscale, conv: self.read(&format!("{name}.conv"))? })
        };
        let upsample = self.ops.upsample_weights(spec, &read)?;
        Ok(if self.offloaded { offload(self.ops, &upsample)? } else { upsample })
    }
}

/// 3x3x3 with padding: the plane keeps its size.
pub(crate) fn cube(c_in: usize, c_out: usize) -> ConvSpec {
    ConvSpec::same(c_in, c_out, Thw::new(3, 3, 3))
}
