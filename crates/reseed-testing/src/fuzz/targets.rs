//! Entry functions: each parses bytes as one format, uses what it gets, and checks that errors are one line.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use reseed::internals::noise::Noise;
use reseed::internals::read_journal;
use reseed_media::internals as media;
use reseed_media::video::JOB_FILE;
use reseed_model::weights::Source;
use reseed_model::{Config, Dit, Vae, dit, internals};
use reseed_ops::{DType, Thw, TraceOps};
use temp_dir::TempDir;

use super::{Mutation, Target, seeds};
use crate::files::TempFile;

/// All targets. The numbers of inputs give each a similar part of a minute.
pub const TARGETS: &[Target] = &[
    target("safetensors", safetensors, Mutation::Safetensors, 60_000, seeds::safetensors),
    target("quantized", quantized, Mutation::Safetensors, 30_000, seeds::quantized),
    target("gguf", gguf, Mutation::Bytes, 100_000, seeds::gguf),
    target("torch", torch, Mutation::Bytes, 200_000, seeds::torch),
    target("vae_config", vae_config, Mutation::Safetensors, 15_000, seeds::vae_config),
    target("dit_config", dit_config, Mutation::Safetensors, 15_000, seeds::dit_config),
    target("noise", noise, Mutation::Safetensors, 15_000, seeds::noise),
    target("journal", journal, Mutation::JsonLines, 15_000, seeds::journal),
    target("y4m", y4m_stream, Mutation::Bytes, 60_000, seeds::y4m),
    target("ffprobe", ffprobe, Mutation::Json, 60_000, seeds::ffprobe),
    image_target("png", Mutation::Png, 60_000, seeds::png),
    image_target("jpeg", Mutation::Bytes, 30_000, seeds::jpeg),
    image_target("webp", Mutation::Bytes, 30_000, seeds::webp),
    image_target("tiff", Mutation::Bytes, 60_000, seeds::tiff),
];

const fn target(
    name: &'static str,
    run: fn(&[u8]),
    mutation: Mutation,
    inputs: usize,
    seeds: fn() -> Vec<Vec<u8>>,
) -> Target {
    Target { name, run, mutation, inputs, memory: 64 << 20, seeds }
}

/// A target whose inputs are images: a small file may hold one of 32 MiB, and its conversions are larger.
const fn image_target(name: &'static str, mutation: Mutation, inputs: usize, seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { memory: 512 << 20, ..target(name, image, mutation, inputs, seeds) }
}

/// The value, or `None` after a check of the error.
fn checked<T>(result: Result<T, impl Display>) -> Option<T> {
    let line = match result {
        Ok(value) => return Some(value),
        Err(error) => error.to_string(),
    };
    assert!(!line.is_empty() && line.lines().count() == 1 && line.len() < 4096, "not one line: {line:?}");
    None
}

/// Reads every tensor.
fn read_all(source: &dyn Source) {
    for (name, shape) in source.shapes() {
        if let Some(values) = checked(source.read(name)) {
            assert_eq!(values.len(), shape.count(), "`{name}`");
        }
        if let Some(numbers) = checked(source.numbers(name)) {
            assert_eq!(numbers.floats().len(), shape.count(), "`{name}`");
        }
    }
}

fn safetensors(bytes: &[u8]) {
    if let Some(file) = checked(internals::safetensors(bytes.to_vec())) {
        read_all(&file);
    }
}

/// Scales and descriptions are read as a quantised file; a transformer among them is loaded.
fn quantized(bytes: &[u8]) {
    if let Some(file) = checked(internals::quantized(bytes.to_vec())) {
        read_all(&file);
        if checked(dit::Config::detect(&file)).is_some() {
            checked(Dit::load(&trace(), &file));
        }
    }
}

fn gguf(bytes: &[u8]) {
    if let Some(file) = checked(internals::gguf(bytes.to_vec())) {
        read_all(&file);
    }
}

fn torch(bytes: &[u8]) {
    if let Some((shape, values)) = checked(internals::torch(bytes)) {
        assert_eq!(values.len(), shape.count());
    }
}

fn trace() -> TraceOps {
    TraceOps::new(DType::F32, DType::F32, Box::new(|_| 0))
}

fn vae_config(bytes: &[u8]) {
    let Some(file) = checked(internals::safetensors(bytes.to_vec())) else { return };
    let Some(config) = checked(Config::detect(&file)) else { return };
    assert!(config.spatial_factor() > 0 && config.temporal_factor() > 0);
    checked(Vae::load(&trace(), &file));
}

fn dit_config(bytes: &[u8]) {
    let file: Option<Box<dyn Source>> = match bytes.starts_with(b"GGUF") {
        true => checked(internals::gguf(bytes.to_vec())).map(|file| Box::new(file) as Box<dyn Source>),
        false => checked(internals::safetensors(bytes.to_vec())).map(|file| Box::new(file) as Box<dyn Source>),
    };
    let Some(file) = file else { return };
    if checked(dit::Config::detect(&*file)).is_some() {
        checked(Dit::load(&trace(), &*file));
    }
}

/// Writes a file in place of another. Some file systems wait for the disk when a file is truncated and written again.
fn write_new(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
}

/// A noise file is read from disk.
fn noise(bytes: &[u8]) {
    thread_local!(static FILE: TempFile = TempFile::new());
    FILE.with(|file| {
        write_new(file.path(), bytes);
        let Some(noise) = checked(Noise::open(file.path())) else { return };
        for batch in 0..2 {
            checked(noise.draw(batch, Thw::new(2, 3, 4), 4, batch == 1));
        }
    });
}

/// A journal is a file in a folder, with the frames that later batches may change beside it.
fn journal(bytes: &[u8]) {
    thread_local!(static FOLDER: TempDir = TempDir::new().unwrap());
    FOLDER.with(|folder| {
        fs::create_dir_all(folder.path()).unwrap();
        write_new(&folder.path().join(JOB_FILE), bytes);
        write_new(&folder.path().join("held-2"), &[0; 64]);
        checked(read_journal(folder.path(), 4));
    });
}

fn y4m_stream(bytes: &[u8]) {
    for open in [media::y4m_pipe, media::y4m_file] {
        let Some(mut reader) = checked(open(bytes.to_vec())) else { continue };
        let pixels = reader.info().size.pixels();
        while let Some(Some(frame)) = checked(reader.next()) {
            assert_eq!(frame.samples.len() % pixels, 0);
        }
    }
}

fn ffprobe(bytes: &[u8]) {
    if let Some(info) = media::ffprobe(bytes).and_then(checked) {
        assert!(info.size.is_plausible() && info.rate.num > 0 && info.rate.den > 0, "{info:?}");
    }
}

fn image(bytes: &[u8]) {
    if let Some(frame) = checked(reseed_media::decode(bytes, Path::new("input"))) {
        assert_eq!(frame.samples.len() % frame.size.pixels(), 0);
        assert!(frame.alpha.is_none_or(|alpha| alpha.len() == frame.size.pixels()));
    }
}
