//! Brings a transformer's layers from a source onto a device. Modulation is a layer's own vectors plus the time
//! embedding: constants, added here.

use std::cell::OnceCell;

use reseed_ops::{ConvData, Device, Linear, LinearData, LinearSpec, Norm, Numbers, Quant, Vector};

use super::config::{Config, PATCH};
use super::time::{Part, Slot, Time};
use crate::error::Result;
use crate::weights::Source;

/// Added to every mean square, in every public configuration.
pub const EPS: f32 = 1e-5;

/// Hands out layers by name.
pub struct Loader<'a> {
    pub ops: &'a dyn Device,
    pub config: &'a Config,
    source: &'a dyn Source,
    time: OnceCell<Time>,
}

impl<'a> Loader<'a> {
    pub fn new(ops: &'a dyn Device, source: &'a dyn Source, config: &'a Config) -> Self {
        Loader { ops, config, source, time: OnceCell::new() }
    }

    fn read(&self, name: &str) -> Result<Vec<f32>> {
        self.source.read(name)
    }

    /// Devices that compute nothing ask for nothing, so it waits until it is wanted.
    fn time(&self) -> Result<&Time> {
        if self.time.get().is_none() {
            let _ = self.time.set(Time::new(self.source, self.config)?);
        }
        Ok(self.time.get().expect("set above"))
    }

    /// One matrix, or several of the same size one below the other.
    pub fn linear(&self, names: &[String], [d_out, d_in]: [usize; 2], biased: bool) -> Result<Linear> {
        let rows = d_out * names.len();
        let matrices: Vec<String> = names.iter().map(|name| format!("{name}.weight")).collect();
        let quant = self.quant(&matrices);
        let read = || {
            let mut data = LinearData { weight: Numbers::empty(quant), bias: Vec::with_capacity(rows) };
            for (name, matrix) in names.iter().zip(&matrices) {
                data.weight.append(match quant {
                    Some(_) => self.source.numbers(matrix)?,
                    None => Numbers::Floats(self.read(matrix)?),
                });
                if biased {
                    data.bias.extend(self.read(&format!("{name}.bias"))?);
                }
            }
            data.bias.resize(rows, 0.0);
            Ok(data)
        };
        Ok(self.ops.linear_weights(LinearSpec { d_in, d_out: rows, quant }, &read)?)
    }

    /// How matrices are stored, if all alike.
    fn quant(&self, matrices: &[String]) -> Option<Quant> {
        let first = self.source.quant(&matrices[0])?;
        matrices.iter().all(|matrix| self.source.quant(matrix) == Some(first)).then_some(first)
    }

    /// The way in. Of a pixel's channels the last is always one: its column belongs to the bias.
    pub fn patch_in(&self) -> Result<Linear> {
        let channels = 2 * self.config.latent;
        let read = || {
            let weight = self.read("vid_in.proj.weight")?;
            let mut data = ConvData { weight: Vec::new(), bias: self.read("vid_in.proj.bias")? };
            for (i, pixel) in weight.chunks_exact(channels + 1).enumerate() {
                data.weight.extend(&pixel[..channels]);
                data.bias[i / (PATCH * PATCH)] += pixel[channels];
            }
            Ok(data.into())
        };
        Ok(self.ops.linear_weights(LinearSpec::floats(PATCH * PATCH * channels, self.config.width), &read)?)
    }

    pub fn vector(&self, name: &str, len: usize) -> Result<Vector> {
        Ok(self.ops.vector(len, &|| Ok(self.read(name)?))?)
    }

    fn norm_of(&self, read: &dyn Fn() -> Result<ConvData>) -> Result<Norm> {
        Ok(self.ops.norm_weights(1, EPS, self.config.width, &|| Ok(read()?))?)
    }

    /// The norm before half a layer: n(z) ⊙ scale + shift.
    pub fn norm(&self, ada: &str, slot: Slot) -> Result<Norm> {
        let own = |part: &str| self.read(&format!("{ada}.{}_{part}", slot.name()));
        self.norm_of(&|| {
            Ok(ConvData {
                weight: self.time()?.plus(slot, Part::Scale, &own("scale")?),
                bias: self.time()?.plus(slot, Part::Shift, &own("shift")?),
            })
        })
    }

    /// A norm without gain or shift.
    pub fn bare_norm(&self) -> Result<Norm> {
        let width = self.config.width;
        self.norm_of(&|| Ok(ConvData { weight: vec![1.0; width], bias: vec![0.0; width] }))
    }

    /// The norm before the way out. It has vectors of its own but was trained with the time embedding of the layers'
    /// attention.
    pub fn head_norm(&self) -> Result<Norm> {
        self.norm_of(&|| {
            let gain = self.read("vid_out_norm.weight")?;
            let time = self.time()?;
            let scale = time.plus(Slot::Attn, Part::Scale, &self.read("vid_out_ada.out_scale")?);
            let shift = time.plus(Slot::Attn, Part::Shift, &self.read("vid_out_ada.out_shift")?);
            Ok(ConvData { weight: gain.iter().zip(scale).map(|(g, s)| g * s).collect(), bias: shift })
        })
    }

    pub fn gate(&self, ada: &str, slot: Slot) -> Result<Vector> {
        let read = || Ok(self.time()?.plus(slot, Part::Gate, &self.read(&format!("{ada}.{}_gate", slot.name()))?));
        Ok(self.ops.vector(self.config.width, &read)?)
    }
}
