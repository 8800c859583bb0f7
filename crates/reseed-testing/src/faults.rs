//! Faults of the operating system: a preloaded library that fails or kills `reseed` at a chosen I/O call. Linux only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Calls that change files.
pub const WRITES: &str = "open,write,fsync,rename,truncate,mkdir";
/// `ENOSPC`: no space left on device.
pub const FULL: i32 = 28;
/// `EIO`: input/output error.
pub const DEFECT: i32 = 5;

/// What happens at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing; calls are only counted.
    None,
    /// This call fails with this error number.
    Once(usize, i32),
    /// This call and all later ones fail with this error number.
    From(usize, i32),
    /// The process is killed at this call.
    Kill(usize),
}

/// The preloaded library.
pub struct Shim {
    library: PathBuf,
}

impl Shim {
    /// Builds the library into `folder`, or says why it cannot be used here.
    pub fn build(folder: &Path) -> Result<Shim, String> {
        if !cfg!(target_os = "linux") {
            return Err("skipped: faults are injected with LD_PRELOAD, on Linux only".into());
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults").join("shim.c");
        let library = folder.join("shim.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).args([&library, &source]).arg("-ldl");
        let built = compiler.output().map_err(|error| format!("skipped: no C compiler `cc`: {error}"))?;
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Ok(Shim { library })
    }

    /// Lets `fault` happen to the process `reseed` of this command, and not to its children, at the calls named in
    /// `calls` on files under `folder`.
    pub fn apply(&self, command: &mut Command, folder: &Path, calls: &str, fault: Fault) {
        // The kernel reports paths without links.
        let folder = fs::canonicalize(folder).unwrap();
        command.env("LD_PRELOAD", &self.library).env("RESEED_FAULT_PROGRAM", "reseed");
        command.env("RESEED_FAULT_UNDER", folder).env("RESEED_FAULT_CALLS", calls);
        let (number, error) = match fault {
            Fault::None => return,
            Fault::Once(number, error) | Fault::From(number, error) => (number, error),
            Fault::Kill(number) => (number, 0),
        };
        command.env("RESEED_FAULT_AT", number.to_string()).env("RESEED_FAULT_ERROR", error.to_string());
        match fault {
            Fault::From(..) => command.env("RESEED_FAULT_STICKY", "1"),
            Fault::Kill(_) => command.env("RESEED_FAULT_KILL", "1"),
            _ => command,
        };
    }

    /// Writes every call that counts to `file`.
    pub fn log(&self, command: &mut Command, file: &Path) {
        command.env("RESEED_FAULT_LOG", file);
    }
}
