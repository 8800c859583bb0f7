//! Loading a file takes little more memory than the file. Alone in its binary: nothing else may allocate meanwhile.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![cfg(target_os = "linux")]

mod common;

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};

use common::formula;
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::{Safetensors, header, write_values};
use reseed_model::{Config, Vae};
use reseed_ops::{CpuOps, DType, Level, Shape};

/// A number of bytes from this process's status.
fn status(key: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    1024 * line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
}

#[test]
fn loading_a_file_takes_little_more_memory_than_the_file() {
    // A quarter of the public checkpoint's widths, which are whole panels of output channels on every machine.
    let config = Config::with_channels(&[32, 64, 128, 128], 32);
    let (source, tensors) = (formula(&config), config.tensors());
    let named: Vec<(&str, Shape)> = tensors.iter().map(|(name, shape)| (name.as_str(), *shape)).collect();
    let metadata = BTreeMap::from([("groups".to_string(), config.groups.to_string())]);
    let mut file = BufWriter::new(tempfile::NamedTempFile::new().unwrap());
    file.write_all(&header(&named, &metadata)).unwrap();
    for (name, _) in &tensors {
        write_values(&mut file, &source.read(name).unwrap()).unwrap();
    }
    let file = file.into_inner().unwrap();
    let size = file.as_file().metadata().unwrap().len() as usize;
    assert!((60_000_000..120_000_000).contains(&size), "a file of {size} bytes");

    let best = Level::available().last().unwrap(); // the reference keeps doubles
    let ops = CpuOps::at(best, DType::F32, Some(2)).unwrap();
    // Forgets the peak so far; where the system refuses, what was held before is small and stays in the account.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = status("VmRSS:");
    let vae = Vae::load(&ops, &Safetensors::open(file.path()).unwrap()).unwrap();
    let peak = status("VmHWM:") - before;
    let after = status("VmRSS:") - before;
    drop(vae);
    let ratio = |bytes: usize| bytes as f64 / size as f64;
    // Merged upsamplers are larger than what they are made of, which makes 1.14; the rest is what one of them needs
    // beside itself while it is merged and packed.
    assert!(ratio(peak) < 1.3, "the peak was {:.2} times the file, {:.2} stayed", ratio(peak), ratio(after));
}
