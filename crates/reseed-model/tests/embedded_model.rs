//! The embedded model: complete, small, and the same bytes as the trained files.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use reseed_model::weights::Source;
use reseed_model::{Config, TextEmbedding, dit, nano};
use ring::digest::{SHA256, digest};

#[test]
fn embedded_model_is_complete_and_at_most_16_megabytes() {
    let (vae, dit) = (nano::vae().unwrap(), nano::dit().unwrap());
    let (vae_config, dit_config) = (Config::detect(&vae).unwrap(), dit::Config::detect(&dit).unwrap());
    assert_eq!(vae_config.latent, dit_config.latent);
    assert!(
        TextEmbedding::from_weights(&dit, dit_config.text_width).unwrap().is_some(),
        "it includes the text embedding"
    );
    assert_eq!(nano::BYTES, nano::vae_file().len() + nano::dit_file().len());
    assert_eq!(nano::SHARP_BYTES, nano::sharp_file().len());
    let packed: usize = nano::packed(true).into_iter().map(<[u8]>::len).sum();
    assert!(packed <= 16_000_000, "{packed} bytes of the program, at most 16 MB");
}

#[test]
fn sharp_replaces_the_fine_levels_of_the_decoder_and_nothing_else() {
    let (base, sharp) = (nano::vae().unwrap(), nano::sharp_vae().unwrap());
    let fine = ["decoder.up_blocks.2.", "decoder.up_blocks.3.", "decoder.conv_norm_out.", "decoder.conv_out."];
    assert!(sharp.by.shapes().iter().all(|(name, shape)| base.shapes().get(name) == Some(shape)), "other tensors");
    for name in base.shapes().keys() {
        let replaced = sharp.by.shapes().contains_key(name);
        assert_eq!(replaced, fine.iter().any(|part| name.starts_with(part)), "{name}");
        let same = base.read(name).unwrap() == sharp.read(name).unwrap();
        assert!(same || replaced, "{name} differs");
        assert!(!(same && replaced && name.ends_with("conv1.weight")), "{name} is the same");
    }
}

/// Results depend on these bytes. After training, `sha256sum` of the exported files gives the new hashes.
#[test]
fn unpacked_files_are_those_that_were_trained() {
    for (file, sha256) in [
        (nano::vae_file(), "a1eb74b77be249de752908e5419c12c1b3dc24d0097510a6f631f0641200616b"),
        (nano::sharp_file(), "13a74ee6b800e19191a36a63aac0e6ec086f8e5cf9b46bdf391c617f5ddf7bd0"),
        (nano::dit_file(), "ca42a03ae6fe6ec8d780a651d13696f45b7827a62420b457ffdd738b45e1bb5f"),
    ] {
        let found: String = digest(&SHA256, &file).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, sha256, "files changed: run `tools/nano pack`, and write their hashes here");
    }
}
