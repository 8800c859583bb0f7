//! How the host scales with devices: lanes whose transformer only waits, as a GPU does from the view of the host.
//!
//! Prints a table of frames per second and of the memory that a job adds: `cargo run --release -p reseed-testing
//! --example paced_lanes`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark that prints its result")]

use std::thread;
use std::time::{Duration, Instant};

use reseed::internals::{Checkpoint, Lane, Model, RunPlan, Step, Upscaler};
use reseed::{Batching, Latent, Settings, Target};
use reseed_media::{Depth, Frame, Size};
use reseed_testing::pipeline::job::{self, MemorySource, TinyVae};

const SIZE: Size = Size { h: 36, w: 64 };
const BATCH: usize = 5;
const BATCHES: usize = 160;
/// What a device takes for a batch.
const PACE: Duration = Duration::from_millis(400);

/// A transformer that takes its time and changes nothing.
struct Paced;

impl Step for Paced {
    fn run(&self, condition: &Latent, _noise: &Latent) -> reseed_model::Result<Latent> {
        thread::sleep(PACE);
        Ok(Latent { values: condition.values.clone(), ..*condition })
    }
}

fn clip() -> Vec<Frame> {
    let frame = |i: usize| {
        let value = |k: usize| 0.5 + 0.3 * ((k + 40 * i) as f32 * 0.003).sin();
        Frame::from_unit(SIZE, &(0..3 * SIZE.pixels()).map(value).collect::<Vec<_>>(), Depth::Eight)
    };
    (0..BATCH * BATCHES).map(frame).collect()
}

fn lane(networks: &TinyVae) -> Lane<'_> {
    let (ops, model) = (&networks.ops, Model { vae: &networks.vae, step: &Paced });
    Lane { ops, encoder_ops: ops, loader: None, model, plan: RunPlan::default(), replanner: None, fallback: None }
}

/// Seconds of the job on these lanes, and the bytes by which its memory grew.
fn measure(lanes: &[TinyVae], frames: &[Frame]) -> (f64, Option<u64>) {
    let batching = Batching { size: BATCH, overlap: 0, uniform: false };
    let settings = Settings { target: Target::Scale(1.0), batching, color: None, ..Settings::default() };
    let upscaler = Upscaler::on(lanes.iter().map(lane).collect(), settings);
    let source = MemorySource::new(frames);
    // The system then counts the peak anew.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let (before, start) = (resident("VmRSS"), Instant::now());
    let (report, written) = job::run_job(&upscaler, SIZE, source, (Checkpoint::default(), &mut (), None));
    report.unwrap();
    assert_eq!(written.len(), frames.len());
    let seconds = start.elapsed().as_secs_f64();
    (seconds, before.zip(resident("VmHWM")).map(|(before, peak)| peak.saturating_sub(before)))
}

/// A line of the memory of this process, in bytes; Linux only.
fn resident(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

fn main() {
    // Every lane has its own thread for its VAE, as it would have its own GPU.
    let (networks, frames): (Vec<_>, _) = ((0..8).map(|_| TinyVae::on_threads(1)).collect(), clip());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    println!("{BATCHES} batches of {BATCH} frames of {SIZE}, {PACE:?} a batch, {threads} CPU threads\n");
    println!("| lanes | frames per second | ratio | memory of the job |\n|---|---|---|---|");
    let mut first = None;
    for lanes in [1, 2, 4, 8] {
        let (seconds, memory) = measure(&networks[..lanes], &frames);
        let ratio = *first.get_or_insert(seconds) / seconds;
        let rate = frames.len() as f64 / seconds;
        let memory = memory.map_or("unknown".into(), |bytes| format!("{} MiB", bytes >> 20));
        println!("| {lanes} | {rate:.1} | {ratio:.2} | {memory} |");
    }
}
