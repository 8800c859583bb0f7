//! What ops take and return beside plain tensors.

use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::weights::Vector;

/// The frames that a causal op sees before the first frame of its input.
#[derive(Clone, Copy)]
pub enum TemporalCache<'a> {
    /// The clip starts here: its first frame stands for all frames before it.
    Start,
    /// The last frames of earlier slices. These slices held the clip's first frame and nothing else.
    AfterFirst(&'a Tensor),
    /// The last frames of earlier slices.
    Frames(&'a Tensor),
}

impl<'a> TemporalCache<'a> {
    /// The cached frames, if any.
    pub fn frames(self) -> Option<&'a Tensor> {
        match self {
            TemporalCache::Start => None,
            TemporalCache::AfterFirst(frames) | TemporalCache::Frames(frames) => Some(frames),
        }
    }

    /// The same cache with its frames replaced, where `frames` holds others.
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

/// The result of a convolution, with the statistics that the next group norm needs where the caller asked for them.
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

/// What a convolution does after its sum and bias.
#[derive(Default)]
pub struct Epilogue {
    /// Added to the output; its memory becomes the output's when nothing else refers to it.
    pub residual: Option<Tensor>,
    /// Returns statistics for a norm of that many groups.
    pub groups: Option<usize>,
}

/// The function that a group norm applies to its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// y.
    None,
    /// y · sigmoid(y).
    Silu,
}

/// The activation between the two linear layers of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlpActivation {
    /// silu(a) ⊙ b of rows `[a b]`.
    SwiGlu,
    /// gelu(x), tanh approximation.
    Gelu,
}

impl MlpActivation {
    /// Channels of the input for one of the result.
    pub fn inputs(self) -> usize {
        match self {
            MlpActivation::SwiGlu => 2,
            MlpActivation::Gelu => 1,
        }
    }
}

/// The position of a tile on its canvas, and the weight of each of its rows and columns.
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

/// One stream of tokens for attention: `[N, 3 · heads · d]`, and the gains of the norms of queries and keys.
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
    /// Panics if the widths of the stream and its gains do not match.
    pub fn check(&self) {
        let (width, d) = (self.qkv.channels(), self.q_gain.len);
        assert!(d == self.k_gain.len && d > 0 && d.is_multiple_of(2), "gains of {d} and {}", self.k_gain.len);
        assert!(width.is_multiple_of(3 * d), "{:?} in heads of {d}", self.qkv);
    }
}
