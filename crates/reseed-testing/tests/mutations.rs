//! Every parser on a fixed sequence of mutated inputs: no panic, no large allocation, no long run, errors of one line.
//!
//! `RESEED_MUTATIONS` multiplies the number of inputs and `RESEED_SEED` gives other ones (`just mutations`). The same
//! entry functions run under libFuzzer with `just fuzz`.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a panic fails the test, which prints what it found")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use reseed_testing::fuzz::{Random, Target};

/// An upper guard: an input that takes longer counts as a hang.
const LONGEST: Duration = Duration::from_secs(20);

/// Counts the live bytes of each thread.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // A thread that ends has no counters any more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The inputs that run now, and since when.
static RUNNING: Mutex<Vec<(&'static str, Instant, Vec<u8>)>> = Mutex::new(Vec::new());

/// Saves an input for a unit test.
fn save(name: &str, input: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("reseed-fuzz-{name}-{}", std::process::id()));
    std::fs::write(&path, input).unwrap();
    path
}

/// Aborts when an input runs for too long.
fn watch() {
    static START: Once = Once::new();
    START.call_once(|| {
        thread::spawn(|| {
            loop {
                thread::sleep(Duration::from_secs(1));
                let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((name, _, input)) = running.iter().find(|(_, start, _)| start.elapsed() > LONGEST) {
                    eprintln!("{name}: an input runs for more than {LONGEST:?}: {}", save(name, input).display());
                    std::process::abort();
                }
            }
        });
    });
}

/// Runs one input and returns why it failed.
fn run(target: &Target, input: &[u8]) -> Option<String> {
    let note = |input: Option<&[u8]>| {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|(name, ..)| *name != target.name);
        running.extend(input.map(|input| (target.name, Instant::now(), input.to_vec())));
    };
    note(Some(input));
    let before = LIVE.get();
    PEAK.set(before);
    let done = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let peak = (PEAK.get() - before) as usize;
    note(None);
    match done {
        Err(_) => Some("a panic".into()),
        Ok(()) if peak > target.memory => Some(format!("{peak} bytes allocated, at most {} expected", target.memory)),
        Ok(()) => None,
    }
}

fn setting(name: &str) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(1)
}

fn mutate(name: &str) {
    watch();
    let (target, corpus) = (Target::named(name), Target::named(name).corpus());
    assert!(!corpus.is_empty(), "{name}: no corpus");
    let seed = setting("RESEED_SEED");
    let mut random = Random::new(seed as u64);
    let check = |what: String, input: &[u8]| {
        if let Some(problem) = run(target, input) {
            panic!("{name}, {what}: {problem}; the input is {}", save(name, input).display());
        }
    };
    corpus.iter().enumerate().for_each(|(i, input)| check(format!("input {i} of the corpus"), input));
    for i in 0..target.inputs * setting("RESEED_MUTATIONS") {
        let input = target.mutation.apply(&corpus[random.below(corpus.len())], &mut random);
        check(format!("mutation {i} of seed {seed}"), &input);
    }
}

/// One test per target.
macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            mutate(stringify!($name));
        })*

        #[test]
        fn every_target_has_a_test() {
            let names: Vec<&str> = reseed_testing::fuzz::TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

targets!(safetensors quantized gguf torch vae_config dit_config noise journal y4m ffprobe png jpeg webp tiff);

/// Every target runs under libFuzzer too.
#[test]
fn every_target_has_a_libfuzzer_program() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for target in reseed_testing::fuzz::TARGETS {
        let program = std::fs::read_to_string(folder.join(format!("fuzz_targets/{}.rs", target.name)));
        assert!(program.is_ok_and(|text| text.contains(&format!("\"{}\"", target.name))), "{}", target.name);
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
    }
}
