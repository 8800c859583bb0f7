//! Loads the layers of a transformer from a source onto a device. The modulation of a layer is the sum of its own
//! vectors and the time embedding; both are constants and are added here.

use std::cell::OnceCell;

use reseed_ops::{ConvData, Device, Linear, LinearData, LinearSpec, Norm, Numbers, Quant, Vector};

use super::config::{Config, PATCH};
use super::time::{Part, Sublayer, TimeEmbedding};
use crate::error::Result;
use crate::weights::Source;

/// Epsilon of the RMS norms in all public configurations.
pub const EPS: f32 = 1e-5;

/// Loads layers by name.
pub struct Loader<'a> {
    pub ops: &'a dyn Device,
    pub config: &'a Config,
    source: &'a dyn Source,
    time: OnceCell<TimeEmbedding>,
}

impl<'a> Loader<'a> {
    pub fn new(ops: &'a dyn Device, source: &'a dyn Source, config: &'a Config) -> Self {
        Loader { ops, config, source, time: OnceCell::new() }
    }

    fn read(&self, name: &str) -> Result<Vec<f32>> {
        self.source.read(name)
    }

    /// The time embedding, computed on first use: tracing devices read no weights.
    fn time(&self) -> Result<&TimeEmbedding> {
        if self.time.get().is_none() {
            let _ = self.time.set(TimeEmbedding::new(self.source, self.config)?);
        }
        Ok(self.time.get().expect("set above"))
    }

    /// A linear layer at either end of the network, whose products stay floats.
    pub fn linear(&self, name: &str, dims: [usize; 2]) -> Result<Linear> {
        self.packed(&[name.into()], dims, true, false)
    }

    /// A linear layer of a block, or several of the same size with concatenated outputs. Its products may be of 8-bit
    /// integers.
    pub fn block_linear(&self, names: &[String], dims: [usize; 2], biased: bool) -> Result<Linear> {
        self.packed(names, dims, biased, true)
    }

    fn packed(&self, names: &[String], [d_out, d_in]: [usize; 2], biased: bool, int8: bool) -> Result<Linear> {
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
        Ok(self.ops.linear_weights(LinearSpec { d_in, d_out: rows, quant, int8 }, &read)?)
    }

    /// Quantisation of the matrices, if they share one.
    fn quant(&self, matrices: &[String]) -> Option<Quant> {
        let first = self.source.quant(&matrices[0])?;
        matrices.iter().all(|matrix| self.source.quant(matrix) == Some(first)).then_some(first)
    }

    /// The input projection. The last channel of each pixel is always one, so its column is added to the bias.
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

    /// A vector of `len` values.
    pub fn vector(&self, name: &str, len: usize) -> Result<Vector> {
        Ok(self.ops.vector(len, &|| Ok(self.read(name)?))?)
    }

    fn norm_of(&self, read: &dyn Fn() -> Result<ConvData>) -> Result<Norm> {
        Ok(self.ops.norm_weights(1, EPS, self.config.width, &|| Ok(read()?))?)
    }

    /// The modulated norm before a sublayer: n(z) ⊙ scale + shift.
    pub fn norm(&self, ada: &str, sublayer: Sublayer) -> Result<Norm> {
        let own = |part: &str| self.read(&format!("{ada}.{}_{part}", sublayer.name()));
        self.norm_of(&|| {
            Ok(ConvData {
                weight: self.time()?.plus(sublayer, Part::Scale, &own("scale")?),
                bias: self.time()?.plus(sublayer, Part::Shift, &own("shift")?),
            })
        })
    }

    /// A norm without scale and shift.
    pub fn bare_norm(&self) -> Result<Norm> {
        let width = self.config.width;
        self.norm_of(&|| Ok(ConvData { weight: vec![1.0; width], bias: vec![0.0; width] }))
    }

    /// The norm before the output projection. It has its own vectors and uses the time embedding of attention.
    pub fn head_norm(&self) -> Result<Norm> {
        self.norm_of(&|| {
            let gain = self.read("vid_out_norm.weight")?;
            let time = self.time()?;
            let scale = time.plus(Sublayer::Attn, Part::Scale, &self.read("vid_out_ada.out_scale")?);
            let shift = time.plus(Sublayer::Attn, Part::Shift, &self.read("vid_out_ada.out_shift")?);
            Ok(ConvData { weight: gain.iter().zip(scale).map(|(g, s)| g * s).collect(), bias: shift })
        })
    }

    /// The gate of a sublayer.
    pub fn gate(&self, ada: &str, sublayer: Sublayer) -> Result<Vector> {
        let read =
            || Ok(self.time()?.plus(sublayer, Part::Gate, &self.read(&format!("{ada}.{}_gate", sublayer.name()))?));
        Ok(self.ops.vector(self.config.width, &read)?)
    }
}
