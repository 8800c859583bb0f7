//! Where this user keeps things.

use std::env;
use std::path::PathBuf;

/// What a variable of the environment names, where it names something.
pub fn named(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

pub fn home() -> PathBuf {
    env::home_dir().unwrap_or_default()
}

/// What programs keep for good.
pub fn data() -> PathBuf {
    kept("Application Support", "XDG_DATA_HOME", ".local/share")
}

/// What programs can make again.
pub fn cache() -> PathBuf {
    kept("Caches", "XDG_CACHE_HOME", ".cache")
}

/// One of the system's own places: by its name in a library, by its variable, or under the home folder.
fn kept(library: &str, variable: &str, usual: &str) -> PathBuf {
    if cfg!(windows) {
        named("LOCALAPPDATA").unwrap_or_else(|| home().join("AppData/Local"))
    } else if cfg!(target_os = "macos") {
        home().join("Library").join(library)
    } else {
        named(variable).unwrap_or_else(|| home().join(usual))
    }
}
