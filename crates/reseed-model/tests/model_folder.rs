//! Model folders: lookup of the files, and text embeddings in all their formats.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::path::{Path, PathBuf};

use half::bf16;
use reseed_model::dit::{B3, Config};
use reseed_model::weights::safetensors::{header, write_values};
use reseed_model::{ModelFolder, Result, TextEmbedding};
use reseed_ops::Shape;
use reseed_testing::dit::MemoryWeights;
use reseed_testing::torch::{pickle, zip};
use temp_dir::TempDir;

const VALUES: [f32; 6] = [0.5, -1.25, 3.0, 0.0, -0.0078125, 96.0];
const WIDTH: usize = 3;

/// A temporary folder with empty files.
fn folder(names: &[&str]) -> TempDir {
    let folder = temp_dir::TempDir::new().unwrap();
    names.iter().for_each(|name| std::fs::write(folder.path().join(name), b"").unwrap());
    folder
}

/// The error must contain all of `parts`.
fn assert_error<T>(opened: Result<T>, parts: &[&str]) {
    let Err(error) = opened else { panic!("expected an error with {parts:?}") };
    let line = error.to_string();
    assert!(parts.iter().all(|part| line.contains(part)) && !line.contains('\n'), "{line:?} should contain {parts:?}");
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_string()
}

#[test]
fn files_are_found_by_fixed_and_public_names() {
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
        // Fixed names precede public names.
        (
            &["ema_vae_fp16.safetensors", "vae.safetensors", "seedvr2_ema_3b-Q8_0.gguf", "dit.gguf"],
            ["vae.safetensors", "dit.gguf"],
        ),
    ];
    for (names, [vae, dit]) in cases {
        let folder = folder(names);
        let found = ModelFolder::open(folder.path()).unwrap();
        assert_eq!([file_name(&found.vae), file_name(&found.dit)], [vae, dit]);
        let text = names.iter().find(|name| name.starts_with("pos_emb"));
        assert_eq!(found.text.as_deref().map(file_name).as_deref(), text.copied());
    }
}

#[test]
fn errors_name_missing_and_ambiguous_files() {
    assert_error(ModelFolder::open(Path::new("/nonexistent/model")), &["/nonexistent/model: "]);
    assert_error(ModelFolder::open(folder(&["dit.gguf"]).path()), &["lacks its VAE", "vae.safetensors"]);
    assert_error(ModelFolder::open(folder(&["vae.safetensors"]).path()), &["lacks its transformer", "dit.safetensors"]);
    let two = folder(&["vae.safetensors", "seedvr2_ema_3b-Q8_0.gguf", "seedvr2_ema_7b_fp16.safetensors"]);
    assert_error(
        ModelFolder::open(two.path()),
        &["seedvr2_ema_3b-Q8_0.gguf", "seedvr2_ema_7b_fp16.safetensors", "keep one"],
    );
}

/// A tensor `[2, 3]` of [`VALUES`] as saved by PyTorch.
fn saved() -> Vec<u8> {
    let data: Vec<u8> = VALUES.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
    let (pickle, order) = (pickle("BFloat16Storage", 2), &b"little"[..]);
    zip(&[("pos_emb/data.pkl", &pickle), ("pos_emb/byteorder", order), ("pos_emb/data/0", &data)], 0)
}

