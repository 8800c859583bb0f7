//! The threads that work on frames and weights.

use std::error::Error as _;
use std::thread;

use crate::error::Result;

/// The most CPU threads per core: more would only take memory and time.
const PER_CORE: usize = 4;

/// The most CPU threads of a session.
pub fn most_threads() -> usize {
    PER_CORE * cores()
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Starts them. Without it their first use would panic where the system has none left.
pub fn start_pool() -> Result<()> {
    match rayon::ThreadPoolBuilder::new().build_global() {
        // Without a cause the threads already run.
        Err(error) if error.source().is_some() => {
            Err(reseed_ops::Error::Threads { threads: cores(), reason: error.to_string() }.into())
        }
        _ => Ok(()),
    }
}
