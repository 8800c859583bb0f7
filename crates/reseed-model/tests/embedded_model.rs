//! The embedded model: complete, small, and read on request only.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[cfg(target_os = "linux")]
use reseed_model::weights::Source;
use reseed_model::{Config, TextEmbedding, dit, nano};

#[test]
fn embedded_model_is_complete_and_at_most_16_megabytes() {
    let (vae, dit) = (nano::vae().unwrap(), nano::dit().unwrap());
    let (vae_config, dit_config) = (Config::detect(&vae).unwrap(), dit::Config::detect(&dit).unwrap());
    assert_eq!(vae_config.latent, dit_config.latent);
    assert!(
        TextEmbedding::from_weights(&dit, dit_config.text_width).unwrap().is_some(),
        "it includes the text embedding"
    );
    assert!(nano::VAE.len() + nano::DIT.len() <= 16_000_000, "at most 16 MB of the binary");
}

/// Resident bytes of the mappings that contain a slice, from `/proc/self/smaps`.
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

/// Environment variable of the child process that runs the test alone.
#[cfg(target_os = "linux")]
const ALONE: &str = "RESEED_TEST_ALONE";

#[test]
#[cfg(target_os = "linux")]
fn opening_reads_only_the_header() {
    // Other tests of this process also read the model, so the test runs in a child process.
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "opening_reads_only_the_header";
        assert!(alone.args(["--exact", name]).env(ALONE, "1").status().unwrap().success());
        return;
    }
    let before = resident(nano::DIT);
    assert!(before < nano::DIT.len() / 2, "{before} bytes of the model are resident before it is opened");
    let dit = nano::dit().unwrap();
    let opened = resident(nano::DIT) - before;
    // The system also reads pages near the touched ones.
    assert!(opened < 1 << 20, "opening touched {opened} bytes");
    dit.shapes().keys().for_each(|name| drop(dit.read(name).unwrap()));
    assert!(resident(nano::DIT) >= nano::DIT.len(), "all pages must be resident after reading all tensors");
}
