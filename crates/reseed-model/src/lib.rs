//! The networks of the SeedVR2 family, written once for every [`reseed_ops::Device`].
//!
//! * [`Vae`] is the causal video VAE: frames to latents and back, exact at any slicing.
//! * [`Dit`] is the one-step diffusion transformer that restores latents.
//! * [`weights`] reads the public files and generates weights from a formula. [`nano`] is the embedded model.
//! * [`plan`] and [`planner`] choose slices, tiles and the residency of temporal caches for a memory budget.
//!
//! Configurations are detected from the tensors. The crate knows no device by name, no video and no files other than
//! weights.
//!
//! ```
//! use reseed_cpu::CpuOps;
//! use reseed_model::weights::formula::Formula;
//! use reseed_model::{Coder, Config, State, Vae};
//! use reseed_ops::{DType, Shape, Transfer};
//!
//! let cpu = CpuOps::new(DType::F32, Some(1))?;
//! let config = Config::tiny();
//! let vae = Vae::load(&cpu, &Formula::new(config.tensors(), config.groups, 1))?;
//!
//! let frame = cpu.upload(Shape::from([1, 16, 24, 3]), &[0.5; 16 * 24 * 3])?;
//! let moments = vae.encoder.run(&cpu, frame, &mut State::new())?;
//! assert_eq!(moments.shape(), Shape::from([1, 2, 3, 32]));
//! # Ok::<(), reseed_model::Error>(())
//! ```
#![deny(missing_docs)]

mod config;
pub mod dit;
mod error;
mod folder;
#[doc(hidden)]
pub mod internals;
mod load;
pub mod nano;
pub mod noise;
pub mod plan;
pub mod planner;
mod stream;
mod vae;
pub mod weights;

pub use config::Config;
pub use dit::Dit;
pub use error::{Error, Result};
pub use folder::{ModelFolder, TextEmbedding};
pub use stream::{LoadRegion, SliceData, Stream};
pub use vae::{Coder, Decoder, Encoder, State, Vae};
