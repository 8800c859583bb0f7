//! Estimates time, memory and disk of a job before it runs.
//!
//!     cargo run --release --example estimate [INPUT [MODEL]]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::error::Error;

use reseed::media::video::Options;
use reseed::{Session, Settings, Target};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let source = match arguments.next() {
        Some(path) => reseed::media::open(path.as_ref())?,
        None => reseed::media::sample(),
    };
    let session = Session::builder().model(arguments.next().unwrap_or("nano".into())).open()?;
    let settings = Settings { target: Target::Scale(2.0), ..Settings::default() };

    let estimate = session.estimate(source.info(), &settings)?;
    let (plan, disk) = (&estimate.plan, estimate.disk(&Options::default()));
    println!("{} frames in {} batches: about {:.1} s", estimate.frames, estimate.batches, estimate.seconds);
    println!("based on {}", estimate.based_on);
    println!("GPU memory {} bytes, host memory {} bytes", estimate.device_bytes, estimate.host_bytes);
    println!("output {} bytes, work files {} bytes", disk.output, disk.work);
    println!(
        "{} of {} layers on the device, windows of {} batches",
        plan.resident_layers(),
        plan.layers(),
        plan.window()
    );
    Ok(())
}
