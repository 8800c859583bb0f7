//! Allocation of pinned memory.

use std::ffi::c_void;
use std::fs;
use std::ptr;
use std::sync::atomic::Ordering;

use cudarc::driver::sys;
use memmap2::MmapMut;
use rayon::prelude::*;
use reseed_ops::{Error, Result};

use crate::driver::Driver;

/// Pinned memory. [`Pages::unpin`] frees it.
pub struct Pages {
    at: *mut c_void,
    /// Memory of the system that this program has pinned; otherwise the driver allocated it.
    mapped: Option<MmapMut>,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Pages {}

impl Pages {
    /// Allocates and pins `bytes` bytes. Their contents are undefined.
    pub fn pin(driver: &Driver, bytes: usize) -> Result<Pages> {
        driver.enter()?;
        if driver.registers_host_memory.load(Ordering::Relaxed)
            && let Some(mut mapped) = map_and_register(driver, bytes)
        {
            return Ok(Pages { at: mapped.as_mut_ptr().cast(), mapped: Some(mapped) });
        }
        let mut at = ptr::null_mut();
        // SAFETY: writes one address.
        match unsafe { sys::cuMemHostAlloc(&mut at, bytes, 0) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::HostMemory { device: driver.label.clone(), bytes }),
            status => driver.check("cuMemHostAlloc", status).map(|()| Pages { at, mapped: None }),
        }
    }

    /// Its address.
    pub fn as_ptr(&self) -> *mut c_void {
        self.at
    }

    /// Frees the memory. No queued copy may use it, and the context must be current.
    pub fn unpin(self) {
        let free = if self.mapped.is_some() { sys::cuMemHostUnregister } else { sys::cuMemFreeHost };
        // SAFETY: `pin` made the address with the matching call. There is nothing to do about an error.
        let _ = unsafe { free(self.at) };
    }
}

/// Maps memory on large pages, touches it with all threads and registers it, which takes a tenth of the time that
/// `cuMemHostAlloc` takes. `None` where memory is short or where the driver refuses, and then this is not tried again.
fn map_and_register(driver: &Driver, bytes: usize) -> Option<MmapMut> {
    // Bytes that a thread touches at a time, the smallest page size, and bytes left to other processes.
    const PART: usize = 2 << 20;
    const PAGE: usize = 4096;
    const SPARE: usize = 1 << 30;
    // The system may grant memory that it cannot back when it is touched.
    if available_bytes().is_some_and(|available| available < bytes + SPARE) {
        return None;
    }
    let mut pages = reseed_ops::pages(bytes)?;
    pages.par_chunks_mut(PART).for_each(|part| part.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0));
    // SAFETY: this value owns the bytes until they are unregistered.
    let status = unsafe { sys::cuMemHostRegister_v2(pages.as_mut_ptr().cast(), bytes, 0) };
    let registered = status.result().is_ok();
    driver.registers_host_memory.store(registered, Ordering::Relaxed);
    registered.then_some(pages)
}

/// Bytes that this process can still allocate, by the system and by the limit of its control group, where known.
fn available_bytes() -> Option<usize> {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let group = |name: &str| number(&fs::read_to_string(format!("/sys/fs/cgroup/memory.{name}")).ok()?);
    let group = group("max").zip(group("current")).map(|(most, now)| most.saturating_sub(now));
    [reseed_ops::host_free_bytes(), group].into_iter().flatten().min()
}
