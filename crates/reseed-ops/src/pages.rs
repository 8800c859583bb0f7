//! Memory straight from the system.

use memmap2::MmapMut;

/// Bytes from which on large pages are asked for: thousands of small ones cost more than a norm that fills them.
#[cfg(target_os = "linux")]
const LARGE: usize = 4 << 20;

/// Whole pages that hold `bytes` bytes: aligned, zero until touched, and gone the moment they are given back. `None` when the
/// system has no room.
pub fn pages(bytes: usize) -> Option<MmapMut> {
    let pages = MmapMut::map_anon(bytes.max(1)).ok()?;
    #[cfg(target_os = "linux")]
    if bytes >= LARGE {
        // A wish: where the system has no large pages, small ones do.
        let _ = pages.advise(memmap2::Advice::HugePage);
    }
    Some(pages)
}
