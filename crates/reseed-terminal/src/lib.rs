//! What the command `reseed` owes the person who runs it: output that may fail, errors in one line with an exit code,
//! progress, clean ends by signals, and no abort for panics or missing memory.
#![deny(missing_docs)]

/// Prints a line of results.
#[macro_export]
macro_rules! say {
    ($($what:tt)*) => { $crate::console::line(format_args!($($what)*)) };
}

mod allocator;
pub mod console;
pub mod crash;
pub mod failure;
pub mod progress;
pub mod report;
pub mod shutdown;
pub mod warning;
#[cfg(windows)]
mod windows;

pub use allocator::Allocator;
