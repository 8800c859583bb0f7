//! Loading a file takes little more memory than the file. Alone in its binary: nothing else may allocate meanwhile.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![cfg(target_os = "linux")]

use std::io::{BufWriter, Write};

use half::{bf16, f16};
use reseed_cpu::{CpuOps, Level};
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::Safetensors;
use reseed_model::{Config, Vae};
use reseed_ops::DType;
use reseed_testing::formula;
use tempfile::NamedTempFile;

/// A number of bytes from this process's status.
fn status(key: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    1024 * line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
}

/// Writes the public checkpoint's tensors from the formula, each value as `bytes` makes it.
fn checkpoint<const N: usize>(dtype: &str, bytes: fn(f32) -> [u8; N]) -> NamedTempFile {
    let config = Config::full();
    let (source, tensors) = (formula(&config), config.tensors());
    let mut file = BufWriter::new(NamedTempFile::new().unwrap());
    let mut start = 0;
    let mut entries = serde_json::Map::new();
    for (name, shape) in &tensors {
        let end = start + N * shape.count();
        let entry = serde_json::json!({"dtype": dtype, "shape": shape.dims(), "data_offsets": [start, end]});
        entries.insert(name.clone(), entry);
        start = end;
    }
    let header = serde_json::Value::Object(entries).to_string();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    for (name, _) in &tensors {
        for values in source.read(name).unwrap().chunks(1 << 16) {
            file.write_all(&values.iter().flat_map(|&value| bytes(value)).collect::<Vec<u8>>()).unwrap();
        }
    }
    file.into_inner().unwrap()
}

/// Most bytes that loading takes and bytes that stay, as parts of the file's size.
fn load(file: &NamedTempFile) -> [f64; 2] {
    let size = file.as_file().metadata().unwrap().len() as f64;
    let best = Level::available().last().unwrap(); // the reference keeps doubles
    let ops = CpuOps::at(best, DType::F32, Some(2)).unwrap();
    // Forgets the peak so far; where the system refuses, an earlier and larger one would fail the test.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = status("VmRSS:");
    let vae = Vae::load(&ops, &Safetensors::open(file.path()).unwrap()).unwrap();
    let (peak, after) = (status("VmHWM:") - before, status("VmRSS:") - before);
    drop(vae);
    [peak, after].map(|bytes| bytes as f64 / size)
}

#[test]
fn loading_a_file_takes_little_more_memory_than_the_file() {
    // On a thread of its own, whose freed memory the loader cannot use.
    let write = |dtype: &'static str| {
        let file = std::thread::spawn(move || match dtype {
            "F16" => checkpoint(dtype, |v| f16::from_f32(v).to_le_bytes()),
            "BF16" => checkpoint(dtype, |v| bf16::from_f32(v).to_le_bytes()),
            _ => checkpoint(dtype, f32::to_le_bytes),
        });
        file.join().unwrap()
    };
    for dtype in ["F16", "BF16", "F32"] {
        let file = write(dtype);
        let [peak, after] = load(&file);
        // Merged upsamplers are larger than what they are made of: 1.26 of a file of 16 bits, 1.10 of one of 32.
        assert!(peak < 1.3, "{dtype}: the peak was {peak:.2} times the file, {after:.2} stayed");
    }
}