/// Reads the text embedding of a folder whose transformer file has these `additional` tensors.
fn read_text(
    file: Option<(&str, &[u8])>,
    additional: &[(&str, Shape, Vec<f32>)],
    width: usize,
) -> Result<TextEmbedding> {
    let folder = folder(&["vae.safetensors", "dit.safetensors"]);
    if let Some((name, bytes)) = file {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let mut held = MemoryWeights::new(&Config::tiny(B3, 3), |_, values| values);
    held.path = PathBuf::from("dit.safetensors");
    for (name, shape, values) in additional {
        held.shapes.insert(name.to_string(), *shape);
        held.values.insert(name.to_string(), values.clone());
    }
    ModelFolder::open(folder.path()).unwrap().text(&held, width)
}

fn safetensors(tensors: &[(&str, Shape)]) -> Vec<u8> {
    let mut bytes = header(tensors, &Default::default());
    tensors.iter().for_each(|_| write_values(&mut bytes, &VALUES).unwrap());
    bytes
}

#[test]
fn text_embeddings_are_read_from_every_format() {
    let (matrix, want) = (Shape::from([2, 3]), TextEmbedding { shape: Shape::from([2, 3]), values: VALUES.to_vec() });
    assert_eq!(read_text(Some(("pos_emb.pt", &saved())), &[], WIDTH).unwrap(), want);
    let only = safetensors(&[("whatever", Shape::from([1, 2, 3]))]);
    assert_eq!(read_text(Some(("pos_emb.safetensors", &only)), &[], WIDTH).unwrap(), want);
    let both = safetensors(&[("negative_conditioning", matrix), ("positive_conditioning", matrix)]);
    assert_eq!(read_text(Some(("pos_emb.safetensors", &both)), &[], WIDTH).unwrap(), want);
    let additional = [("positive_conditioning", matrix, VALUES.to_vec())];
    assert_eq!(read_text(None, &additional, WIDTH).unwrap(), want);
}

#[test]
fn text_embedding_errors_name_the_cause() {
    assert_error(read_text(None, &[], WIDTH), &["lacks its text embedding", "pos_emb.pt"]);
    assert_error(read_text(Some(("pos_emb.pt", &saved())), &[], 5120), &["pos_emb.pt", "is [2, 3]", "needs [2, 5120]"]);
    let matrix = Shape::from([2, 3]);
    let two = safetensors(&[("a", matrix), ("b", matrix)]);
    assert_error(read_text(Some(("pos_emb.safetensors", &two)), &[], WIDTH), &["2 tensors", "positive_conditioning"]);
    let assert_invalid = |bytes: &[u8], parts: &[&str]| {
        let parts = [&["pos_emb.pt: not a tensor saved by PyTorch"], parts].concat();
        assert_error(read_text(Some(("pos_emb.pt", bytes)), &[], WIDTH), &parts);
    };
    assert_invalid(b"", &["not a zip file"]);
    assert_invalid(&saved()[..200], &["not a zip file"]);
    let data = [0; 12];
    let file = |pickle: &[u8]| zip(&[("x/data.pkl", pickle), ("x/data/0", &data)], 0);
    assert_invalid(&zip(&[("x/data.pkl", &pickle("BFloat16Storage", 2))], 8), &["no uncompressed data.pkl"]);
    assert_invalid(&zip(&[("x/data.pkl", &pickle("BFloat16Storage", 2))], 0), &["values are missing"]);
    assert_invalid(&file(&pickle("LongStorage", 2)), &["torch LongStorage"]);
    assert_invalid(&file(&pickle("BFloat16Storage", 7)), &["does not match its values"]);
    assert_invalid(&file(b"\x80\x02}q\x00."), &["exactly one tensor"]);
    assert_invalid(&file(&[0x85; 9000]), &["exactly one tensor"]);
}

// Every byte of the file is replaced in turn.
#[test]
fn damaged_pytorch_files_do_not_panic() {
    let (bytes, folder) = (saved(), folder(&["vae.safetensors", "dit.safetensors", "pos_emb.pt"]));
    let (path, dit) = (folder.path().join("pos_emb.pt"), MemoryWeights::new(&Config::tiny(B3, 3), |_, values| values));
    let model = ModelFolder::open(folder.path()).unwrap();
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7F, 0x80, 0xFF, b'(', b't', b'X', b'R'] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            std::fs::write(&path, &bytes).unwrap();
            let _ = model.text(&dit, WIDTH);
        }
    }
}
