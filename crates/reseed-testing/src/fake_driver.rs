//! A CUDA driver that counts memory and computes nothing, and a cuBLASLt beside it.

use std::path::Path;
use std::process::Command;

/// Builds the driver library into `folder`, under both names that programs look for.
#[cfg(unix)]
pub fn build_driver(folder: &Path) {
    build_library("cuda.c", &folder.join("libcuda.so.1"));
    std::os::unix::fs::symlink("libcuda.so.1", folder.join("libcuda.so")).unwrap();
}

/// Builds one of the fake libraries with the C compiler that Rust links with.
pub fn build_library(source: &str, library: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fake_driver").join(source);
    let name = library.file_name().unwrap().to_str().unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", &format!("-Wl,-soname,{name}"), "-o"])
        .args([library, &source])
        .output()
        .unwrap_or_else(|error| panic!("the C compiler `cc` builds the libraries of this test: {error}"));
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}
