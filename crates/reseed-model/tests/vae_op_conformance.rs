//! The VAE on a checking device: every op of the best CPU level agrees with the reference, and an op that disagrees is
//! reported.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use reseed_cpu::{CpuOps, Level};
use reseed_model::plan::{CachePlan, Tiling};
use reseed_model::{Config, Stream};
use reseed_ops::{CheckOps, ConvOutput, DType, Device, Hw, Shape, Transfer};
use reseed_testing::device::OtherUpsample;
use reseed_testing::{Side, load, run_slices};

fn reference(dtype: DType) -> CpuOps {
    CpuOps::at(Level::Reference, dtype, Some(2)).unwrap()
}

fn best(dtype: DType) -> CpuOps {
    CpuOps::at(Level::available().last().unwrap(), dtype, Some(2)).unwrap()
}

fn assert_agreed(ops: &CheckOps) {
    let found: Vec<String> = ops.disagreements().iter().map(|d| d.to_string()).collect();
    assert!(found.is_empty(), "{}:\n{}", ops.name(), found.join("\n"));
}

#[test]
fn best_level_agrees_with_the_reference_op_by_op() {
    for dtype in [DType::F32, DType::Bf16] {
        let (reference, device) = (reference(dtype), best(dtype));
        let ops = CheckOps::new(&reference, &device);
        let vae = load(&ops, &Config::tiny());
        for side in Side::BOTH {
            let before = ops.calls();
            let clip = side.input(&vae.config, 3, Hw::new(3, 5));
            run_slices(&ops, &vae, side, &clip, &[1, 2]);
            // Each of the two slices runs at least two convolutions and two norms per residual block.
            let blocks = 2 + vae.config.channels.len() * vae.config.layers;
            assert!(ops.calls() - before > 2 * 4 * blocks, "{side:?}: {} results compared", ops.calls() - before);
        }
        assert_agreed(&ops);
    }
}

#[test]
fn best_level_agrees_with_the_reference_in_tiles() {
    let (reference, device) = (reference(DType::F32), best(DType::F32));
    let ops = CheckOps::new(&reference, &device);
    let vae = load(&ops, &Config::tiny());
    let tiling = Tiling { tile: Hw::new(24, 24), overlap: Hw::new(8, 8) };
    for side in Side::BOTH {
        let clip = side.input(&vae.config, 2, Hw::new(3, 5));
        let tiles = tiling.tiles(side.cut(), clip.plane, vae.config.spatial_factor());
        assert!(tiles.as_ref().is_some_and(|tiles| tiles.len() > 1));
        let mut stream = Stream::new(&ops, side.coder(&vae), clip.plane, &CachePlan::default()).tiled(tiles, 1);
        for slice in side.slices(&vae.config, &[1, 1]) {
            stream.step(clip.frames(slice.clone()), slice.end == clip.t).unwrap();
        }
    }
    assert!(ops.calls() > 0);
    assert_agreed(&ops);
}

/// A device whose upsampler scales its output by 1.001.
fn scaled_upsample(cpu: CpuOps) -> OtherUpsample {
    let scale = |cpu: &CpuOps, y: ConvOutput| {
        let values: Vec<f32> = cpu.download(&y.tensor)?.into_iter().map(|v| v * 1.001).collect();
        Ok(ConvOutput { tensor: cpu.upload(y.tensor.shape(), &values)?, stats: y.stats })
    };
    OtherUpsample(cpu, Box::new(scale))
}

// Later ops continue from the results of the reference, so that only the upsamplers are reported.
#[test]
fn a_wrong_op_is_reported_with_its_stage() {
    let (reference, device) = (reference(DType::F32), scaled_upsample(best(DType::F32)));
    let ops = CheckOps::new(&reference, &device);
    let vae = load(&ops, &Config::tiny());
    let clip = Side::Decode.input(&vae.config, 2, Hw::new(2, 3));
    run_slices(&ops, &vae, Side::Decode, &clip, &[2]);
    let found = ops.disagreements();
    let mut named: Vec<(&str, &str)> = found.iter().map(|d| (d.stage.as_str(), d.op)).collect();
    named.sort_unstable();
    named.dedup();
    let want = ["decoder.up_blocks.0", "decoder.up_blocks.1", "decoder.up_blocks.2"].map(|stage| (stage, "upsample"));
    assert_eq!(named, want);
    for d in &found {
        let off = d.element.map_or(d.error, |e| f64::from((e.device / e.reference - 1.0).abs()));
        assert!((0.9e-3..1.1e-3).contains(&off) && d.allowed < d.error, "{d}");
    }
    // Two latent frames of 2x3 become three of 4x6 with the channels of the widest level.
    assert_eq!(found[0].shape, Shape::from([3, 4, 6, 32]));

    let before = found.len();
    let clip = Side::Encode.input(&vae.config, 2, Hw::new(2, 3));
    run_slices(&ops, &vae, Side::Encode, &clip, &[2]);
    assert_eq!(ops.disagreements().len(), before, "the encoder has no upsampler");
}
