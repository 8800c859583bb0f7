//! The narrow waist: the one vocabulary that models speak and devices implement.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::packing::{Rotary, RotaryData, Rows};
use crate::pixels::{Depth, Pixels};
use crate::precision::Precision;
use crate::shape::{DType, Shape};
use crate::tensor::Tensor;
use crate::weights::{
    Conv, ConvData, ConvSpec, Linear, LinearData, LinearSpec, Norm, Upsample, UpsampleData, UpsampleSpec, Vector,
};

/// What a causal op sees before the first frame of its input.
#[derive(Clone, Copy)]
pub enum TemporalCache<'a> {
    /// The clip starts here: its first frame stands for all that would have come before.
    Start,
    /// Frames kept from earlier slices, of which the clip's first frame is the only one there has been.
    AfterFirst(&'a Tensor),
    /// Frames kept from earlier slices.
    Frames(&'a Tensor),
}

impl<'a> TemporalCache<'a> {
    /// The kept frames, if any.
    pub fn frames(self) -> Option<&'a Tensor> {
        match self {
            TemporalCache::Start => None,
            TemporalCache::AfterFirst(frames) | TemporalCache::Frames(frames) => Some(frames),
        }
    }

    /// The same cache with its frames replaced, if there are others.
    pub fn with(self, frames: Option<&'a Tensor>) -> TemporalCache<'a> {
        match (self, frames) {
            (TemporalCache::AfterFirst(_), Some(frames)) => TemporalCache::AfterFirst(frames),
            (TemporalCache::Frames(_), Some(frames)) => TemporalCache::Frames(frames),
            (cache, _) => cache,
        }
    }

    /// Whether the clip starts here.
    pub fn starts(self) -> bool {
        matches!(self, TemporalCache::Start)
    }
}

/// Mean and biased variance of each frame and group: `[T, groups, 2]`, f32.
pub type Stats = Tensor;

/// A tensor and, when asked for, the statistics that the group norm behind it needs.
pub struct ConvOutput {
    /// The values.
    pub tensor: Tensor,
    /// Their statistics.
    pub stats: Option<Stats>,
}

impl ConvOutput {
    /// Frames `start .. start + frames`, sharing the memory.
    pub fn frames(&self, start: usize, frames: usize) -> ConvOutput {
        let stats = self.stats.as_ref().map(|stats| {
            let [_, groups, two] = *stats.shape().dims() else { panic!("statistics {stats:?}") };
            stats.view(Shape::from([frames, groups, two]), stats.offset() + start * groups * two)
        });
        ConvOutput { tensor: self.tensor.frames(start, frames), stats }
    }
}

/// Values on their way to the host, or pixels.
pub trait PendingDownload<T = Vec<f32>>: Send {
    /// Waits for them; what `into` held is gone, but its memory is used.
    fn wait(self: Box<Self>, into: &mut T) -> Result<()>;
}

impl<T: Send> PendingDownload<T> for T {
    fn wait(self: Box<Self>, into: &mut T) -> Result<()> {
        *into = *self;
        Ok(())
    }
}

/// A stretch of a device's time.
pub trait DeviceTimer: Send {
    /// Ends it behind what has been asked for so far.
    fn end(&mut self) -> Result<()>;

    /// How long it took, once it is over.
    fn time(&self) -> Result<Duration>;
}

/// A timer on the host's clock, for devices that are done when a call returns.
struct HostTimer {
    start: Instant,
    time: Duration,
}

impl DeviceTimer for HostTimer {
    fn end(&mut self) -> Result<()> {
        self.time = self.start.elapsed();
        Ok(())
    }

    fn time(&self) -> Result<Duration> {
        Ok(self.time)
    }
}

/// Seconds of copies between the host and a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CopyTime {
    /// Of copies from the host.
    pub inward: f64,
    /// Of copies to the host.
    pub outward: f64,
    /// That the bus was busy, in one direction or in both at the same time.
    pub copying: f64,
    /// That the device waited for copies.
    pub waiting: f64,
}

