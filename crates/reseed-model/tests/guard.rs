//! A clip whose values leave the range of its type goes on in a wider one as if it had never been in the first.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Clip, Side, formula, load};
use reseed_model::plan::{Tiling, slices};
use reseed_model::{Config, Guarded, Half, Stream, Vae, Wide};
use reseed_ops::{
    Activation, Conv, ConvData, ConvSpec, CpuOps, DType, Epilogue, Hw, Linear, Norm, Ops, Past, Placement, Read,
    Result, Shape, Stats, Summed, Tensor, Upsample, UpsampleData, UpsampleSpec,
};

/// A device that leaves its range in one slice: it says so behind it, and all that the slice leaves is zero.
struct Trips {
    inner: CpuOps,
    slice: usize,
    at: AtomicUsize,
}

impl Trips {
    fn new(slice: usize) -> Trips {
        Trips { inner: cpu(), slice, at: AtomicUsize::new(0) }
    }

    fn tripped(&self) -> bool {
        self.at.load(Ordering::SeqCst) == self.slice
    }

    fn spoilt(&self, x: Tensor) -> Result<Tensor> {
        if self.tripped() { self.inner.upload(x.shape(), &vec![0.0; x.count()]) } else { Ok(x) }
    }
}

fn cpu() -> CpuOps {
    CpuOps::new(DType::F32, Some(2)).unwrap()
}

impl Ops for Trips {
    fn device(&self) -> String {
        "one that trips".into()
    }
    fn dtype(&self) -> DType {
        self.inner.dtype()
    }
    fn overflowed(&self) -> Result<bool> {
        Ok(self.at.fetch_add(1, Ordering::SeqCst) == self.slice)
    }
    fn conv_weights(&self, spec: ConvSpec, read: Read<ConvData>) -> Result<Conv> {
        self.inner.conv_weights(spec, read)
    }
    fn linear_weights(&self, d_in: usize, d_out: usize, read: Read<ConvData>) -> Result<Linear> {
        self.inner.linear_weights(d_in, d_out, read)
    }
    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm> {
        self.inner.norm_weights(groups, eps, channels, read)
    }
    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample> {
        self.inner.upsample_weights(spec, read)
    }
    fn upload(&self, shape: Shape, values: &[f32]) -> Result<Tensor> {
        self.inner.upload(shape, values)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        self.inner.download(x)
    }
    fn conv(&self, past: Past, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<Summed> {
        let Summed { tensor, stats } = self.inner.conv(past, x, conv, epilogue)?;
        Ok(Summed { tensor: self.spoilt(tensor)?, stats })
    }
    fn upsample(&self, past: Past, x: &Tensor, upsample: &Upsample, groups: Option<usize>) -> Result<Summed> {
        self.inner.upsample(past, x, upsample, groups)
    }
    fn tail(&self, past: Past, x: Tensor, keep: usize) -> Result<Tensor> {
        self.spoilt(self.inner.tail(past, x, keep)?)
    }
    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor> {
        self.inner.group_norm(x, stats, norm, act)
    }
    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        self.inner.linear(x, linear, residual)
    }
    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        self.inner.attention(qkv, heads, lengths)
    }
    fn gaussian(&self, moments: &Tensor, noise: Option<&Tensor>, scale: f32) -> Result<Tensor> {
        self.inner.gaussian(moments, noise, scale)
    }
    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor> {
        self.inner.blend_add(canvas, tile, at)
    }
}

/// A clip of four latent frames in slices of one, and how it is cut.
struct Case {
    side: Side,
    config: Config,
    clip: Clip,
    tiling: Option<Tiling>,
}

impl Case {
    fn new(side: Side, tiling: Option<Tiling>) -> Case {
        let config = Config::tiny();
        let clip = side.input(&config, 4, Hw::new(3, 5));
        Case { side, config, clip, tiling }
    }

    fn slices(&self) -> Vec<Range<usize>> {
        let step = if self.side == Side::Encode { self.config.temporal_factor() } else { 1 };
        slices(self.clip.t, step)
    }

    fn stream<'a>(&self, ops: &'a dyn Ops, half: &'a dyn Half) -> Stream<'a> {
        let tiles = self.tiling.and_then(|t| t.tiles(self.side.cut(), self.clip.plane, self.config.spatial_factor()));
        Stream::new(ops, half, self.clip.plane, tiles, 1)
    }

    fn run(&self, mut step: impl FnMut(&[f32], bool) -> Vec<f32>) -> Vec<f32> {
        let slices = self.slices().into_iter();
        slices.flat_map(|s| step(self.clip.frames(s.clone()), s.end == self.clip.t)).collect()
    }

    /// What comes out with a device that trips in `slice`, when it said so, and how often the network was loaded for it.
    fn guarded(&self, slice: usize) -> (Vec<f32>, Option<usize>, usize) {
        let (narrow, wide_ops, loads) = (Trips::new(slice), cpu(), Cell::new(0));
        let vae = load(&narrow, &self.config);
        let wide = Wide::new(&wide_ops, |ops: &dyn Ops| {
            loads.set(loads.get() + 1);
            let Vae { encoder, decoder, .. } = Vae::load(ops, &formula(&self.config))?;
            Ok(if self.side == Side::Encode { Box::new(encoder) } else { Box::new(decoder) })
        });
        let mut guarded = Guarded::new(self.stream(&narrow, self.side.half(&vae)), Some(&wide));
        let values = self.run(|values, last| guarded.step(values, last).unwrap());
        (values, guarded.widened(), loads.get())
    }
}

#[test]
fn a_slice_that_leaves_the_range_is_as_if_it_had_run_in_the_wider_type() {
    let tiles = Tiling { tile: Hw::new(16, 16), overlap: Hw::new(8, 8) };
    for (side, tiling) in [(Side::Encode, None), (Side::Decode, None), (Side::Decode, Some(tiles))] {
        let case = Case::new(side, tiling);
        let ops = cpu();
        let vae = load(&ops, &case.config);
        let mut plain = case.stream(&ops, side.half(&vae));
        let want = case.run(|values, last| plain.step(values, last).unwrap());
        for slice in 0..case.slices().len() {
            assert_eq!(case.guarded(slice), (want.clone(), Some(slice), 1), "{side:?}, slice {slice}");
        }
    }
}

#[test]
fn a_clip_that_stays_in_range_never_loads_the_wider_network() {
    let (_, widened, loads) = Case::new(Side::Decode, None).guarded(usize::MAX);
    assert_eq!((widened, loads), (None, 0));
}

#[test]
fn without_anything_wider_a_slice_that_leaves_the_range_is_an_error() {
    let case = Case::new(Side::Decode, None);
    let narrow = Trips::new(2);
    let vae = load(&narrow, &case.config);
    let mut guarded = Guarded::new(case.stream(&narrow, &vae.decoder), None);
    let mut step = |slice: Range<usize>| guarded.step(case.clip.frames(slice), false);
    assert!(step(0..1).is_ok() && step(1..2).is_ok());
    let refused = step(2..3).unwrap_err().to_string();
    assert_eq!(refused, "values left the range of f32 in slice 2; use --dtype bf16");
}
