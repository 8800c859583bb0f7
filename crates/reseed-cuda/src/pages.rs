//! Where pinned memory comes from.

use std::ffi::c_void;
use std::fs;
use std::ptr;
use std::sync::atomic::Ordering;

use cudarc::driver::sys;
use memmap2::MmapMut;
use rayon::prelude::*;
use reseed_ops::{Error, Result};

use crate::driver::Driver;

/// Pinned memory, until [`Pages::unpin`].
pub struct Pages {
    at: *mut c_void,
    /// The system's, pinned by us. The driver's own otherwise.
    ours: Option<MmapMut>,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Pages {}

impl Pages {
    /// `bytes` bytes with anything in them.
    pub fn pin(driver: &Driver, bytes: usize) -> Result<Pages> {
        driver.enter()?;
        if driver.pins.load(Ordering::Relaxed)
            && let Some(mut ours) = ours(driver, bytes)
        {
            return Ok(Pages { at: ours.as_mut_ptr().cast(), ours: Some(ours) });
        }
        let mut at = ptr::null_mut();
        // SAFETY: writes one address.
        match unsafe { sys::cuMemHostAlloc(&mut at, bytes, 0) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::HostMemory { device: driver.label.clone(), bytes }),
            answer => driver.check("cuMemHostAlloc", answer).map(|()| Pages { at, ours: None }),
        }
    }

    /// Where it lies.
    pub fn at(&self) -> *mut c_void {
        self.at
    }

    /// Gives the memory back; no copy may use it. The context must be current.
    pub fn unpin(self) {
        let give = if self.ours.is_some() { sys::cuMemHostUnregister } else { sys::cuMemFreeHost };
        // SAFETY: pinned in `pin` in the same way. A card that fails now has nothing left that could be lost.
        let _ = unsafe { give(self.at) };
    }
}

/// Memory of the system's that all threads touch at once, on large pages, before it is pinned: the driver alone takes ten times
/// as long. `None` where there is not that much, or where the driver refuses, which is not asked again then.
fn ours(driver: &Driver, bytes: usize) -> Option<MmapMut> {
    // Bytes that a thread touches at a time, the smallest page that a system has, and what is left to others.
    const PART: usize = 2 << 20;
    const PAGE: usize = 4096;
    const SPARE: usize = 1 << 30;
    // Memory that was promised is not always there when it is touched.
    if left().is_some_and(|left| left < bytes + SPARE) {
        return None;
    }
    let mut pages = reseed_ops::pages(bytes)?;
    pages.par_chunks_mut(PART).for_each(|part| part.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0));
    // SAFETY: these bytes are ours until they are unpinned.
    let answer = unsafe { sys::cuMemHostRegister_v2(pages.as_mut_ptr().cast(), bytes, 0) };
    let pinned = answer.result().is_ok();
    driver.pins.store(pinned, Ordering::Relaxed);
    pinned.then_some(pages)
}

/// Bytes that this process can still get, where the system says so and, in a container, what that is allowed.
fn left() -> Option<usize> {
    let number = |text: &str| text.trim().trim_end_matches(" kB").parse::<usize>().ok();
    let system = fs::read_to_string("/proc/meminfo").ok();
    let system = system.and_then(|text| number(text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?));
    let group = |name: &str| number(&fs::read_to_string(format!("/sys/fs/cgroup/memory.{name}")).ok()?);
    let group = group("max").zip(group("current")).map(|(most, now)| most.saturating_sub(now));
    [system.map(|kib| kib << 10), group].into_iter().flatten().min()
}