impl CopyTime {
    /// The share of the copying that the device did not wait for.
    pub fn hidden(&self) -> f64 {
        if self.copying > 0.0 { (1.0 - self.waiting / self.copying).max(0.0) } else { 1.0 }
    }

    /// Of one of so many runs.
    pub fn of_one(self, runs: usize) -> CopyTime {
        let one = |seconds: f64| seconds / runs as f64;
        CopyTime {
            inward: one(self.inward),
            outward: one(self.outward),
            copying: one(self.copying),
            waiting: one(self.waiting),
        }
    }
}

impl std::ops::AddAssign for CopyTime {
    fn add_assign(&mut self, other: CopyTime) {
        self.inward += other.inward;
        self.outward += other.outward;
        self.copying += other.copying;
        self.waiting += other.waiting;
    }
}

/// What a convolution does after its sum and bias.
#[derive(Default)]
pub struct Epilogue {
    /// Added to the output; its memory becomes the output's when nothing else refers to it.
    pub residual: Option<Tensor>,
    /// Returns statistics for a norm of that many groups.
    pub groups: Option<usize>,
}

/// The function behind a group norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// y.
    None,
    /// y · sigmoid(y).
    Silu,
}

/// Where a tile stands on its canvas, and the weight of each of its rows and columns.
/// Over all tiles of a canvas the products of row and column weights sum to one at every pixel.
#[derive(Clone, Debug)]
pub struct Placement {
    /// First row on the canvas.
    pub y: usize,
    /// First column on the canvas.
    pub x: usize,
    /// One weight per row of the tile.
    pub rows: Vec<f32>,
    /// One weight per column of the tile.
    pub columns: Vec<f32>,
}

/// A stream of tokens on its way into attention: `[N, 3 · heads · d]`, and the gains of the norms of queries and keys.
#[derive(Clone, Copy)]
pub struct Qkv<'a> {
    /// Queries, keys and values of every head.
    pub qkv: &'a Tensor,
    /// Gain of every query, `[d]`.
    pub q_gain: &'a Vector,
    /// Gain of every key, `[d]`.
    pub k_gain: &'a Vector,
}

impl Qkv<'_> {
    /// Panics if widths of the stream and its gains do not belong together.
    pub fn check(&self) {
        let (width, d) = (self.qkv.channels(), self.q_gain.len);
        assert!(d == self.k_gain.len && d > 0 && d.is_multiple_of(2), "gains of {d} and {}", self.k_gain.len);
        assert!(width.is_multiple_of(3 * d), "{:?} in heads of {d}", self.qkv);
    }
}

/// Host values of a layer; devices that compute nothing never call it.
pub type Read<'a, T> = &'a dyn Fn() -> Result<T>;

/// A device: every fused unit that the networks need.
///
/// Taking a tensor by value means that its memory may be reused. A wrong shape is a bug of the caller and panics.
pub trait Ops: Send + Sync {
    /// Name for reports, such as `cpu avx512`.
    fn device(&self) -> String;

    /// Type of the activations.
    fn dtype(&self) -> DType;

    /// How it multiplies.
    fn precision(&self) -> Precision {
        self.dtype().into()
    }

    /// Whether a convolution computes two rows at a time, from operands that are rounded again for it.
    fn pairs(&self, _spec: &ConvSpec) -> bool {
        false
    }

    /// Whether [`Ops::norm_conv`] needs no memory for what the norm makes, and less time than two ops.
    fn norms_on_load(&self, _spec: &ConvSpec) -> bool {
        false
    }

    /// Names the part of the network that runs next, for reports.
    fn stage(&self, _name: &str) {}

