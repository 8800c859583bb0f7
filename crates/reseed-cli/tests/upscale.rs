//! `reseed upscale` and `reseed image`: the output has the kind of the input.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Stdio;

use crate::common::{Lab, Tensor, frames, outcome, smooth_frame};
use reseed_media::{Frame, Info, Kind, Samples, Size};
use reseed_model::weights::Source;
use reseed_model::weights::formula::Formula;
use reseed_model::{Config, dit};
use reseed_testing::pipeline::{PipelineGolden, golden_path};
use serde_json::Value;

const SMALL: Size = Size { h: 18, w: 26 };

/// Writes a model folder for a golden test.
fn write_model(lab: &Lab, golden: &PipelineGolden) {
    fs::create_dir(lab.path("model")).unwrap();
    let write = |file: &str, source: &dyn Source, metadata: &[(&str, &str)]| {
        let tensor = |name: &String| {
            let dims = source.shapes()[name].dims().to_vec();
            (name.clone(), Tensor { dims, values: source.read(name).unwrap() })
        };
        let tensors: Vec<(String, Tensor)> = source.shapes().keys().map(tensor).collect();
        let tensors: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        lab.write(file, &tensors, metadata);
    };
    let vae = Config::tiny();
    write("model/vae.safetensors", &Formula::new(vae.tensors(), vae.groups, 1), &[("groups", "4")]);
    let layout = if golden.case["dit"]["kind"] == "3b" { dit::B3 } else { dit::B7 };
    write("model/dit.safetensors", &Formula::plain(dit::Config::tiny(layout, 4).tensors(), 1), &[]);
    let text = golden.tensor("text");
    let text = Tensor { dims: text.dims.clone(), values: text.values.clone() };
    lab.write("model/pos_emb.safetensors", &[("positive_conditioning", &text)], &[]);
}

/// Runs a golden test from a folder of images and counts the sample values that differ.
fn golden_differences(name: &str, options: &str) -> usize {
    let lab = Lab::new();
    let golden = PipelineGolden::open(name);
    write_model(&lab, &golden);
    let inputs = golden.frames("frames");
    let names = (0..inputs.len()).map(|i| format!("{i}.png").into()).collect();
    let alpha = inputs[0].alpha.is_some();
    let (info, _) = lab.write_frames("clip.y4m", inputs[0].size, 1);
    let info = Info { kind: Kind::Folder, names, alpha, ..info };
    let mut sink = reseed_media::create(&lab.path("in"), &info).unwrap();
    inputs.iter().for_each(|frame| sink.write(frame).unwrap());
    sink.finish().unwrap();

    let noise = golden_path(&format!("{name}.safetensors"));
    lab.succeed(&format!("upscale in out --model model --dtype f32 --noise-file {} {options}", noise.display()));
    let (got, want) = (frames(&lab.path("out")).1, golden.frames("output"));
    assert_eq!((got.len(), got[0].size), (want.len(), want[0].size), "{name}");
    let codes = |frame: &Frame| -> Vec<u8> {
        let all = std::iter::once(&frame.samples).chain(&frame.alpha);
        all.flat_map(|samples| if let Samples::U8(codes) = samples { codes.clone() } else { panic!("{name}") })
            .collect()
    };
    let pairs = got.iter().zip(&want).flat_map(|(got, want)| codes(got).into_iter().zip(codes(want)));
    pairs.filter(|(got, want)| got != want).count()
}

// Rounding moves a few values to the neighbouring code: fewer than one in a thousand of at least 40,000.
#[test]
fn golden_jobs_are_reproduced() {
    for (name, options) in [
        ("pipeline_7b_image", "--resolution 96"),
        (
            "pipeline_3b_rgba",
            "--resolution 40 --max-resolution 52 --overlap 1 --overlap-mode reference --prepend-frames 2 \
             --uniform-batch-size --color wavelet --no-shot-detection",
        ),
    ] {
        let differ = golden_differences(name, options);
        assert!(differ < 40, "{name}: {differ} codes differ");
    }
}

#[test]
fn the_output_keeps_kind_rate_and_names_of_the_input() {
    let lab = Lab::new();
    for (input, output, count, command) in [
        ("in.y4m", "out.y4m", 7, "upscale"),
        ("in", "out", 3, "upscale"),
        ("in.png", "out.png", 1, "image"),
        ("in.png", "again.tiff", 1, "upscale"),
    ] {
        let (want, _) = lab.write_frames(input, SMALL, count);
        let outcome = lab.succeed(&format!("{command} {input} {output} --model formula:tiny --scale 2"));
        assert_eq!(outcome.stderr, "");
        let (info, after) = frames(&lab.path(output));
        assert_eq!((info.size, after.len()), (Size { h: 36, w: 52 }, count), "{output}");
        assert_eq!((info.rate == want.rate, info.kind, info.names), (input == "in.y4m", want.kind, want.names));
        for phase in ["encode", "upscale", "decode", "post-process", "total"] {
            assert!(outcome.text().lines().any(|line| line.starts_with(phase)), "{phase}: {}", outcome.text());
        }
        if input == "in" {
            fs::remove_dir_all(lab.path("in")).unwrap();
        }
    }
    assert_eq!(lab.names(), ["again.tiff", "in.png", "in.y4m", "out", "out.png", "out.y4m"]);
}

