//! Model folders, and the text embeddings in them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::{Path, PathBuf};

use half::bf16;
use reseed_model::dit::{B3, Config};
use reseed_model::weights::safetensors::{header, write_values};
use reseed_model::weights::torch;
use reseed_model::{Folder, Result, Text};
use reseed_ops::Shape;
use reseed_testing::dit::MemoryWeights;
use tempfile::TempDir;

const VALUES: [f32; 6] = [0.5, -1.25, 3.0, 0.0, -0.0078125, 96.0];
const WIDTH: usize = 3;

/// A folder of empty files.
fn folder(names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    names.iter().for_each(|name| std::fs::write(folder.path().join(name), b"").unwrap());
    folder
}

fn assert_refused<T>(opened: Result<T>, parts: &[&str]) {
    let Err(error) = opened else { panic!("should be refused: {parts:?}") };
    let line = error.to_string();
    assert!(parts.iter().all(|part| line.contains(part)) && !line.contains('\n'), "{line:?} should say {parts:?}");
}

fn named(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_string()
}

#[test]
fn files_are_found_under_our_names_and_under_public_ones() {
    let cases = [
        (&["vae.safetensors", "dit.safetensors", "pos_emb.pt"][..], ["vae.safetensors", "dit.safetensors"]),
        (&["vae.safetensors", "dit.gguf"], ["vae.safetensors", "dit.gguf"]),
        (
            &["ema_vae_fp16.safetensors", "seedvr2_ema_3b_fp8_e4m3fn.safetensors", "pos_emb.safetensors", "README.md"],
            ["ema_vae_fp16.safetensors", "seedvr2_ema_3b_fp8_e4m3fn.safetensors"],
        ),
        (
            &["ema_vae_fp16.safetensors", "seedvr2_ema_7b_sharp-Q4_K_M.gguf", "neg_emb.pt"],
            ["ema_vae_fp16.safetensors", "seedvr2_ema_7b_sharp-Q4_K_M.gguf"],
        ),
        // A name of ours goes before any other.
        (
            &["ema_vae_fp16.safetensors", "vae.safetensors", "seedvr2_ema_3b-Q8_0.gguf", "dit.gguf"],
            ["vae.safetensors", "dit.gguf"],
        ),
    ];
    for (names, [vae, dit]) in cases {
        let folder = folder(names);
        let found = Folder::open(folder.path()).unwrap();
        assert_eq!([named(&found.vae), named(&found.dit)], [vae, dit]);
        let text = names.iter().find(|name| name.starts_with("pos_emb"));
        assert_eq!(found.text.as_deref().map(named).as_deref(), text.copied());
    }
}

#[test]
fn a_folder_that_lacks_something_says_what() {
    assert_refused(Folder::open(Path::new("/nonexistent/model")), &["/nonexistent/model: "]);
    assert_refused(Folder::open(folder(&["dit.gguf"]).path()), &["lacks its VAE", "vae.safetensors"]);
    assert_refused(Folder::open(folder(&["vae.safetensors"]).path()), &["lacks its transformer", "dit.safetensors"]);
    let two = folder(&["vae.safetensors", "seedvr2_ema_3b-Q8_0.gguf", "seedvr2_ema_7b_fp16.safetensors"]);
    assert_refused(
        Folder::open(two.path()),
        &["seedvr2_ema_3b-Q8_0.gguf", "seedvr2_ema_7b_fp16.safetensors", "leave one"],
    );
}

