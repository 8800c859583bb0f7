//! Videos in shards, for many machines without a connection between them.
//!
//! [`ClusterJob::create`] stores the plan of a video beside which all machines put their work: in a folder that they
//! share, or in object storage (S3, Google Cloud Storage, Azure). [`ClusterJob::run`] computes one shard,
//! [`ClusterJob::join`] joins all of them. Any scheduler that runs a command per shard will do. A shard that runs twice
//! gives the same bytes, and every object is created once, so that a scheduler may repeat what it likes.
#![deny(missing_docs)]

mod error;
mod http;
mod input;
mod job;
mod manifest;
mod store;

pub use error::{Error, Result};
pub use input::local_file;
pub use job::{ClusterJob, Done, RunOptions};
pub use store::is_address;
