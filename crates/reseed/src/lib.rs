//! Frames in, restored frames out: the pipeline of the Reseed engine, and the library to embed.
//!
//! An [`Upscaler`] takes a device, the networks ([`Model`]; [`Networks`] loads them) and [`Settings`], and runs frames from a
//! [`reseed_media::Source`] to a [`reseed_media::Sink`]: resized, cut into shots and batches, encoded, restored, decoded,
//! joined, their colours corrected. Stages overlap on threads of their own, in memory that does not grow with the clip.
//! Nothing here parses arguments or prints; the networks and their weights belong to `reseed-model`, files to
//! `reseed-media`.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let output = folder.path().join("large.y4m");
//! use reseed_model::weights::formula::Formula;
//! use reseed_model::{Config, Vae};
//! use reseed_cpu::CpuOps;
//! use reseed_ops::DType;
//! use reseed::{Latent, Model, Settings, Target, Upscaler};
//!
//! let cpu = CpuOps::new(DType::F32, Some(1))?;
//! let config = Config::tiny();
//! let vae = Vae::load(&cpu, &Formula::new(config.tensors(), config.groups, 1))?;
//! // A transformer that leaves its input as it is.
//! let step = |condition: &Latent, _noise: &Latent| Ok(condition.clone());
//!
//! let settings = Settings { target: Target::Scale(1.5), ..Settings::default() };
//! let mut clip = reseed_media::sample();
//! let sink = reseed_media::create(&output, &settings.output(clip.info())?)?;
//! let upscaler = Upscaler::new(&cpu, Model { vae: &vae, step: &step }, settings);
//! let report = upscaler.run(&mut *clip, sink, &mut ())?;
//! assert_eq!(report.frames, 9);
//! assert_eq!(reseed_media::open(&output)?.info().size.to_string(), "144x96");
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

pub mod alpha;
pub mod batch;
mod batch_store;
mod checkpoint;
mod color;
mod compute;
mod error;
pub mod join;
mod latent;
pub mod low_band;
pub mod memory;
mod networks;
pub mod noise;
mod phase;
mod pool;
mod post;
mod prepare;
mod read;
mod report;
pub mod resize;
mod settings;
pub mod shot;
mod size;
mod upscaler;
mod view;

pub use batch_store::{BatchStore, Turn};
pub use checkpoint::Checkpoint;
pub use color::Color;
pub use error::{Error, Result};
pub use latent::Latent;
pub use networks::{NetworkResidency, Networks, Transformer};
pub use phase::Phase;
pub use report::{Report, Times};
pub use settings::{Settings, VaePlan, WindowPlan};
pub use size::{Geometry, Target};
pub use upscaler::{Model, Progress, Replan, Replanner, Step, Upscaler};
pub use view::View;
