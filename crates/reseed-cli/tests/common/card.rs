//! A card that counts memory and computes nothing.

use std::fs;
use std::process::Command;

use reseed_testing::fake_driver;

use super::{Lab, Outcome};

/// A folder with its driver in it.
pub struct Card(pub Lab);

impl Card {
    pub fn new() -> Card {
        let card = Card(Lab::new());
        fake_driver::build_driver(&card.0.path(""));
        card
    }

    /// Builds one of the fake libraries beside the driver.
    pub fn build(&self, source: &str, library: &str) {
        fake_driver::build_library(source, &self.0.path(library));
    }

    /// `reseed` and these words on this card, with a cache of its own.
    pub fn command(&self, words: &str) -> Command {
        self.beside(&format!("{words} --device cuda"))
    }

    /// The same where nobody says that it shall compute there.
    pub fn beside(&self, words: &str) -> Command {
        let mut command = self.0.command(&format!("{words} --json"));
        command.env("LD_LIBRARY_PATH", self.0.path("")).env("RESEED_STUB", self.0.path("most"));
        command.env("XDG_CACHE_HOME", self.0.path("cache"));
        command
    }

    /// What a run left, and the most bytes that it took.
    pub fn run(&self, words: &str) -> (Outcome, u64) {
        let (outcome, most, _) = self.run_beside(words, (0, 0));
        assert_eq!(outcome.code, Some(0), "reseed {words}: {}", outcome.stderr);
        (outcome, most)
    }

    /// The same, and how often it asked for memory, beside someone who takes all that is free but `left` MiB just
    /// before it asks for the `when`-th time.
    pub fn run_beside(&self, words: &str, (when, left): (u64, u64)) -> (Outcome, u64, u64) {
        let mut command = self.command(words);
        command.env("RESEED_STUB_THIEF", format!("{when}:{left}"));
        let outcome = super::outcome(command);
        let told = fs::read_to_string(self.0.path("most")).unwrap();
        let (most, asked) = told.split_once(' ').unwrap();
        (outcome, most.parse().unwrap(), asked.parse().unwrap())
    }
}
