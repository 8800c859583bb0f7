//! The networks of the SeedVR2 family, written once for every [`reseed_ops::Device`].
//!
//! That is the causal video VAE ([`Vae`]): pictures to latents and back, exact at any slicing; and the one-step diffusion
//! transformer ([`Dit`]) between the two. Weights come from the public files, from a formula, or from
//! inside the library ([`nano`]); sizes are read off the tensors. This crate knows no device by name, no video and no files other than weights.
//!
//! ```
//! use reseed_model::weights::formula::Formula;
//! use reseed_model::{Config, Coder, State, Vae};
//! use reseed_cpu::CpuOps;
//! use reseed_ops::{DType, Transfer, Shape};
//!
//! let cpu = CpuOps::new(DType::F32, Some(1))?;
//! let config = Config::tiny();
//! let vae = Vae::load(&cpu, &Formula::new(config.tensors(), config.groups, 1))?;
//!
//! let picture = cpu.upload(Shape::from([1, 16, 24, 3]), &[0.5; 16 * 24 * 3])?;
//! let moments = vae.encoder.run(&cpu, picture, &mut State::new())?;
//! assert_eq!(moments.shape(), Shape::from([1, 2, 3, 32]));
//! # Ok::<(), reseed_model::Error>(())
//! ```
#![deny(missing_docs)]

pub mod budget;
mod config;
pub mod dit;
mod error;
mod folder;
mod load;
pub mod nano;
pub mod noise;
pub mod plan;
mod stream;
mod vae;
pub mod weights;

pub use config::Config;
pub use dit::Dit;
pub use error::{Error, Result};
pub use folder::{Folder, Text};
pub use stream::{Slice, Stream};
pub use vae::{Coder, Decoder, Encoder, State, Vae};
