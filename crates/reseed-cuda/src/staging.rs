//! Pinned host memory that values pass through. The card copies from and to it at the bus's speed; from ordinary memory
//! it would take a tenth of that.

use std::ffi::c_void;

use cudarc::driver::sys;
use reseed_ops::Result;

use crate::driver::Driver;

/// Threads that copy between pinned and ordinary memory: one cannot keep up with the bus.
const THREADS: usize = 8;
/// Bytes that are not worth a thread.
const ALONE: usize = 1 << 20;

/// A piece of pinned memory.
pub struct Staging {
    at: *mut c_void,
    bytes: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Staging {}

impl Staging {
    /// Pins `bytes` bytes for as long as the process lives or until it is given to [`Staging::unpin`].
    pub fn new(driver: &Driver, bytes: usize) -> Result<Staging> {
        driver.enter()?;
        let mut at = std::ptr::null_mut();
        // SAFETY: writes one address.
        driver.check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut at, bytes, 0) })?;
        Ok(Staging { at, bytes })
    }

    /// The memory.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated in `new`, borrowed exclusively; the driver hands it out zeroed or used, never unmapped.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.bytes) }
    }

    /// Gives the memory back; nothing queued may use it. The context must be current.
    pub fn unpin(&mut self) {
        // SAFETY: allocated in `new`. A card that fails now has nothing left that could be lost.
        let _ = unsafe { sys::cuMemFreeHost(self.at) };
        self.bytes = 0;
    }
}

/// Copies on several threads.
pub fn spread(to: &mut [u8], from: &[u8]) {
    let part = to.len().div_ceil(THREADS).max(ALONE);
    std::thread::scope(|scope| {
        for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
            scope.spawn(move || to.copy_from_slice(from));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_once() {
        for count in [0, 1, ALONE - 1, 3 * ALONE + 5, THREADS * ALONE + 7] {
            let from: Vec<u8> = (0..count).map(|i| (i * 7 + i / 251) as u8).collect();
            let mut to = vec![0; count];
            spread(&mut to, &from);
            assert!(to == from, "{count} bytes");
        }
    }
}
