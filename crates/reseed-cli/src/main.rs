//! The command `reseed`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: reseed_cli::Allocator = reseed_cli::Allocator;

fn main() -> ExitCode {
    ExitCode::from(reseed_cli::run(std::env::args_os()))
}