    /// Waits until everything asked for so far is done.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// Starts a timer behind what has been asked for so far.
    fn timer(&self) -> Result<Box<dyn DeviceTimer>> {
        Ok(Box::new(HostTimer { start: Instant::now(), time: Duration::ZERO }))
    }

    /// Takes that much memory for tensors and workspace at once, where the device keeps memory of its own.
    fn reserve(&self, _bytes: usize) -> Result<()> {
        Ok(())
    }

    /// [`Ops::tail`] of a offloaded cache, offloaded: in the host's memory, copied there while the device goes on. It can be
    /// prefetched back, or a convolution reads it where it is, some rows at a time. `x` must live on for a while, or the
    /// next owner of its memory waits for the copy.
    fn offload(&self, cache: Option<&Tensor>, x: &Tensor, keep: usize) -> Result<Tensor> {
        self.tail(cache.cloned(), x.clone(), keep)
    }

    /// Brings a offloaded tensor back while the device goes on; the first op that reads it waits for the copy.
    fn prefetch(&self, offloaded: &Tensor) -> Result<Tensor> {
        Ok(offloaded.clone())
    }

    /// The same layer with its matrix in the host's memory, from which [`Ops::prefetch_linear`] brings it.
    fn offload_linear(&self, linear: &Linear) -> Result<Linear> {
        Ok(linear.clone())
    }

    /// Brings a offloaded layer back while the device goes on, into memory like that of tensors; the first op that uses it
    /// waits for the copy.
    fn prefetch_linear(&self, offloaded: &Linear) -> Result<Linear> {
        Ok(offloaded.clone())
    }

    /// The same convolution with its kernels in the host's memory, from which [`Ops::prefetch_conv`] brings them.
    fn offload_conv(&self, conv: &Conv) -> Result<Conv> {
        Ok(conv.clone())
    }

    /// Brings a offloaded convolution back as [`Ops::prefetch_linear`] does a linear layer.
    fn prefetch_conv(&self, offloaded: &Conv) -> Result<Conv> {
        Ok(offloaded.clone())
    }

    /// The same upsampler with its kernels in the host's memory, from which [`Ops::prefetch_upsample`] brings them.
    fn offload_upsample(&self, upsample: &Upsample) -> Result<Upsample> {
        Ok(upsample.clone())
    }

    /// Brings a offloaded upsampler back as [`Ops::prefetch_linear`] does a linear layer.
    fn prefetch_upsample(&self, offloaded: &Upsample) -> Result<Upsample> {
        Ok(offloaded.clone())
    }

    /// How long copies beside the device's work took since the last call, once they are done.
    fn copy_time(&self) -> Result<CopyTime> {
        Ok(CopyTime::default())
    }

    /// Brings a convolution onto the device.
    fn conv_weights(&self, spec: ConvSpec, read: Read<ConvData>) -> Result<Conv>;

    /// Brings a linear layer onto the device. A matrix in few bits stays so where the device can widen it next to its use,
    /// and else is widened at once; the result is the same.
    fn linear_weights(&self, spec: LinearSpec, read: Read<LinearData>) -> Result<Linear>;

