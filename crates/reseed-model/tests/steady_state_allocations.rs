//! In steady state the CPU device reuses its buffers: host allocations do not grow with the frame size. This test has
//! its own binary because other tests would add to the counts.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use reseed_cpu::CpuOps;
use reseed_model::{Config, State};
use reseed_ops::{DType, Hw};
use reseed_testing::{Side, load};

/// The system allocator with counters.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are forwarded to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Number, total bytes and largest size of the allocations of a steady-state slice with latents of size `plane`.
fn steady_allocations(ops: &CpuOps, side: Side, plane: Hw) -> [usize; 3] {
    let vae = load(ops, &Config::tiny());
    let clip = side.input(&vae.config, 5, plane);
    let mut state = State::new();
    let mut counted = [0; 3];
    for slice in side.slices(&vae.config, &[2, 1, 1, 1]) {
        let x = clip.upload(ops, slice);
        [&COUNT, &BYTES, &LARGEST].iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        side.coder(&vae).run(ops, x, &mut state).unwrap();
        counted = [&COUNT, &BYTES, &LARGEST].map(|counter| counter.load(Ordering::Relaxed));
    }
    counted
}

#[test]
fn larger_frames_need_no_larger_allocations() {
    for dtype in [DType::F32, DType::Bf16] {
        let ops = CpuOps::new(dtype, Some(2)).unwrap();
        for side in Side::BOTH {
            let [small, large] = [Hw::new(6, 10), Hw::new(24, 40)].map(|plane| steady_allocations(&ops, side, plane));
            let [count, _, _] = small;
            let [more, bytes, largest] = large;
            // A different schedule of threads may grow a few buffers, while the frames are sixteen times as large.
            assert!(more < 2 * count, "{dtype} {side:?}: {count} allocations, {more} with larger frames");
            // Only lists of regions grow.
            assert!(largest <= 16 << 10 && bytes < 1 << 20, "{dtype} {side:?}: {bytes} bytes, {largest} at once");
        }
    }
}
