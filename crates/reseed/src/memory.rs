//! What the system says this process takes, which is known on Linux only, and what a job's frames will take.

use crate::settings::Settings;
use crate::size::Geometry;

/// Resident bytes now.
pub fn resident() -> Option<usize> {
    status("VmRSS:")
}

/// Most resident bytes since [`forget_peak`].
pub fn peak() -> Option<usize> {
    status("VmHWM:")
}

/// Starts the peak anew from what is resident now.
pub fn forget_peak() {
    // Where the system cannot, the peak stays that of the whole process, which is never too small.
    if cfg!(target_os = "linux") {
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }
}

/// Bytes of the machine's memory.
pub fn machine() -> Option<usize> {
    field("/proc/meminfo", "MemTotal:")
}

fn status(key: &str) -> Option<usize> {
    field("/proc/self/status", key)
}

fn field(path: &str, key: &str) -> Option<usize> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Most bytes that the frames of a job take on the host at once, with slices of `slice` latent frames.
pub fn of_frames(settings: &Settings, geometry: &Geometry, slice: usize) -> usize {
    const VALUE: usize = size_of::<f32>();
    let (batch, shared) = (settings.batching.size, settings.batching.shared());
    // A batch of the input waits at each of four stages and a window of them at the networks; a slice waits before and
    // behind those and is in hand there.
    let input = 4 * batch * 3 * geometry.input.pixels() + settings.turns.window * of_waiting(batch, geometry);
    let slices = 8 * 4 * slice * 3 * geometry.padded.pixels() * VALUE;
    // Results, what they are compared with, and as much again to rank them; frames of eight bits on their way out.
    let results = (batch + shared) * geometry.output.pixels() * (3 * 3 * VALUE + 3);
    input + slices + results
}

/// Bytes of a batch of `batch` frames that waits for its next network: its frames, and its latent before and behind the
/// transformer.
pub fn of_waiting(batch: usize, geometry: &Geometry) -> usize {
    const LATENT: usize = 16;
    let latents = (1 + batch.div_ceil(4)) * geometry.padded.pixels() / 64 * LATENT;
    batch * 3 * geometry.input.pixels() + 2 * latents * size_of::<f32>()
}
