//! The record of measured kernels.

use std::env;
use std::path::PathBuf;

/// Where it is kept: in the user's cache.
pub fn record() -> PathBuf {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = env::home_dir().unwrap_or_default();
    let cache = if cfg!(windows) {
        set("LOCALAPPDATA").unwrap_or_else(|| home.join("AppData/Local"))
    } else if cfg!(target_os = "macos") {
        home.join("Library/Caches")
    } else {
        set("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache"))
    };
    cache.join("reseed").join("linear.txt")
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
