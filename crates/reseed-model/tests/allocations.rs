//! In a clip's later slices ops take what they work in from where they left it. Alone in its binary: nothing else may
//! allocate meanwhile.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use reseed_cpu::CpuOps;
use reseed_model::{Config, State};
use reseed_ops::{DType, Hw};
use reseed_testing::{Side, load};

/// The system's allocator, which counts.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Count, bytes and the largest of the allocations of a slice in the middle of a clip whose latents are `plane`.
fn steady(ops: &CpuOps, side: Side, plane: Hw) -> [usize; 3] {
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
fn larger_pictures_need_no_larger_allocations() {
    for dtype in [DType::F32, DType::Bf16] {
        let ops = CpuOps::new(dtype, Some(2)).unwrap();
        for side in Side::BOTH {
            let [small, large] = [Hw::new(6, 10), Hw::new(24, 40)].map(|plane| steady(&ops, side, plane));
            let [count, _, _] = small;
            let [more, bytes, largest] = large;
            // Threads that take turns otherwise may grow what they work in; pictures are sixteen times as large.
            assert!(more < 2 * count, "{dtype} {side:?}: {count} allocations, {more} of larger pictures");
            // Lists of regions are what grows.
            assert!(largest <= 16 << 10 && bytes < 1 << 20, "{dtype} {side:?}: {bytes} bytes, {largest} at once");
        }
    }
}
