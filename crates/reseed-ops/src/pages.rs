//! Memory from the operating system.

use memmap2::MmapMut;

/// Allocations of at least this size request huge pages: page faults would cost more than the op that fills the memory.
#[cfg(target_os = "linux")]
const LARGE: usize = 4 << 20;

/// Whole pages of at least `bytes` bytes: aligned, zeroed, and returned to the system when dropped. `None` if the
/// system is out of memory.
pub fn pages(bytes: usize) -> Option<MmapMut> {
    let pages = MmapMut::map_anon(bytes.max(1)).ok()?;
    #[cfg(target_os = "linux")]
    if bytes >= LARGE {
        // Only advice: without huge pages the mapping works as well.
        let _ = pages.advise(memmap2::Advice::HugePage);
    }
    Some(pages)
}
