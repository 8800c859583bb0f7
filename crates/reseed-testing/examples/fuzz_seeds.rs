//! Writes the generated seeds of every fuzz target to `fuzz/corpus`; commit the result.

fn main() {
    reseed_testing::fuzz::TARGETS.iter().for_each(reseed_testing::fuzz::Target::write_seeds);
}