    /// Brings a norm's gain (`weight`) and shift (`bias`) onto the device.
    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, read: Read<ConvData>) -> Result<Norm>;

    /// Brings a merged upsampler onto the device.
    fn upsample_weights(&self, spec: UpsampleSpec, read: Read<UpsampleData>) -> Result<Upsample>;

    /// Brings numbers onto the device as they are.
    fn vector(&self, len: usize, read: Read<Vec<f32>>) -> Result<Vector>;

    /// Brings row numbers onto the device, `per` for each row of a result.
    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows>;

    /// Brings rotary positions onto the device.
    fn rotary(&self, data: &RotaryData) -> Result<Rotary>;

    /// Rounds host values to the device's type.
    fn upload(&self, shape: Shape, values: &[f32]) -> Result<Tensor>;

    /// Copies a tensor to the host.
    fn download(&self, x: &Tensor) -> Result<Vec<f32>>;

    /// Starts to copy a tensor to the host.
    fn send(&self, x: &Tensor) -> Result<Box<dyn PendingDownload>> {
        Ok(Box::new(self.download(x)?))
    }

    /// Brings pictures onto the device: code c becomes 2c / max - 1, computed as [`crate::Code::value`] does and rounded to
    /// the device's type. All devices agree to the bit.
    fn upload_pixels(&self, shape: Shape, pixels: &Pixels) -> Result<Tensor> {
        self.upload(shape, &pixels.values())
    }

    /// Starts to copy pictures to the host as codes, those that [`crate::Code::nearest`] finds: -1 and all below it is black,
    /// 1 and all above it white, and what is no number black. All devices agree on codes of the same values.
    fn send_pixels(&self, x: &Tensor, depth: Depth) -> Result<Box<dyn PendingDownload<Pixels>>> {
        Ok(Box::new(Pixels::nearest(&self.download(x)?, depth)))
    }

    /// y\[t\] = Σ w\[dt,dy,dx\] · x\[t·s+dt-(kt-1), …\] + b (+ residual), zero outside the plane, `cache` before the slice.
    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput>;

    /// Doubles the plane (and the frames) by one convolution on the low-resolution grid; see [`crate::Merged`].
    fn upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        groups: Option<usize>,
    ) -> Result<ConvOutput>;

    /// The last `keep` frames of the cache followed by `x`; without a cache the first frame fills what is missing.
    fn tail(&self, cache: Option<Tensor>, x: Tensor, keep: usize) -> Result<Tensor>;

    /// y = act((x - mean) / sqrt(var + eps) · gain + shift), mean and variance per frame and group.
    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, act: Activation) -> Result<Tensor>;

    /// [`Ops::conv`] of [`Ops::group_norm`] with SiLU: of a picture, which has no cache and leaves none.
    fn norm_conv(&self, x: ConvOutput, norm: &Norm, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let h = self.group_norm(x.tensor, x.stats, norm, Activation::Silu)?;
        self.conv(TemporalCache::Start, &h, conv, epilogue)
    }

    /// y = x Wᵀ + b (+ residual) over the last dimension.
    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor>;

    /// softmax(q kᵀ / √d) v within each of the consecutive sequences of `lengths` tokens; `qkv` is `[N, 3 · heads · d]`.
    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor>;

    /// y = x / sqrt(mean(x²) + eps) · gain + shift over the last dimension.
    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor>;

    /// x + gate ⊙ h.
    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor>;

    /// silu(a) ⊙ b, where `x` is `[…, a b]`.
    fn swiglu(&self, x: &Tensor) -> Result<Tensor>;

    /// ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))).
    fn gelu(&self, x: Tensor) -> Result<Tensor>;

    /// The tokens of both streams, counted through, in the order of `rows`: q and k of every head are divided by
    /// sqrt(mean² + eps), gained and turned by `rotary`, whose tokens are those of the result; v stays.
    fn qk_norm_rope(&self, streams: [Qkv; 2], rows: &Rows, rotary: &Rotary, eps: f32) -> Result<Tensor>;

    /// Row i of the result is the mean of the i-th `rows.per` rows; one row is copied.
    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor>;

    /// a · x + b · y.
    fn axpby(&self, a: f32, x: &Tensor, b: f32, y: Tensor) -> Result<Tensor>;

    /// (mean + exp(½ logvar) · noise) · scale from moments `[…, 2c]`, logvar clamped to \[-30, 20\]; the mean without noise.
    fn gaussian(&self, moments: &Tensor, noise: Option<&Tensor>, scale: f32) -> Result<Tensor>;

    /// Adds a weighted tile to a canvas; where the weight is one, the tile is copied.
    fn blend_add(&self, canvas: Tensor, tile: &Tensor, at: &Placement) -> Result<Tensor>;
}