#[test]
fn scale_resolution_and_size_set_the_output_size() {
    let lab = Lab::new();
    lab.write_frames("in.png", SMALL, 1);
    for (options, size) in [
        ("--scale 1.5", Size { h: 27, w: 39 }),
        ("--resolution 40", Size { h: 40, w: 57 }),
        ("--resolution 40 --max-resolution 50", Size { h: 35, w: 50 }),
        ("--size 33x21", Size { h: 21, w: 33 }),
    ] {
        lab.succeed(&format!("image in.png out.png --overwrite --model formula:tiny {options}"));
        assert_eq!(frames(&lab.path("out.png")).0.size, size, "{options}");
    }
}

#[test]
fn a_pipe_carries_only_frames() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", SMALL, 6);
    lab.succeed("upscale in.y4m out.y4m --model formula:tiny --scale 2");
    let want = fs::read(lab.path("out.y4m")).unwrap();
    for options in ["", "--json", "--profile"] {
        let mut command = lab.command(&format!("upscale - - --model formula:tiny --scale 2 {options}"));
        command.stdin(Stdio::from(fs::File::open(lab.path("in.y4m")).unwrap()));
        let outcome = outcome(command);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(outcome.stdout == want, "{options}: not the video that a file gets");
        assert!(outcome.stderr.contains(if options == "--json" { "\"event\":\"done\"" } else { "post-process" }));
    }
}

#[test]
fn a_folder_of_videos_equals_separate_runs_and_keeps_the_networks_loaded() {
    let lab = Lab::new();
    fs::create_dir(lab.path("in")).unwrap();
    let clips = [("a.y4m", SMALL, 6), ("b.y4m", SMALL, 3), ("c.y4m", Size { h: 34, w: 20 }, 4)];
    clips.iter().for_each(|(name, size, frames)| drop(lab.write_frames(&format!("in/{name}"), *size, *frames)));
    let outcome = lab.succeed("upscale in out --model formula:tiny --scale 2 --json");
    let kept: Vec<Value> =
        outcome.events().iter().filter(|e| e["event"] == "done").map(|e| e["networks_kept"].clone()).collect();
    assert_eq!(kept, [false, true, true]);
    for (name, ..) in clips {
        lab.succeed(&format!("upscale in/{name} {name} --model formula:tiny --scale 2"));
        let (together, alone) = (fs::read(lab.path(&format!("out/{name}"))), fs::read(lab.path(name)));
        assert!(together.unwrap() == alone.unwrap(), "{name}: differs from a separate run");
    }
}

