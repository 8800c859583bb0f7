//! The threads that work on frames and weights.

use std::error::Error as _;
use std::thread;

use crate::error::Result;

/// Starts them. Without it their first use would panic where the system has none left.
pub fn start_pool() -> Result<()> {
    match rayon::ThreadPoolBuilder::new().build_global() {
        // Without a cause the threads already run.
        Err(error) if error.source().is_some() => {
            let threads = thread::available_parallelism().map_or(1, usize::from);
            Err(reseed_ops::Error::Threads { threads, reason: error.to_string() }.into())
        }
        _ => Ok(()),
    }
}
