#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (reseed_testing::fuzz::Target::named("quantized").run)(bytes));