/// What PyTorch writes for a tensor `[rows, 3]`: its description, and its entries without compression.
fn pickle(storage: &str, rows: u8) -> Vec<u8> {
    let mut to = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x00((X\x07\x00\x00\x00storageq\x01ctorch\n".to_vec();
    to.extend(storage.as_bytes());
    to.extend(b"\nq\x02X\x01\x00\x00\x000q\x03X\x03\x00\x00\x00cpuq\x04J\x06\x00\x00\x00tq\x05QK\x00K");
    to.extend([rows]);
    to.extend(b"K\x03\x86q\x06K\x03K\x01\x86q\x07\x89ccollections\nOrderedDict\nq\x08)Rq\x09tq\x0aRq\x0b.");
    to
}

fn zip(entries: &[(&str, &[u8])], method: u8) -> Vec<u8> {
    let (mut to, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in entries {
        let at = (to.len() as u32).to_le_bytes();
        let (size, letters) = ((data.len() as u32).to_le_bytes(), (name.len() as u16).to_le_bytes());
        // As PyTorch does: sizes only in the directory, and an extra field that aligns the data.
        to.extend(b"PK\x03\x04\x00\x00\x08\x08");
        to.extend([method, 0]);
        to.extend([0; 16]);
        to.extend(letters);
        to.extend(7u16.to_le_bytes());
        to.extend(name.as_bytes());
        to.extend(b"FB\x03\x00ZZZ");
        to.extend(*data);
        directory.extend(b"PK\x01\x02\x00\x00\x00\x00\x08\x08");
        directory.extend([method, 0]);
        directory.extend([0; 8]);
        directory.extend([size, size].concat());
        directory.extend(letters);
        directory.extend([0; 12]);
        directory.extend(at);
        directory.extend(name.as_bytes());
    }
    let (start, count) = (to.len() as u32, (entries.len() as u16).to_le_bytes());
    to.extend(&directory);
    to.extend(b"PK\x05\x06\x00\x00\x00\x00");
    to.extend([count, count].concat());
    to.extend((directory.len() as u32).to_le_bytes());
    to.extend(start.to_le_bytes());
    to.extend([0, 0]);
    to
}

fn saved() -> Vec<u8> {
    let data: Vec<u8> = VALUES.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
    let (pickle, order) = (pickle("BFloat16Storage", 2), &b"little"[..]);
    zip(&[("pos_emb/data.pkl", &pickle), ("pos_emb/byteorder", order), ("pos_emb/data/0", &data)], 0)
}

/// The text of a folder whose transformer holds these tensors beside the network's.
fn text_of(file: Option<(&str, &[u8])>, beside: &[(&str, Shape, Vec<f32>)], width: usize) -> Result<Text> {
    let folder = folder(&["vae.safetensors", "dit.safetensors"]);
    if let Some((name, bytes)) = file {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let mut held = MemoryWeights::new(&Config::tiny(B3, 3), |_, values| values);
    held.path = PathBuf::from("dit.safetensors");
    for (name, shape, values) in beside {
        held.shapes.insert(name.to_string(), *shape);
        held.values.insert(name.to_string(), values.clone());
    }
    Folder::open(folder.path()).unwrap().text(&held, width)
}

fn safetensors(tensors: &[(&str, Shape)]) -> Vec<u8> {
    let mut bytes = header(tensors, &Default::default());
    tensors.iter().for_each(|_| write_values(&mut bytes, &VALUES).unwrap());
    bytes
}

#[test]
fn text_comes_from_any_of_its_places() {
    let (matrix, want) = (Shape::from([2, 3]), Text { shape: Shape::from([2, 3]), values: VALUES.to_vec() });
    assert_eq!(text_of(Some(("pos_emb.pt", &saved())), &[], WIDTH).unwrap(), want);
    let only = safetensors(&[("whatever", Shape::from([1, 2, 3]))]);
    assert_eq!(text_of(Some(("pos_emb.safetensors", &only)), &[], WIDTH).unwrap(), want);
    let both = safetensors(&[("negative_conditioning", matrix), ("positive_conditioning", matrix)]);
    assert_eq!(text_of(Some(("pos_emb.safetensors", &both)), &[], WIDTH).unwrap(), want);
    let beside = [("positive_conditioning", matrix, VALUES.to_vec())];
    assert_eq!(text_of(None, &beside, WIDTH).unwrap(), want);
}

#[test]
fn text_that_cannot_be_used_says_why() {
    assert_refused(text_of(None, &[], WIDTH), &["lacks its text embedding", "pos_emb.pt"]);
    assert_refused(text_of(Some(("pos_emb.pt", &saved())), &[], 5120), &["pos_emb.pt", "is [2, 3]", "needs [2, 5120]"]);
    let matrix = Shape::from([2, 3]);
    let two = safetensors(&[("a", matrix), ("b", matrix)]);
    assert_refused(text_of(Some(("pos_emb.safetensors", &two)), &[], WIDTH), &["2 tensors", "positive_conditioning"]);
    let refused = |bytes: &[u8], parts: &[&str]| {
        let parts = [&["pos_emb.pt: not a tensor saved by PyTorch"], parts].concat();
        assert_refused(text_of(Some(("pos_emb.pt", bytes)), &[], WIDTH), &parts);
    };
    refused(b"", &["no zip file"]);
    refused(&saved()[..200], &["no zip file"]);
    let data = [0; 12];
    let file = |pickle: &[u8]| zip(&[("x/data.pkl", pickle), ("x/data/0", &data)], 0);
    refused(&zip(&[("x/data.pkl", &pickle("BFloat16Storage", 2))], 8), &["without compression"]);
    refused(&zip(&[("x/data.pkl", &pickle("BFloat16Storage", 2))], 0), &["values are missing"]);
    refused(&file(&pickle("LongStorage", 2)), &["torch LongStorage"]);
    refused(&file(&pickle("BFloat16Storage", 7)), &["do not belong together"]);
    refused(&file(b"\x80\x02}q\x00."), &["something other than one tensor"]);
    refused(&file(&[0x85; 9000]), &["something other than one tensor"]);
}

// No byte of the file may bring the reader down.
#[test]
fn a_damaged_file_of_pytorch_does_no_harm() {
    let (bytes, folder) = (saved(), tempfile::tempdir().unwrap());
    let path = folder.path().join("pos_emb.pt");
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7F, 0x80, 0xFF, b'(', b't', b'X', b'R'] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            std::fs::write(&path, &bytes).unwrap();
            let _ = torch::read(&path);
        }
    }
}
