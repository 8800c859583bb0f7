//! Crafted model files: every command ends with exit code 4 and one line, at once and without large allocations.
#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{Lab, Tensor, slashes};
use reseed_media::Size;
use reseed_model::{Config, dit};
use reseed_testing::files::SafetensorsBuilder;
use reseed_testing::quantized::{StoredFormat, StoredTensor, file, transformer};

const MODEL: i32 = 4;

/// A rotation in groups of no values.
const ZERO_GROUP: &str = r#"{"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 0}"#;

/// Commands that load `model/vae.safetensors`, alone or with its transformer.
const COMMANDS: [&str; 7] = [
    "upscale in.y4m out.y4m --model model --scale 1",
    "image in.png out.png --model model",
    "vae roundtrip in.y4m out.y4m --weights model/vae.safetensors",
    "vae encode in out --weights model/vae.safetensors",
    "vae decode latent out --weights model/vae.safetensors",
    "estimate upscale in.y4m --model model",
    "estimate vae encode --size 16x16 --weights model/vae.safetensors",
];

/// A folder with inputs for all commands, and a model whose VAE has this configuration.
fn lab(vae: &Config) -> Lab {
    let lab = Lab::new();
    let size = Size { h: 16, w: 16 };
    lab.write_frames("in.y4m", size, 1);
    lab.write_frames("in.png", size, 1);
    lab.input("in", &Tensor::uniform(&[1, vae.image, 16, 16]));
    lab.input("latent", &Tensor::uniform(&[1, vae.latent, 2, 2]));
    fs::create_dir(lab.path("model")).unwrap();
    fs::copy(SafetensorsBuilder::new(vae).write().path(), lab.path("model/vae.safetensors")).unwrap();
    let dit = dit::Config::tiny(dit::B3, 3).tensors();
    let dit: Vec<(String, Tensor)> = dit.into_iter().map(|(name, shape)| (name, zeros(shape.dims()))).collect();
    let dit: Vec<(&str, &Tensor)> = dit.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    lab.write("model/dit.safetensors", &dit, &[]);
    lab.write("model/pos_emb.safetensors", &[("positive_conditioning", &zeros(&[1, 96]))], &[]);
    lab
}

fn zeros(dims: &[usize]) -> Tensor {
    Tensor { dims: dims.into(), values: vec![0.0; dims.iter().product()] }
}

/// Runs all commands, each of which must end with one line that contains `needed`.
fn refused(vae: &Config, needed: &str) {
    let lab = lab(vae);
    let before = lab.names();
    for args in COMMANDS {
        let outcome = lab.run(args);
        let line = &outcome.stderr;
        assert_eq!(outcome.code, Some(MODEL), "reseed {args}: {line}");
        assert!(line.starts_with("reseed: ") && line.lines().count() == 1, "reseed {args}: {line}");
        assert!(slashes(line).contains("model/vae.safetensors: ") && line.contains(needed), "reseed {args}: {line}");
        assert_eq!(lab.names(), before, "reseed {args} left files");
    }
}

/// A VAE of one channel per level that is complete in itself.
fn deep(levels: usize) -> Config {
    Config { layers: 1, decoder_layers: 1, ..Config::with_channels(&vec![1; levels], 1) }
}

#[test]
fn a_vae_of_many_levels_is_refused() {
    for levels in [20, 33, 65] {
        refused(&deep(levels), &format!("{levels} levels; at most 8 are supported"));
    }
}

#[test]
fn a_vae_of_another_family_is_refused_before_planning() {
    for levels in [1, 3, 8] {
        let temporal_stages = (levels - 1).min(2);
        refused(&Config { temporal_stages, ..deep(levels) }, "not a VAE of this family");
    }
    for image in [1, 2, 4] {
        refused(&Config { image, ..Config::tiny() }, "not a VAE of this family");
    }
    refused(&Config { temporal_stages: 0, ..Config::tiny() }, "not a VAE of this family");
}

/// One channel per level, and one latent channel, are strange but consistent.
#[test]
fn a_vae_of_one_channel_runs() {
    let lab = lab(&Config { latent: 1, ..deep(4) });
    lab.succeed("vae roundtrip in.y4m out.y4m --weights model/vae.safetensors");
    let outcome = lab.run("upscale in.y4m out2.y4m --model model --scale 1");
    assert_eq!(outcome.code, Some(MODEL), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("1 latent channels") && outcome.stderr.lines().count() == 1, "{}", outcome.stderr);
}

/// Quantised transformers with damaged descriptions or scales, or in another format.
#[test]
fn damaged_quantised_transformers_are_refused() {
    let lab = lab(&Config::tiny());
    let config = dit::Config::tiny(dit::B3, 3);
    let (tensors, _) = transformer(&config, StoredFormat::Nvfp4, |name| name.starts_with("blocks."));
    let write = |tensors: &[StoredTensor]| fs::write(lab.path("model/dit.safetensors"), file(tensors, &[])).unwrap();
    write(&tensors);
    lab.succeed("upscale in.y4m good.y4m --model model --scale 1");
    let base = "blocks.1.mlp.vid.proj_out";
    let refused = |end: &str, needed: &str, change: &dyn Fn(&mut StoredTensor)| {
        let mut tensors = tensors.clone();
        change(tensors.iter_mut().find(|tensor| tensor.name == format!("{base}{end}")).unwrap());
        write(&tensors);
        for args in ["upscale in.y4m out.y4m --model model --scale 1", "image in.png out.png --model model"] {
            let outcome = lab.run(args);
            let line = &outcome.stderr;
            assert_eq!(outcome.code, Some(MODEL), "reseed {args}: {line}");
            assert!(line.starts_with("reseed: ") && line.lines().count() == 1, "reseed {args}: {line}");
            assert!(
                slashes(line).contains("model/dit.safetensors: ") && line.contains(needed),
                "reseed {args}: {line}"
            );
        }
    };
    let described =
        |text: &'static str| move |tensor: &mut StoredTensor| *tensor = StoredTensor::description(base, text);
    refused(".comfy_quant", "quantised as mxfp4, which is not supported", &described(r#"{"format": "mxfp4"}"#));
    refused(".comfy_quant", "it names no format", &described("{}"));
    refused(".comfy_quant", "group size is 0", &described(ZERO_GROUP));
    refused(".weight_scale_2", "it is missing, and NVFP4 needs it", &|tensor| tensor.name = "other".into());
    refused(".weight_scale_2", "scale 0 is NaN", &|tensor| tensor.bytes = f32::NAN.to_le_bytes().into());
    refused(".weight_scale", "needs [256, 48]", &|tensor| tensor.dims = vec![48, 256]);
    refused(".weight_scale", "scale 3 is NaN", &|tensor| tensor.bytes[3] = 0x7F);
    refused(".weight", "NF4 (bitsandbytes)", &|tensor| tensor.name += ".quant_state.bitsandbytes__nf4");
    let mut short = file(&tensors, &[]);
    short.pop();
    fs::write(lab.path("model/dit.safetensors"), short).unwrap();
    let outcome = lab.run("upscale in.y4m out.y4m --model model --scale 1");
    assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(MODEL), 1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("cut short or damaged"), "{}", outcome.stderr);
}
