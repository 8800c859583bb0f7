//! The record of measured kernels.

use std::path::PathBuf;

use crate::user;

/// Where it is kept: in the user's cache.
pub fn record() -> PathBuf {
    user::cache().join("reseed").join("linear.txt")
}

/// The library and the record, in one line.
pub fn summary() -> String {
    let path = record();
    let known = match reseed_cuda::recorded(&path) {
        Ok((0, _)) => "nothing measured yet (--tune on)".to_string(),
        Ok((products, 1)) => format!("{products} products measured on one card, {}", path.display()),
        Ok((products, cards)) => format!("{products} products measured on {cards} cards, {}", path.display()),
        Err(trouble) => trouble,
    };
    let library = reseed_cuda::library().unwrap_or_else(|reason| reason);
    format!("{library}; {known}")
}
