//! Brings layers from a source onto a device, each tensor once.

use std::cell::Cell;

use reseed_ops::{Conv, ConvData, ConvSpec, Linear, LinearSpec, Norm, Ops, Thw, Upsample, UpsampleData, UpsampleSpec};

use crate::config::Config;
use crate::error::Result;
use crate::weights::Source;

/// Added to every variance, in every public configuration.
const EPS: f32 = 1e-6;

/// Hands out layers by name; slots number the layers that keep a cache.
pub(crate) struct Loader<'a> {
    pub ops: &'a dyn Ops,
    pub source: &'a dyn Source,
    pub config: &'a Config,
    /// Whether layers wait in the host's memory.
    pub offloaded: bool,
    slots: Cell<usize>,
}

impl<'a> Loader<'a> {
    pub fn new(ops: &'a dyn Ops, source: &'a dyn Source, config: &'a Config) -> Self {
        Loader { ops, source, config, offloaded: false, slots: Cell::new(0) }
    }

    /// The same with layers that wait in the host's memory.
    pub fn offloaded(self, offloaded: bool) -> Self {
        Loader { offloaded, ..self }
    }

    /// The slot that the next layer gets.
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
        Ok(if self.offloaded { self.ops.offload_conv(&conv)? } else { conv })
    }

    pub fn norm(&self, name: &str, channels: usize) -> Result<Norm> {
        Ok(self.ops.norm_weights(self.config.groups, EPS, channels, &|| Ok(self.read(name)?))?)
    }

    /// Several linear layers of `d` columns, one below the other.
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
        Ok(if self.offloaded { self.ops.offload_linear(&linear)? } else { linear })
    }

    /// `upscale_conv`, shuffle and `conv` as one layer.
    pub fn upsample(&self, name: &str, spec: UpsampleSpec) -> Result<Upsample> {
        let read = || {
            let upscale = self.read(&format!("{name}.upscale_conv"))?;
            Ok(UpsampleData { upscale, conv: self.read(&format!("{name}.conv"))? })
        };
        let upsample = self.ops.upsample_weights(spec, &read)?;
        Ok(if self.offloaded { self.ops.offload_upsample(&upsample)? } else { upsample })
    }
}

/// 3x3x3, the plane's size kept.
pub(crate) fn cube(c_in: usize, c_out: usize) -> ConvSpec {
    ConvSpec::same(c_in, c_out, Thw::new(3, 3, 3))
}
