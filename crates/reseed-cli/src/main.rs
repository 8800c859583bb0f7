//! The command `reseed`.
#![allow(clippy::print_stderr, reason = "a command line talks")]

/// A line of results.
macro_rules! say {
    ($($what:tt)*) => { crate::report::line(format_args!($($what)*)) };
}

mod args;
mod batch;
mod bench;
mod budget;
mod clip;
mod crew;
mod demo;
mod doctor;
mod ending;
mod engine;
mod estimate;
mod failure;
mod job;
mod model;
mod models;
mod outline;
mod progress;
mod report;
mod roundtrip;
mod tensor_file;
mod trial;
mod tuning;
mod upscale;
mod user;
mod vae;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Bench, Cli, Command, Estimate, VaeCommand};
use job::settings::Settings;

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match cli.command {
        Command::Vae(VaeCommand::Encode(args)) => vae::encode(&args),
        Command::Vae(VaeCommand::Decode(args)) => vae::decode(&args),
        Command::Vae(VaeCommand::Roundtrip(args)) => roundtrip::run(&args),
        Command::Estimate(Estimate::Vae(args)) => estimate::run(&args),
        Command::Estimate(Estimate::Upscale(args)) => estimate::upscale::run(&args),
        Command::Bench(Bench::Upscale(args)) => bench::upscale::run(&args),
        Command::Bench(Bench::Vae(args)) => bench::run(&args),
        Command::Bench(Bench::Color(args)) => bench::color::run(&args),
        Command::Bench(Bench::Quality(args)) => bench::quality::run(&args),
        Command::Bench(Bench::Conv(args)) => bench::conv::run(&args),
        Command::Bench(Bench::Dit(args)) => bench::dit::run(&args),
        Command::Upscale(args) => upscale::run(&args, Settings::typed(&Cli::command(), &matches)),
        Command::Image(args) => upscale::image(&args),
        Command::Models(command) => models::run(&command),
        Command::Demo(args) => demo::run(&args),
        Command::Doctor => doctor::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            ending::claim();
            eprintln!("reseed: {failure}");
            ExitCode::from(failure.code())
        }
    }
}
