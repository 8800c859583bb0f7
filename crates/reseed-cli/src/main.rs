//! The command `reseed`.
#![allow(clippy::print_stderr, reason = "a command line talks")]

/// A line of results.
macro_rules! say {
    ($($what:tt)*) => { crate::report::line(format_args!($($what)*)) };
}

mod args;
mod bench;
mod budget;
mod clip;
mod doctor;
mod engine;
mod estimate;
mod failure;
mod model;
mod outline;
mod progress;
mod report;
mod roundtrip;
mod tensor_file;
mod upscale;
mod vae;

use std::process::ExitCode;

use clap::Parser;

use args::{Bench, Cli, Command, Estimate, VaeCommand};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Vae(VaeCommand::Encode(args)) => vae::encode(&args),
        Command::Vae(VaeCommand::Decode(args)) => vae::decode(&args),
        Command::Vae(VaeCommand::Roundtrip(args)) => roundtrip::run(&args),
        Command::Estimate(Estimate::Vae(args)) => estimate::run(&args),
        Command::Bench(Bench::Vae(args)) => bench::run(&args),
        Command::Bench(Bench::Color(args)) => bench::color::run(&args),
        Command::Bench(Bench::Conv(args)) => bench::conv::run(&args),
        Command::Bench(Bench::Dit(args)) => bench::dit::run(&args),
        Command::Upscale(args) => upscale::run(&args),
        Command::Image(args) => upscale::image(&args),
        Command::Demo(args) => roundtrip::demo(&args),
        Command::Doctor => doctor::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("reseed: {failure}");
            ExitCode::from(failure.code())
        }
    }
}
