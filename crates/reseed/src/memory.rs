//! The memory of this process, known on Linux and Windows, and the memory that the frames of a job need.

use crate::batch::Batching;
use crate::size::Geometry;

pub use process::{forget_peak, peak, resident};
/// Bytes of the machine's memory, in all and those that programs can still get.
pub use reseed_ops::{host_bytes as machine, host_free_bytes as available};

#[cfg(not(windows))]
mod process {
    /// Resident bytes now.
    pub fn resident() -> Option<usize> {
        status("VmRSS:")
    }

    /// Most resident bytes since [`forget_peak`].
    pub fn peak() -> Option<usize> {
        status("VmHWM:")
    }

    /// Resets the peak to the bytes that are resident now.
    pub fn forget_peak() {
        // Where the system cannot, the peak is that of the whole process, which is never too small.
        if cfg!(target_os = "linux") {
            let _ = std::fs::write("/proc/self/clear_refs", "5");
        }
    }

    fn status(key: &str) -> Option<usize> {
        let text = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib << 10)
    }
}

#[cfg(windows)]
mod process {
    use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
    use windows_sys::Win32::System::Threading::GetCurrentProcess;

    /// Resident bytes now.
    pub fn resident() -> Option<usize> {
        counters().map(|counters| counters.WorkingSetSize)
    }

    /// Most resident bytes of the process so far.
    pub fn peak() -> Option<usize> {
        counters().map(|counters| counters.PeakWorkingSetSize)
    }

    /// Windows cannot reset the peak. That of the whole process is never too small.
    pub fn forget_peak() {}

    fn counters() -> Option<PROCESS_MEMORY_COUNTERS> {
        let mut counters = PROCESS_MEMORY_COUNTERS::default();
        let bytes = size_of_val(&counters) as u32;
        // SAFETY: the handle of the current process is always valid, and the structure has the size that is given.
        (unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &mut counters, bytes) } != 0).then_some(counters)
    }
}

/// Most bytes of host memory for the frames of a job, with slices of `slice` latent frames and windows of `window`
/// batches.
pub fn of_frames(batching: Batching, geometry: &Geometry, slice: usize, window: usize) -> usize {
    const VALUE: usize = size_of::<f32>();
    let (batch, shared) = (batching.size, batching.shared());
    // A batch of the input waits at each of four stages and a window of batches at the networks. Slices wait before and
    // after the networks and are in hand there.
    let input = 4 * batch * 3 * geometry.input.pixels() + window * of_waiting(batch, geometry);
    let slices = 8 * 4 * slice * 3 * geometry.padded.pixels() * VALUE;
    // Results, their colour references, and as much again to rank values; frames of eight bits on their way out.
    let results = (batch + shared) * geometry.output.pixels() * (3 * 3 * VALUE + 3);
    input + slices + results
}

/// Bytes of a batch of `batch` frames that waits for its next network: its frames, and its latent before and after the
/// transformer.
pub fn of_waiting(batch: usize, geometry: &Geometry) -> usize {
    const LATENT: usize = 16;
    let latents = (1 + batch.div_ceil(4)) * geometry.padded.pixels() / 64 * LATENT;
    batch * 3 * geometry.input.pixels() + 2 * latents * size_of::<f32>()
}

/// The memory of a run beside its weights.
pub struct Watch {
    weights: Option<usize>,
}

impl Watch {
    /// Starts when the weights are loaded.
    pub fn start() -> Watch {
        forget_peak();
        Watch { weights: resident() }
    }

    /// Most bytes since then, without those of the weights.
    pub fn peak_above(&self) -> Option<usize> {
        Some(peak()?.saturating_sub(self.weights?))
    }
}
