//! Memory of results, shared with the arrays that Python makes of them.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// DLPack asks for it, and vector loads like it.
const ALIGN: usize = 256;

/// Bytes that never move. They are written by one job before Python sees them.
pub struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a buffer owns its bytes, as a vector does.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer gives out its address alone.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Zeros, or none where the system has not so much memory.
    pub fn zeros(bytes: usize) -> Option<Buffer> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).ok()?;
        // SAFETY: the layout has at least one byte.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Buffer { start, layout })
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are initialised, and nobody else has the buffer.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }

    /// Copies a part to `to`.
    pub fn read(&self, from: usize, to: &mut [u8]) {
        let size = self.layout.size();
        assert!(from <= size && to.len() <= size - from, "a part of the buffer");
        // SAFETY: the part is inside of the buffer, and results do not change.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr().add(from), to.as_mut_ptr(), to.len()) };
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
