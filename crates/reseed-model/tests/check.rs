//! The whole model on two devices at once: the fast levels agree with the definition op by op, and one that does not
//! is named.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Side, load, run_slices};
use reseed_model::plan::{Keeping, Tiling};
use reseed_model::{Config, Stream};
use reseed_ops::{
    Activation, CheckOps, Conv, ConvData, ConvSpec, CpuOps, DType, Epilogue, Hw, Level, Linear, Norm, Ops, Past,
    Placement, Qkv, Read, Result, Rotary, RotaryData, Rows, Shape, Stats, Summed, Tensor, Upsample, UpsampleData,
    UpsampleSpec, Vector,
};

fn reference(dtype: DType) -> CpuOps {
    CpuOps::at(Level::Reference, dtype, Some(2)).unwrap()
}

fn best(dtype: DType) -> CpuOps {
    CpuOps::at(Level::available().last().unwrap(), dtype, Some(2)).unwrap()
}

fn assert_agreed(ops: &CheckOps) {
    let found: Vec<String> = ops.disagreements().iter().map(|d| d.to_string()).collect();
    assert!(found.is_empty(), "{}:\n{}", ops.device(), found.join("\n"));
}

#[test]
fn the_best_level_agrees_with_the_definition_all_the_way() {
    for dtype in [DType::F32, DType::Bf16] {
        let (reference, device) = (reference(dtype), best(dtype));
        let ops = CheckOps::new(&reference, &device);
        let vae = load(&ops, &Config::tiny());
        for side in Side::BOTH {
            let before = ops.calls();
            let clip = side.input(&vae.config, 3, Hw::new(3, 5));
            run_slices(&ops, &vae, side, &clip, &[1, 2]);
            // Every slice goes at least through two convolutions and two norms of every residual block.
            let blocks = 2 + vae.config.channels.len() * vae.config.layers;
            assert!(ops.calls() - before > 2 * 4 * blocks, "{side:?}: {} results compared", ops.calls() - before);
        }
        assert_agreed(&ops);
    }
}

#[test]
fn the_best_level_agrees_with_the_definition_in_tiles() {
    let (reference, device) = (reference(DType::F32), best(DType::F32));
    let ops = CheckOps::new(&reference, &device);
    let vae = load(&ops, &Config::tiny());
    let tiling = Tiling { tile: Hw::new(24, 24), overlap: Hw::new(8, 8) };
    for side in Side::BOTH {
        let clip = side.input(&vae.config, 2, Hw::new(3, 5));
        let tiles = tiling.tiles(side.cut(), clip.plane, vae.config.spatial_factor());
        assert!(tiles.as_ref().is_some_and(|tiles| tiles.len() > 1));
        let mut stream = Stream::new(&ops, side.half(&vae), clip.plane, &Keeping::default()).tiled(tiles, 1);
        for slice in side.slices(&vae.config, &[1, 1]) {
            stream.step(clip.frames(slice.clone()), slice.end == clip.t).unwrap();
        }
    }
    assert!(ops.calls() > 0);
    assert_agreed(&ops);
}

/// A device whose upsampler is one part in a thousand too bright.
struct TooBright(CpuOps);

impl Ops for TooBright {
    fn device(&self) -> String {
        format!("{}, too bright", self.0.device())
    }

    fn dtype(&self) -> DType {
        self.0.dtype()
    }

    fn conv_weights(&self, spec: ConvSpec, read: Read<ConvData>) -> Result<Conv> {
        self.0.conv_weights(spec, read)
    }

    fn linear_weights(&self, d_in: usize, d_out: usize, read: Read<ConvData>) -> Result<Linear> {
        self.0.linear_weights(d_in, d_out, read)
    }

    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm> {
        self.0.norm_weights(groups, eps, channels, read)
    }

    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample> {
        self.0.upsample_weights(spec, read)
    }

    fn vector(&self, len: usize, read: Read<Vec<f32>>) -> Result<Vector> {
        self.0.vector(len, read)
    }

    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows> {
        self.0.rows(per, rows)
    }

    fn rotary(&self, data: &RotaryData) -> Result<Rotary> {
        self.0.rotary(data)
    }

    fn upload(&self, shape: Shape, values: &[f32]) -> Result<Tensor> {
        self.0.upload(shape, values)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        self.0.download(x)
    }

    fn conv(&self, past: Past, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<Summed> {
        self.0.conv(past, x, conv, epilogue)
    }

    fn upsample(&self, past: Past, x: &Tensor, upsample: &Upsample, groups: Option<usize>) -> Result<Summed> {
        let y = self.0.upsample(past, x, upsample, groups)?;
        let values: Vec<f32> = self.0.download(&y.tensor)?.into_iter().map(|v| v * 1.001).collect();
        Ok(Summed { tensor: self.0.upload(y.tensor.shape(), &values)?, stats: y.stats })
    }

    fn tail(&self, past: Option<Tensor>, x: Tensor, keep: usize) -> Result<Tensor> {
        self.0.tail(past, x, keep)
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        self.0.group_norm(x, stats, norm, act)
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        self.0.linear(x, linear, residual)
    }

    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        self.0.attention(qkv, heads, lengths)
    }

    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        self.0.rms_norm_modulate(x, norm)
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
        self.0.gated_add(x, h, gate)
    }

    fn swiglu(&self, x: &Tensor) -> Result<Tensor> {
        self.0.swiglu(x)
    }

    fn gelu(&self, x: Tensor) -> Result<Tensor> {
        self.0.gelu(x)
    }

    fn qk_norm_rope(&self, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor> {
        self.0.qk_norm_rope(streams, rows, rotary, eps)
    }

    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor> {
        self.0.gather_rows(x, rows)
    }

    fn axpby(&self, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor> {
        self.0.axpby(a, x, b, y)
    }

    fn gaussian(&self, moments: &Tensor, noise: Option<&Tensor>, scale: f32) -> Result<Tensor> {
        self.0.gaussian(moments, noise, scale)
    }

    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
        self.0.blend_add(canvas, tile, at)
    }
}

// Later ops go on from the reference's results, so that only the upsamplers themselves are blamed.
#[test]
fn a_device_that_is_wrong_is_told_which_op_and_where() {
    let (reference, device) = (reference(DType::F32), TooBright(best(DType::F32)));
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
        assert!((0.9e-3..1.1e-3).contains(&d.error) && d.allowed < d.error, "{d}");
    }
    // Two latent frames of 2x3 become three of 4x6 with the widest level's channels.
    assert_eq!(found[0].shape, Shape::from([3, 4, 6, 32]));

    let before = found.len();
    let clip = Side::Encode.input(&vae.config, 2, Hw::new(2, 3));
    run_slices(&ops, &vae, Side::Encode, &clip, &[2]);
    assert_eq!(ops.disagreements().len(), before, "the encoder has no upsampler");
}
