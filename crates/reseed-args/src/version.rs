//! What `reseed --version` and `reseed doctor` print about the build.

use std::sync::LazyLock;

use reseed::internals;

/// The commit of the sources.
pub const COMMIT: &str = env!("RESEED_COMMIT");

/// Version, commit, kernels and features.
pub fn line() -> &'static str {
    static LINE: LazyLock<String> = LazyLock::new(|| format!("{} ({})", env!("CARGO_PKG_VERSION"), build()));
    &LINE
}

/// Commit, kernels and features of this build.
pub fn build() -> String {
    let kernels = internals::kernel_stamp().unwrap_or("none");
    format!("commit {COMMIT}, kernels {kernels}, features {}", features().join(" "))
}

/// The optional parts that this build has.
pub fn features() -> Vec<&'static str> {
    let ours = [("cluster", cfg!(feature = "cluster")), ("serve", cfg!(feature = "serve"))];
    let mut all = internals::features();
    all.extend(ours.iter().filter(|(_, present)| *present).map(|(name, _)| *name));
    all.sort_unstable();
    all
}
