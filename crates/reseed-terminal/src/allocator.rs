//! Ends the program with one line where the system has no host memory left. The standard library would abort.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Cursor, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::shutdown;

/// The exit code of an error of memory.
const CODE: i32 = 5;

static ENDING: AtomicBool = AtomicBool::new(false);

/// The system's allocator, which never returns null.
pub struct Allocator;

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        found(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        found(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        found(unsafe { System.realloc(block, layout, size) }, size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

fn found(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() { out_of_memory(bytes) } else { block }
}

/// Prints without allocating, and ends the process. Finished work is safe on disk at any time.
fn out_of_memory(bytes: usize) -> ! {
    if ENDING.swap(true, Ordering::SeqCst) {
        loop {
            wait();
        }
    }
    let mut line = Cursor::new([0; 256]);
    let mebibytes = bytes.div_ceil(1 << 20);
    // A line that is too long is cut off, and a closed standard error is no reason not to end.
    let _ =
        write!(line, "reseed: out of host memory: {mebibytes} MiB more needed; use smaller frames or shorter batches");
    let _ = match shutdown::kept() {
        0 => writeln!(line),
        frames => writeln!(line, "; {frames} finished frames are kept: --resume continues"),
    };
    let length = line.position() as usize;
    end(&line.get_ref()[..length])
}

/// Waits without thread-local values: on a thread without any, the C library would allocate, and abort.
#[cfg(unix)]
fn wait() {
    // SAFETY: the call has no arguments.
    unsafe { libc::pause() };
}

#[cfg(not(unix))]
fn wait() {
    std::thread::park();
}

/// Prints and ends the process, for the same reason without the standard library.
#[cfg(unix)]
fn end(line: &[u8]) -> ! {
    // SAFETY: `line` has so many bytes, and they are only read.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        libc::_exit(CODE)
    }
}

#[cfg(not(unix))]
fn end(line: &[u8]) -> ! {
    let _ = std::io::stderr().write_all(line);
    std::process::exit(CODE)
}

/// Registers the destructor of a thread-local value. The C library's own function aborts where it finds no memory, so
/// that this one, which the linker gives to the standard library instead, tries to allocate first.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod thread_locals {
    use std::ffi::{c_int, c_void};
    use std::mem::transmute;

    use super::out_of_memory;

    type Destructor = unsafe extern "C" fn(*mut c_void);
    type Register = unsafe extern "C" fn(Destructor, *mut c_void, *mut c_void) -> c_int;

    /// So large a block serves any allocation once it is freed; smaller ones the C library keeps for their size.
    const TRIED: usize = 4096;

    // SAFETY: the name and type of the C library's function, to which all calls go.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __cxa_thread_atexit_impl(run: Destructor, value: *mut c_void, library: *mut c_void) -> c_int {
        // SAFETY: the block is freed once, and the address is that of a function of this type.
        unsafe {
            let block = libc::malloc(TRIED);
            if block.is_null() {
                out_of_memory(TRIED);
            }
            libc::free(block);
            let next = libc::dlsym(libc::RTLD_NEXT, c"__cxa_thread_atexit_impl".as_ptr());
            transmute::<*mut c_void, Register>(next)(run, value, library)
        }
    }
}
