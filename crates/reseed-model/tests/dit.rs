//! The transformer: op conformance, bf16 accuracy, determinism, arithmetic cost and the tensors that loading reads.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use reseed_cpu::{CpuOps, Level};
use reseed_model::Dit;
use reseed_model::dit::{B3, B7, Config, Layout};
use reseed_model::weights::formula::Formula;
use reseed_ops::{CheckOps, DType, Precision, ProfileOps, Thw, TraceOps, relative_error};
use reseed_testing::dit::{MemoryWeights, velocity};
use reseed_testing::golden::dit::{DitGolden, allowed};

const LAYOUTS: [Layout; 2] = [B3, B7];
/// Split into windows on every axis; no window size divides its axis.
const LATENT: Thw = Thw::new(5, 22, 46);

fn best(dtype: DType) -> CpuOps {
    CpuOps::new(dtype, Some(2)).unwrap()
}

fn formula(config: &Config) -> Formula {
    Formula::plain(config.tensors(), 1)
}

#[test]
fn best_level_agrees_with_the_reference_op_by_op() {
    for layout in LAYOUTS {
        for dtype in [DType::F32, DType::Bf16] {
            let reference = CpuOps::at(Level::Reference, dtype, Some(2)).unwrap();
            let device = best(dtype);
            let ops = CheckOps::new(&reference, &device);
            let dit = Dit::load(&ops, &formula(&Config::tiny(layout, 3))).unwrap();
            velocity(&ops, &dit, LATENT);
            let found: Vec<String> = ops.disagreements().iter().map(|d| d.to_string()).collect();
            assert!(found.is_empty(), "{} {dtype}:\n{}", layout.name, found.join("\n"));
            // Two norms, four linears and their gates for each stream of each layer.
            assert!(ops.calls() > 3 * 2 * 8, "{} results compared", ops.calls());
        }
    }
}

#[test]
fn error_in_bf16_is_within_its_bound() {
    for name in ["3b_clip_5", "7b_clip_5"] {
        let (golden, ops) = (DitGolden::open(name), best(DType::Bf16));
        let dit = Dit::load(&ops, &golden.source()).unwrap();
        let error = relative_error(&golden.output.values, &golden.run(&ops, &dit));
        assert!(error <= allowed(Precision::Bf16) && error > 1e-4, "{name}: {error:.2e}");
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for layout in LAYOUTS {
        let run = |threads| {
            let ops = CpuOps::new(DType::F32, Some(threads)).unwrap();
            let dit = Dit::load(&ops, &formula(&Config::tiny(layout, 3))).unwrap();
            velocity(&ops, &dit, Thw::new(2, 10, 14))
        };
        let once = run(1);
        assert!(once == run(1) && once == run(3), "{}", layout.name);
    }
}

#[test]
fn tracing_reads_no_weights_and_counts_the_same_flops() {
    for layout in LAYOUTS {
        let mut source = MemoryWeights::new(&Config::tiny(layout, 4), |_, values| values);
        let cpu = best(DType::F32);
        let profile = ProfileOps::new(&cpu);
        velocity(&profile, &Dit::load(&profile, &source).unwrap(), LATENT);
        let flops: u64 = profile.records().unwrap().iter().map(|record| record.cost.flops).sum();

        source.reads = Default::default();
        let trace = TraceOps::new(DType::F32, DType::F32, Box::new(|_| 0));
        let dit = Dit::load(&trace, &source).unwrap();
        assert_eq!(velocity(&trace, &dit, LATENT).len(), LATENT.count() * 16);
        assert!(source.reads.into_inner().unwrap().is_empty());
        assert_eq!(trace.report().cost.flops, flops);
        assert_eq!(trace.report().live, 0);
    }
}

// The published count: two floating-point operations per linear weight and token. Activations add less than 0.05%.
#[test]
fn flops_per_token_match_the_published_count() {
    for (config, published) in [(Config::b3(), 5.075e9), (Config::b7(), 8.154e9)] {
        let trace = TraceOps::new(DType::Bf16, DType::Bf16, Box::new(|_| 0));
        let dit = Dit::load(&trace, &formula(&config)).unwrap();
        let profile = ProfileOps::new(&trace);
        let latent = Thw::new(1, 90, 160);
        velocity(&profile, &dit, latent);
        let records = profile.records().unwrap();
        let linear = records.iter().filter(|record| ["linear", "activated_linear"].contains(&record.op));
        let linear: u64 = linear.map(|record| record.cost.flops).sum();
        // There are six text tokens. The last layer does not compute the output of the text.
        let tokens = (latent.count() / 4 + 6) as f64;
        let per_token = linear as f64 / tokens;
        assert!((per_token / published - 1.0).abs() < 2e-3, "{}: {per_token:.4e}", config.layout.name);
    }
}

/// Tensors that loading does not read.
fn unread(config: &Config) -> Vec<String> {
    let source = MemoryWeights::new(config, |_, values| values);
    Dit::load(&best(DType::F32), &source).unwrap();
    let reads = source.reads.into_inner().unwrap();
    assert!(reads.values().all(|&count| count == 1), "{reads:?}");
    source.shapes.into_keys().filter(|name| !reads.contains_key(name)).collect()
}

#[test]
fn loading_reads_every_required_tensor_once() {
    let shared = unread(&Config::tiny(B3, 4));
    assert!(shared.iter().all(|name| name.ends_with(".rope.freqs")), "{shared:?}");
    let separate: Vec<String> =
        unread(&Config::tiny(B7, 3)).into_iter().filter(|name| !name.ends_with(".rope.freqs")).collect();
    let want = [
        "ada.txt.attn_gate",
        "ada.txt.mlp_gate",
        "ada.txt.mlp_scale",
        "ada.txt.mlp_shift",
        "attn.proj_out.txt.bias",
        "attn.proj_out.txt.weight",
        "mlp.txt.proj_in.bias",
        "mlp.txt.proj_in.weight",
        "mlp.txt.proj_out.bias",
        "mlp.txt.proj_out.weight",
    ];
    assert_eq!(separate, want.map(|name| format!("blocks.2.{name}")));
}

// NaN in the tensors that are not read must not change the output.
#[test]
fn unread_tensors_do_not_affect_the_output() {
    let (ops, config) = (best(DType::F32), Config::tiny(B7, 3));
    let unread = unread(&config);
    let with_nan = MemoryWeights::new(&config, |name, mut values| {
        if unread.iter().any(|other| other == name) {
            values.fill(f32::NAN);
        }
        values
    });
    let latent = Thw::new(1, 6, 8);
    let want = velocity(&ops, &Dit::load(&ops, &formula(&config)).unwrap(), latent);
    assert!(velocity(&ops, &Dit::load(&ops, &with_nan).unwrap(), latent) == want);
}
