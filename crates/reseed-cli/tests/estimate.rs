//! `reseed estimate`: the estimated memory, arithmetic and disk space agree with the run.
#![allow(clippy::unwrap_used)]

use crate::common::Lab;
use serde_json::Value;

fn estimate(args: &str) -> Value {
    let events = Lab::new().succeed(&format!("estimate vae {args} --json")).events();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(event["event"], "estimate");
    event.clone()
}

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("no {key} in {event}"))
}

#[test]
#[cfg(target_os = "linux")]
fn the_full_decoder_allocates_the_estimated_memory() {
    let lab = Lab::new();
    lab.input("in", &crate::common::Tensor::uniform(&[1, 16, 32, 32]));
    for dtype in ["f32", "bf16"] {
        let options = format!("--weights formula:full --threads 2 --dtype {dtype}");
        let events = lab.succeed(&format!("vae decode in out {options} --json")).events();
        let allocated = number(events.last().unwrap(), "peak_above_weights_bytes") as f64;
        let estimated = estimate(&format!("decode --size 256x256 --frames 1 {options}"));
        let estimated = number(&estimated, "peak_above_weights_bytes") as f64;
        assert!(
            (allocated / estimated - 1.0).abs() < 0.1,
            "{dtype}: {allocated} bytes allocated, {estimated} estimated"
        );
    }
}

#[test]
fn the_full_model_is_the_default() {
    for direction in ["encode", "decode"] {
        let clip = format!("{direction} --size 1920x1080 --frames 81 --dtype f32");
        let large = estimate(&clip);
        assert_eq!(large, estimate(&format!("{clip} --weights formula:full")));
        assert!(number(&large, "weights_bytes") > 300 << 20, "{large}");
        assert!(number(&large, "peak_above_weights_bytes") > 1 << 30, "{large}");
    }
}

#[test]
fn flops_grow_linearly_with_slices() {
    for direction in ["encode", "decode"] {
        let flops = |frames: usize| {
            let event = estimate(&format!("{direction} --size 64x48 --frames {frames}"));
            assert_eq!(number(&event, "slices") as usize, 1.max((frames - 1) / 4), "{event}");
            number(&event, "flops")
        };
        let [first, second, third, tenth] = [5, 9, 13, 41].map(flops);
        assert!(first > 0 && second > first, "{direction}: {first} {second}");
        assert_eq!(third - second, second - first, "{direction}");
        assert_eq!(tenth - first, 9 * (second - first), "{direction}");
    }
}

#[test]
fn flops_are_those_of_the_padded_clip() {
    let cost = |args: &str| number(&estimate(args), "flops");
    assert_eq!(cost("encode --size 41x30 --frames 6"), cost("encode --size 48x32 --frames 9"));
    assert_eq!(cost("decode --size 41x30 --frames 6"), cost("decode --size 48x32 --frames 9"));
}

#[test]
fn bf16_needs_less_memory_and_long_slices_need_more() {
    let peak = |options: &str| {
        number(&estimate(&format!("decode --size 128x128 --frames 17 {options}")), "peak_above_weights_bytes")
    };
    assert!(peak("--dtype bf16") < peak("--dtype f32"));
    assert!(peak("--slice 2") > peak(""));
}

#[test]
fn tiles_are_counted() {
    let plan = "decode --size 224x160 --frames 5 --tile 96x96 --overlap 32x32 --threads 2";
    let event = estimate(plan);
    // 28 x 20 latents in tiles of 12 with an overlap of 4; a tile that is all overlap is omitted.
    assert_eq!(number(&event, "tiles"), 6);
    assert_eq!(number(&event, "tiles_at_once"), 2);
    let text = Lab::new().succeed(&format!("estimate vae {plan}")).text();
    assert!(text.contains("1 slices of 1 latent frames, 2 frames at once, 6 tiles each, 2 at the same time"), "{text}");
    let whole = estimate("decode --size 224x160 --frames 5 --threads 2");
    assert_eq!((number(&whole, "tiles"), number(&whole, "tiles_at_once")), (1, 1));
    assert!(number(&whole, "flops") < number(&event, "flops"));
}

#[test]
fn a_decode_that_exceeds_any_memory_is_refused() {
    let outcome = Lab::new().run("estimate vae decode --size 65536x65536 --frames 2001 --slice 500");
    assert_eq!(outcome.code, Some(5), "{}", outcome.stderr);
    assert!(outcome.stderr.starts_with("reseed: ") && outcome.stderr.lines().count() == 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("shorter slices"), "{}", outcome.stderr);
}

#[test]
fn upscale_jobs_are_estimated_from_their_input() {
    let lab = Lab::new();
    lab.write_frames("in.y4m", reseed_media::Size { h: 18, w: 26 }, 7);
    let estimate = |options: &str| {
        let args = format!("estimate upscale in.y4m --model formula:tiny --scale 2 --json {options}");
        lab.succeed(&args).events().pop().unwrap()
    };
    let job = estimate("");
    assert_eq!([number(&job, "frames"), number(&job, "batches")], [7, 2]);
    assert_eq!([number(&job, "layers"), number(&job, "resident_layers")], [4, 4]);
    assert!(job["seconds"].as_f64().unwrap() > 0.0 && number(&job, "host_bytes") > number(&job, "weights_bytes"));
    let apart = |frames: usize| number(&estimate(&format!("--frames {frames} --overlap 0")), "flops");
    assert_eq!(apart(35), 7 * apart(5));
    let longer = estimate("--frames 35");
    assert_eq!(number(&longer, "host_bytes"), number(&job, "host_bytes"), "memory does not grow with the clip");
    assert_eq!(number(&estimate("--frames 13 --overlap 1"), "batches"), 3);
    assert!(number(&estimate("--batch-size 9"), "host_bytes") > number(&job, "host_bytes"));
    // Three planes of 52x36 and a header line per frame.
    assert_eq!(number(&job, "output_bytes"), 7 * (52 * 36 * 3 + 6));
    let [fine, coarse] = [18, 24].map(|crf| number(&estimate(&format!("--codec h264 --crf {crf}")), "output_bytes"));
    assert_eq!((fine as f64 / coarse as f64).round(), 2.0, "{fine} {coarse}");
    let [short, long] = [700, 7000].map(|n| estimate(&format!("--codec ffv1 --frames {n}")));
    assert_eq!(number(&long, "output_bytes") / number(&short, "output_bytes"), 10);
    // All segments exist until they are joined. The other temporary files do not grow with the clip.
    let temporary = |event: &Value| number(event, "work_bytes") - number(event, "output_bytes");
    assert!(temporary(&short) > 0 && temporary(&short) == temporary(&long), "{short} {long}");
    let text = lab.succeed("estimate upscale in.y4m --model formula:tiny --scale 2").text();
    assert!(["time", "host", "disk", "arithmetic", "4 of 4 layers"].iter().all(|part| text.contains(part)), "{text}");
}
