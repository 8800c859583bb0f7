//! Files of a few bytes that declare huge images are refused without huge allocations. The program counts what it
//! allocates, so that these tests have a program of their own, with one test.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use reseed_media::{Error, decode};

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let now = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that a file of a few bytes may allocate.
const MOST: usize = 96 << 20;

/// A lossless WebP file of 16383x16383 pixels without pixels.
fn webp() -> Vec<u8> {
    let sides = 16_382u32 | 16_382 << 14;
    let mut content = vec![0x2f];
    content.extend(sides.to_le_bytes());
    content.extend([0; 177]);
    let mut file = b"RIFF".to_vec();
    file.extend((12 + content.len() as u32).to_le_bytes());
    file.extend(b"WEBPVP8L");
    file.extend((content.len() as u32).to_le_bytes());
    file.extend(content);
    file
}

/// A TIFF file of 8-bit RGB with one strip, whose length in the file is `strip`.
fn tiff(side: u32, strip: u32) -> Vec<u8> {
    let long = |tag: u16, value: u32| (tag, 4u16, 1u32, value);
    let short = |tag: u16, value: u32| (tag, 3, 1, value);
    let entries = [
        long(256, side),
        long(257, side),
        short(258, 8),
        short(259, 5),
        short(262, 1),
        long(273, 8),
        short(277, 1),
        long(278, side),
        long(279, strip),
    ];
    let mut file = b"II*\0\x08\0\0\0".to_vec();
    file.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, count, value) in entries {
        file.extend(tag.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(count.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    file.extend([0; 4]);
    file
}

#[test]
fn small_files_allocate_little() {
    let files = [
        ("webp", webp()),
        ("large.tiff", tiff(16_000, 100)),
        ("strip.tiff", tiff(4_000, u32::MAX - 8)),
        ("small.tiff", tiff(64, 200 << 20)),
    ];
    for (name, file) in files {
        PEAK.store(ALLOCATED.load(Ordering::Relaxed), Ordering::Relaxed);
        let before = PEAK.load(Ordering::Relaxed);
        let error = decode(&file, Path::new(name)).unwrap_err();
        let peak = PEAK.load(Ordering::Relaxed) - before;
        assert!(peak < MOST, "{name}: {peak} bytes for a file of {}: {error}", file.len());
        let expected = matches!(error, Error::Implausible { .. } | Error::Decode { .. });
        assert!(expected && error.to_string().lines().count() == 1, "{name}: {error}");
    }
    let message = decode(&webp(), Path::new("a.webp")).unwrap_err().to_string();
    assert!(message.contains("16383x16383") && message.contains("202 bytes"), "{message}");
}
