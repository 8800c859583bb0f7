//! The command `reseed`.
#![allow(clippy::print_stderr, reason = "a command line prints")]

/// Prints a line of results.
macro_rules! say {
    ($($what:tt)*) => { crate::report::line(format_args!($($what)*)) };
}

mod allocator;
mod args;
mod bench;
mod demo;
mod doctor;
mod estimate;
mod failure;
mod folder;
mod manual;
mod models;
mod progress;
mod report;
mod roundtrip;
mod shutdown;
mod upscale;
mod vae;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use args::{Bench, Cli, Command, Estimate, VaeCommand};

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// The variable that turns diagnostics on, such as `reseed=debug`.
const LOG: &str = "RESEED_LOG";

fn main() -> ExitCode {
    let cli = Cli::parse();
    report::set_quiet(cli.quiet);
    if let Ok(filter) = EnvFilter::try_from_env(LOG) {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            shutdown::claim();
            eprintln!("reseed: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

fn run(command: Command) -> failure::Result<()> {
    match command {
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
        Command::Upscale(args) => upscale::run(&args),
        Command::Image(args) => upscale::image(&args),
        Command::Models(command) => models::run(&command),
        Command::Demo(args) => demo::run(&args),
        Command::Doctor => doctor::run(),
        Command::Completions(args) => manual::completions(args.shell),
        Command::Man => manual::page(),
    }
}
