//! The user's folders.

use std::env;
use std::path::PathBuf;

/// The path in a variable of the environment, where it has one.
pub fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

pub fn home() -> PathBuf {
    env::home_dir().unwrap_or_default()
}

/// For files that programs keep.
pub fn data() -> PathBuf {
    system("Application Support", "XDG_DATA_HOME", ".local/share")
}

/// For files that users edit.
pub fn config() -> PathBuf {
    match cfg!(windows) {
        true => variable("APPDATA").unwrap_or_else(|| home().join("AppData/Roaming")),
        false => system("Application Support", "XDG_CONFIG_HOME", ".config"),
    }
}

/// For files that programs can make again.
#[cfg(feature = "cuda")]
pub fn cache() -> PathBuf {
    system("Caches", "XDG_CACHE_HOME", ".cache")
}

/// A folder by its name in the macOS library, by its variable, or below the home folder.
fn system(library: &str, name: &str, default: &str) -> PathBuf {
    if cfg!(windows) {
        variable("LOCALAPPDATA").unwrap_or_else(|| home().join("AppData/Local"))
    } else if cfg!(target_os = "macos") {
        home().join("Library").join(library)
    } else {
        variable(name).unwrap_or_else(|| home().join(default))
    }
}
