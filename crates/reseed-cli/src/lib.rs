//! The command `reseed` as a function, for its program and for packages that carry the command.
#![deny(missing_docs)]

#[macro_use(say)]
extern crate reseed_terminal;

mod bench;
#[cfg(feature = "cluster")]
mod cluster;
mod config;
mod demo;
mod doctor;
mod estimate;
mod folder;
mod manual;
mod models;
mod plan;
mod preview;
mod roundtrip;
#[cfg(feature = "serve")]
mod serve;
mod upscale;
mod usage;
mod vae;

use std::ffi::OsString;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

pub use reseed_terminal::Allocator;
use reseed_terminal::{console, crash, failure, progress, report, shutdown, warning};

use reseed_args::{Bench, Command, Estimate, VaeCommand};

/// The variable that turns diagnostics on, such as `reseed=debug`.
const LOG: &str = "RESEED_LOG";

/// Runs the command with its arguments, the name of the program first, and returns the exit code. Takes over the
/// process: Ctrl-C and SIGTERM end it, and panics print one line.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    crash::record_panics();
    let cli = match config::parse(&args) {
        Ok(cli) => cli,
        Err(refusal) => return usage::report(&refusal, args.get(1..).unwrap_or_default()),
    };
    console::configure(cli.quiet, cli.command.prints_json());
    if let Some(filter) = std::env::var(LOG).ok().and_then(|filter| filter.parse::<Targets>().ok()) {
        let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        // It would report a failing standard error there, and panic.
        let log = log.log_internal_errors(false);
        tracing_subscriber::registry().with(log.with_filter(filter)).init();
    }
    if !cli.command.handles_signals() {
        shutdown::catch_signals();
    }
    match crash::caught(|| run_command(cli.command)).and_then(|()| console::lost()) {
        Ok(()) => 0,
        Err(failure) => {
            shutdown::claim();
            console::error(&failure);
            failure.code()
        }
    }
}

fn run_command(command: Command) -> failure::Result<()> {
    match command {
        Command::Upscale(args) => upscale::run(&args),
        Command::Image(args) => upscale::image(&args),
        Command::Preview(args) => preview::run(&args),
        Command::Models(command) => models::run(&command),
        Command::Estimate(Estimate::Upscale(args)) => estimate::upscale::run(&args),
        Command::Estimate(Estimate::Vae(args)) => estimate::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Config(args) => config::print(&args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(&args),
        #[cfg(feature = "cluster")]
        Command::Plan(args) => cluster::plan(&args),
        #[cfg(feature = "cluster")]
        Command::Shard(args) => cluster::shard(&args),
        #[cfg(feature = "cluster")]
        Command::Join(args) => cluster::join(&args),
        Command::Vae(VaeCommand::Encode(args)) => vae::encode(&args),
        Command::Vae(VaeCommand::Decode(args)) => vae::decode(&args),
        Command::Vae(VaeCommand::Roundtrip(args)) => roundtrip::run(&args),
        Command::Bench(Bench::Upscale(args)) => bench::upscale::run(&args),
        Command::Bench(Bench::Vae(args)) => bench::run(&args),
        Command::Bench(Bench::Color(args)) => bench::color::run(&args),
        Command::Bench(Bench::Quality(args)) => bench::quality::run(&args),
        Command::Bench(Bench::Accuracy(args)) => bench::accuracy::run(&args),
        Command::Bench(Bench::Conv(args)) => bench::conv::run(&args),
        Command::Bench(Bench::Dit(args)) => bench::dit::run(&args),
        Command::Completions(args) => manual::completions(args.shell),
        Command::Man => manual::page(),
    }
}
