//! A fake GPU that counts allocated memory and computes nothing.

use std::fs;
use std::process::Command;

use reseed_testing::fake_driver;

use super::{Lab, Outcome};

/// A working folder that holds the fake driver.
pub struct FakeGpu {
    pub lab: Lab,
}

impl FakeGpu {
    pub fn new() -> FakeGpu {
        let lab = Lab::new();
        fake_driver::build_driver(&lab.path(""));
        FakeGpu { lab }
    }

    /// Builds one of the fake libraries in the driver's folder.
    pub fn build(&self, source: &str, library: &str) {
        fake_driver::build_library(source, &self.lab.path(library));
    }

    /// `reseed` with these arguments on the fake GPU, with a separate cache folder.
    pub fn command(&self, args: &str) -> Command {
        self.command_default_device(&format!("{args} --device cuda"))
    }

    /// The same without `--device`.
    pub fn command_default_device(&self, args: &str) -> Command {
        let mut command = self.lab.command(&format!("{args} --json"));
        command.env("LD_LIBRARY_PATH", self.lab.path("")).env("RESEED_STUB", self.lab.path("most"));
        command.env("XDG_CACHE_HOME", self.lab.path("cache"));
        command
    }

    /// Runs successfully. Returns the outcome and the peak allocation in bytes.
    pub fn run(&self, args: &str) -> (Outcome, u64) {
        let (outcome, peak, _) = self.run_with_contention(args, (0, 0));
        assert_eq!(outcome.code, Some(0), "reseed {args}: {}", outcome.stderr);
        (outcome, peak)
    }

    /// Runs while another process allocates all free memory except `left` MiB just before allocation number `when`.
    /// Returns the outcome, the peak allocation in bytes and the number of allocations.
    pub fn run_with_contention(&self, args: &str, (when, left): (u64, u64)) -> (Outcome, u64, u64) {
        let mut command = self.command(args);
        command.env("RESEED_STUB_THIEF", format!("{when}:{left}"));
        let outcome = super::outcome(command);
        let counters = fs::read_to_string(self.lab.path("most")).unwrap();
        let (peak, allocations) = counters.split_once(' ').unwrap();
        (outcome, peak.parse().unwrap(), allocations.parse().unwrap())
    }
}
