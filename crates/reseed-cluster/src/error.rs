//! Why a video could not be computed by many machines.

use reseed::Kind;

/// Why a video could not be computed by many machines. Each is one line: what failed, why, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library's reason.
    #[error(transparent)]
    Library(#[from] reseed::Error),
    /// The address has no storage that is known.
    #[error("{address}: {reason}; use a path, or an address that begins with s3://, gs://, az:// or file://")]
    Address {
        /// The address.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The storage could not be read or written.
    #[error("{name}: {reason}")]
    Storage {
        /// The object.
        name: String,
        /// The reason of the storage.
        reason: String,
    },
    /// The plan does not exist.
    #[error("{name}: no such plan; check its name")]
    NoPlan {
        /// The plan.
        name: String,
    },
    /// A plan or an output of this name exists.
    #[error("{name}: already exists")]
    Exists {
        /// The object.
        name: String,
    },
    /// Not all shards are finished.
    #[error("{} of {shards} shards are missing, the first is {}; run them", missing.len(), missing[0])]
    Unfinished {
        /// The numbers of the missing shards.
        missing: Vec<usize>,
        /// The number of shards.
        shards: usize,
    },
    /// Two machines computed the same shard with different bytes.
    #[error("shard {shard}: another machine has stored other bytes for it; keep machines of one kind and plan again")]
    Conflict {
        /// The shard.
        shard: usize,
    },
    /// An object is not what its digest says.
    #[error("{name}: damaged in the storage; remove shard {shard} of the job there and run it again")]
    Damaged {
        /// The object.
        name: String,
        /// Its shard.
        shard: usize,
    },
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the error is about.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Library(error) => error.kind(),
            Error::Address { .. } | Error::Exists { .. } => Kind::Usage,
            Error::NoPlan { .. } => Kind::Input,
            Error::Storage { .. } | Error::Unfinished { .. } | Error::Conflict { .. } | Error::Damaged { .. } => {
                Kind::Failed
            }
        }
    }
}