#[test]
fn json_reports_frames_and_phases() {
    let lab = Lab::new();
    let clip: Vec<Frame> = (0..4).map(|i| smooth_frame(SMALL, i)).collect();
    let (info, _) = lab.write_frames("in.y4m", SMALL, 1);
    let mut sink = reseed_media::create(&lab.path("in.y4m"), &info).unwrap();
    clip.iter().for_each(|frame| sink.write(frame).unwrap());
    sink.finish().unwrap();

    let outcome = lab.succeed("upscale in.y4m out.y4m --model formula:tiny --scale 2 --batch-size 3 --json");
    let events = outcome.events();
    let progress: Vec<&Value> = events.iter().filter(|e| e["event"] == "progress").map(|e| &e["frame"]).collect();
    assert_eq!(progress, [1, 2, 3, 4]);
    let done = events.last().unwrap();
    assert_eq!((&done["event"], &done["command"]), (&"done".into(), &"upscale".into()));
    assert_eq!([&done["frames"], &done["batches"], &done["shots"]], [4, 2, 1]);
    assert_eq!([&done["width"], &done["height"]], [52, 36]);
    for phase in ["read", "resize", "encode", "upscale", "decode", "post_process", "write"] {
        assert!(done["phases"][phase].as_f64().unwrap() > 0.0, "{phase}: {done}");
    }
    assert!(done["fps"].as_f64().unwrap() > 0.0 && done["seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn seed_color_and_latent_noise_change_the_result() {
    let lab = Lab::new();
    lab.write_frames("in.png", SMALL, 1);
    let run = |options: &str| {
        lab.succeed(&format!("image in.png out.png --overwrite --model formula:tiny --scale 2 {options}"));
        frames(&lab.path("out.png")).1
    };
    let first = run("");
    assert!(first == run("--seed 42") && first != run("--seed 43"));
    assert!(first != run("--color none") && first != run("--latent-noise 0.5"));
}

/// A GGUF file with one tensor of one value.
fn gguf_of(architecture: &str) -> Vec<u8> {
    let word = |word: &str| [&(word.len() as u64).to_le_bytes()[..], word.as_bytes()].concat();
    let mut file = [&b"GGUF"[..], &3u32.to_le_bytes(), &1u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
    file.extend([word("general.architecture"), 8u32.to_le_bytes().to_vec(), word(architecture)].concat());
    file.extend([word("output.weight"), 1u32.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec()].concat());
    file.extend([0u32.to_le_bytes().to_vec(), 0u64.to_le_bytes().to_vec()].concat());
    file.resize(file.len().next_multiple_of(32) + 32, 0);
    file
}

#[test]
fn user_errors_print_one_line_and_leave_no_files() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", SMALL, 2);
    lab.write_frames("in.png", SMALL, 1);
    lab.write_frames("small.png", Size { h: 2, w: 2 }, 1);
    let (empty, _) = lab.write_frames("empty.y4m", SMALL, 0);
    assert_eq!(empty.frames, Some(0));
    fs::create_dir(lab.path("nothing")).unwrap();
    let golden = PipelineGolden::open("pipeline_3b_clip");
    write_model(&lab, &golden);
    fs::rename(lab.path("model/pos_emb.safetensors"), lab.path("text")).unwrap();
    lab.write("noise", &[("noise0", &Tensor::uniform(&[1, 16, 4, 4]))], &[]);
    fs::rename(lab.path("model"), lab.path("speechless")).unwrap();
    write_model(&lab, &PipelineGolden::open("pipeline_7b_clip"));
    let whole = fs::read(lab.path("model/dit.safetensors")).unwrap();
    fs::write(lab.path("model/dit.safetensors"), &whole[..whole.len() * 2 / 3]).unwrap();
    fs::rename(lab.path("model"), lab.path("cut")).unwrap();
    write_model(&lab, &golden);
    fs::remove_file(lab.path("model/dit.safetensors")).unwrap();
    fs::write(lab.path("model/dit.gguf"), gguf_of("llama")).unwrap();
    let before = lab.names();
    for (args, code, line) in [
        ("upscale in.y4m out.y4m --model formula:tiny --scale 0.01", 2, "26x18 frames would become 0x0"),
        (
            "upscale in.y4m out.y4m --model formula:tiny --scale 9999",
            2,
            "larger than the limit of 32768 pixels per side",
        ),
        (
            "upscale in.y4m out.y4m --model formula:tiny --overlap 5",
            2,
            "--overlap 5 must be smaller than --batch-size 5",
        ),
        ("upscale in.y4m in.y4m --model formula:tiny", 2, "is both input and output"),
        ("upscale in.y4m out.avi --model formula:tiny", 2, "give a name ending in .mp4"),
        ("image in.y4m out.png --model formula:tiny", 2, "use `reseed upscale`"),
        ("image in.png out.png --model formula:tiny --tile 64x64 --tile-overlap 64x64", 2, "overlap 64x64 must"),
        ("upscale empty.y4m out.y4m --model formula:tiny", 3, "empty.y4m: there are no frames in it"),
        ("upscale nothing out --model formula:tiny", 3, "no images in this folder"),
        ("upscale gone.y4m out.y4m --model formula:tiny", 3, "gone.y4m: cannot read"),
        (
            "image in.png out.png --model formula:tiny --scale 2 --noise-file noise",
            3,
            "`noise0` is [1, 16, 4, 4], this job",
        ),
        ("upscale in.y4m out.y4m --model formula:tiny --noise-file in.png", 3, "not a safetensors file"),
        ("upscale in.y4m out.y4m --model formula:huge", 4, "the sizes are tiny, 3b and 7b"),
        ("upscale in.y4m out.y4m --model nothing", 4, "lacks its transformer"),
        ("upscale in.y4m out.y4m --model speechless", 4, "text embedding"),
        (
            "upscale in.y4m out.y4m --model cut",
            4,
            if cfg!(windows) { r"cut\dit.safetensors" } else { "cut/dit.safetensors" },
        ),
        ("upscale in.y4m out.y4m --model model", 4, "a GGUF file of architecture `llama`"),
        ("upscale in.y4m out.y4m --model formula:tiny --max-vram 6G", 2, "--max-vram is for --device cuda"),
        ("upscale in.y4m out.y4m --model formula:tiny --device tpu", 2, "the devices are auto, cpu, cuda and cuda:N"),
    ] {
        let outcome = lab.run(args);
        assert_eq!(outcome.code, Some(code), "reseed {args}: {}", outcome.stderr);
        assert!(
            outcome.stderr.starts_with("reseed: ") && outcome.stderr.lines().count() == 1,
            "{args}: {}",
            outcome.stderr
        );
        assert!(outcome.stderr.contains(line), "{args}: {}", outcome.stderr);
        assert_eq!(lab.names(), before, "reseed {args}");
    }
}
