//! Puts the commit of the sources into the binary, or "unknown" where there is no git repository.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}

fn main() {
    // The repository of a package that was unpacked into another project is not this one's.
    let ours = git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    let commit = if ours { git(&["rev-parse", "--short=12", "HEAD"]) } else { None };
    println!("cargo::rustc-env=RESEED_COMMIT={}", commit.unwrap_or("unknown".into()));
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|_| ours) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}
