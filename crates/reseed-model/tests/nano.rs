//! The model inside the library costs nothing until it is used.
#![allow(clippy::unwrap_used)]

use reseed_model::weights::Source;
use reseed_model::{Config, Text, dit, nano};

#[test]
fn it_is_whole_and_small() {
    let (vae, dit) = (nano::vae().unwrap(), nano::dit().unwrap());
    let (pictures, step) = (Config::detect(&vae).unwrap(), dit::Config::detect(&dit).unwrap());
    assert_eq!(pictures.latent, step.latent);
    assert!(Text::within(&dit, step.text_width).unwrap().is_some(), "it brings its text along");
    assert!(nano::VAE.len() + nano::DIT.len() <= 12_000_000, "twelve megabytes of the program at most");
}

/// Bytes that are resident of the mappings which a slice lies in, from `/proc/self/smaps`.
#[cfg(target_os = "linux")]
fn resident(bytes: &[u8]) -> usize {
    let range = bytes.as_ptr() as usize..bytes.as_ptr() as usize + bytes.len();
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut inside, mut total) = (false, 0);
    for line in text.lines() {
        let first = line.split_whitespace().next().unwrap_or("");
        if let Some((start, end)) = first.split_once('-') {
            let address = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            inside = address(start) < range.end && address(end) > range.start;
        } else if let Some(kib) = line.strip_prefix("Rss:").filter(|_| inside) {
            total += kib.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10;
        }
    }
    total
}

/// Says to a test that it runs in a process of its own.
#[cfg(target_os = "linux")]
const ALONE: &str = "RESEED_TEST_ALONE";

#[test]
#[cfg(target_os = "linux")]
fn opening_it_reads_its_header_and_a_tensor_that_is_wanted_itself() {
    // Other tests of this process read the model too.
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "opening_it_reads_its_header_and_a_tensor_that_is_wanted_itself";
        assert!(alone.args(["--exact", name]).env(ALONE, "1").status().unwrap().success());
        return;
    }
    let before = resident(nano::DIT);
    assert!(before < nano::DIT.len() / 2, "{before} bytes of the model are resident before it is opened");
    let dit = nano::dit().unwrap();
    let opened = resident(nano::DIT) - before;
    // The system reads a little around what is touched.
    assert!(opened < 1 << 20, "opening touched {opened} bytes");
    dit.shapes().keys().for_each(|name| drop(dit.read(name).unwrap()));
    assert!(resident(nano::DIT) >= nano::DIT.len(), "reading everything must show");
}
