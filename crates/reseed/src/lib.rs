//! Restores and upscales video with SeedVR2-family models: the library of the Reseed engine.
//!
//! A [`Session`] opens a model and a device. [`Session::upscale`] runs frames from a [`Source`](media::Source) to a
//! [`Sink`](media::Sink), [`Session::upscale_frames`] runs a clip in memory, and a [`Job`] runs files and can be
//! resumed. A [`RangeJob`] computes any frames of a clip. [`Settings`] is what a user chooses; a [`JobPlan`] is what
//! the planner decides for the memory at hand. An [`Observer`] receives the events of a job and can cancel it. The
//! library prints nothing; diagnostics go through `tracing`.
//!
//! ```
//! use reseed::{Session, Settings, Target};
//!
//! let session = Session::builder().model("formula:tiny").device("cpu").open()?;
//! let mut clip = reseed::media::sample();
//! let settings = Settings { target: Target::Scale(1.5), ..Settings::default() };
//! # let folder = temp_dir::TempDir::new()?;
//! # let output = folder.path().join("large.y4m");
//! let sink = reseed::media::create(&output, &settings.output(clip.info())?)?;
//! let report = session.upscale(&mut *clip, sink, &settings, &mut ())?;
//! assert_eq!(report.frames, 9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Cargo features
//!
//! | feature | what it adds |
//! |---|---|
//! | `cuda` | NVIDIA GPUs |
//! | `ffmpeg` | video files other than Y4M |
//! | `download` | download and verification of public models |
//!
//! All are on by default.
#![deny(missing_docs)]

mod alpha;
mod batch;
mod batch_store;
mod bytes;
mod checkpoint;
mod color;
mod compute;
mod devices;
mod error;
mod eta;
mod fallback;
mod finish;
mod grid;
mod input_frame;
#[doc(hidden)]
pub mod internals;
mod job;
mod join;
mod lanes;
mod latent;
mod low_band;
mod machine;
mod memory;
pub mod models;
mod names;
mod networks;
mod noise;
mod numeric_class;
mod observer;
mod part;
mod paths;
mod phase;
mod phase_times;
mod planner;
mod pool;
mod position;
mod post;
mod prepare;
pub mod presets;
mod preview;
mod quality;
mod range_job;
mod read;
mod report;
mod resize;
mod restored;
mod run_plan;
mod session;
mod settings;
mod shards;
mod shot;
mod size;
mod slice_ends;
mod step;
mod threads;
mod upscaler;
mod view;

pub use reseed_media as media;
pub use reseed_model::plan::Tiling;
pub use reseed_ops::{Hw, MathMode, Precision, Thw};

pub use alpha::AlphaRange;
pub use batch::Batching;
pub use color::Color;
#[cfg(feature = "cuda")]
pub use devices::Gpu;
pub use error::{DownloadError, Error, Kind, RangeError, Result, ShardError};
pub use eta::Eta;
pub use grid::BatchGrid;
pub use job::{Existing, Job, JobSpec};
pub use join::Overlap;
pub use latent::Latent;
pub use numeric_class::{ClassCheck, NumericClass};
pub use observer::{Event, Observer, Warning};
pub use part::FrameProvider;
pub use phase::Phase;
pub use planner::JobPlan;
pub use position::Position;
pub use preview::{Comparison, Preview};
pub use range_job::RangeJob;
pub use report::{Profile, Report, Times};
#[cfg(feature = "cuda")]
pub use reseed_cuda::{ArrayLayout, ArrayType, DeviceBuffer, ForeignArray};
pub use session::{Budget, Builder, ClusterEstimate, EncodedClip, Estimate, Held, Session, Vae};
#[cfg(feature = "cuda")]
pub use session::{DeviceFrames, DeviceLatent};
pub use settings::{NoiseSource, Settings, VaeSettings};
pub use shards::{ShardPlan, ShardSettings};
pub use size::{Geometry, Target};
