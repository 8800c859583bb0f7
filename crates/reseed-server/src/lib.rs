//! The HTTP server of Reseed: a queue of resumable jobs, previews, estimates, uploads and events.
//!
//! A [`Server`] listens on an address and runs the jobs of its queue, one at a time on each device. A job is in a
//! journal on disk before its client gets an answer, and continues after a crash with its finished frames.
//! Clients name files under the roots of the server only, and models by their names only. The library prints nothing;
//! diagnostics go through `tracing`.
//!
//! ```no_run
//! use reseed_server::{Config, Server};
//!
//! let mut config = Config::new("127.0.0.1:7373".parse()?, "server-data");
//! config.roots = vec!["videos".into()];
//! let server = Server::bind(config)?;
//! let stopper = server.stopper();
//! std::thread::spawn(move || {
//!     std::thread::sleep(std::time::Duration::from_secs(60));
//!     stopper.stop();
//! });
//! server.run()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

mod app;
mod auth;
mod capabilities;
mod config;
mod downloads;
mod error;
mod events;
mod files;
mod http;
mod images;
mod journal;
mod presets;
mod previews;
mod problem;
mod queue;
mod request;
mod roots;
mod server;
mod sessions;
mod settings;
mod stills;
pub mod systemd;
mod uploads;
mod view;
mod worker;

pub use config::{Access, Config, Limits};
pub use error::{Error, Result};
pub use server::{Server, Stopper};
