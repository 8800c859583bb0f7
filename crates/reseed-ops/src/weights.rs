//! Weights on devices: a public description of the layer, and a packed form that only its device reads.

use std::any::Any;
use std::sync::Arc;

use crate::error::Result;
use crate::quant::{Numbers, Quant};
use crate::shape::Thw;

/// Weights in a device's own form.
pub type Packed = Arc<dyn Any + Send + Sync>;

/// Reads the host values of a layer; devices that compute nothing never call it.
pub type Read<'a, T> = &'a dyn Fn() -> Result<T>;

/// Shape of a causal convolution. Time is never padded: the temporal cache precedes the slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvSpec {
    /// Channels of the input.
    pub c_in: usize,
    /// Channels of the output.
    pub c_out: usize,
    /// Kernel.
    pub taps: Thw,
    /// Step between outputs.
    pub stride: Thw,
    /// Zero rows above and zero columns to the left of the plane.
    pub pad_before: usize,
    /// Zero rows below and zero columns to the right of the plane.
    pub pad_after: usize,
}

impl ConvSpec {
    /// A convolution that keeps the plane's size.
    pub fn same(c_in: usize, c_out: usize, taps: Thw) -> ConvSpec {
        let pad = taps.h / 2;
        ConvSpec { c_in, c_out, taps, stride: Thw::new(1, 1, 1), pad_before: pad, pad_after: pad }
    }

    /// Number of weights.
    pub fn weights(&self) -> usize {
        self.taps.count() * self.c_in * self.c_out
    }

    /// Frames that the temporal cache holds for the next slice.
    pub fn cached_frames(&self) -> usize {
        self.taps.t - self.stride.t.min(self.taps.t)
    }

    /// Extent of the output, with a temporal cache of [`ConvSpec::cached_frames`] frames or at the start of a clip.
    pub fn output(&self, input: Thw, starts: bool) -> Thw {
        let head = if starts { self.taps.t - 1 } else { self.cached_frames() };
        let pad = self.pad_before + self.pad_after;
        let steps = |size: usize, taps: usize, stride: usize| {
            assert!(size >= taps, "a convolution of {} does not fit into {input}", self.taps);
            (size - taps) / stride + 1
        };
        Thw {
            t: steps(input.t + head, self.taps.t, self.stride.t),
            h: steps(input.h + pad, self.taps.h, self.stride.h),
            w: steps(input.w + pad, self.taps.w, self.stride.w),
        }
    }

    /// Number of leading taps that read the clip's first frame at output frame `t` of a clip that starts here.
    /// They cost as much as one tap when their kernels are summed first.
    pub fn folded(&self, t: usize) -> usize {
        self.taps.t.saturating_sub(t * self.stride.t).max(1)
    }
}

/// Weight `[c_out, c_in, t, h, w]` and bias `[c_out]` on the host.
pub struct ConvData {
    /// Row-major, in the order of the checkpoint.
    pub weight: Vec<f32>,
    /// One number per output channel.
    pub bias: Vec<f32>,
}

/// A convolution on a device.
#[derive(Clone)]
pub struct Conv {
    /// What it computes.
    pub spec: ConvSpec,
    /// Products that the device executes, relative to those of the direct algorithm; those of 8-bit integers count
    /// half. For reports only.
    pub executed: f32,
    /// The device's own form.
    pub packed: Packed,
}

/// Shape of a linear layer, and the format of its matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearSpec {
    /// Columns of the input.
    pub d_in: usize,
    /// Columns of the output.
    pub d_out: usize,
    /// Quantization of the matrix, if any.
    pub quant: Option<Quant>,
    /// Whether products may be of 8-bit integers ([`crate::int8`]); on a device, whether they are.
    pub int8: bool,
}

impl LinearSpec {
    /// A layer of floats.
    pub fn floats(d_in: usize, d_out: usize) -> LinearSpec {
        LinearSpec { d_in, d_out, quant: None, int8: false }
    }

    /// Bytes of the matrix if floats have `float` bytes. [`LinearSpec::int8`] is that of a device.
    pub fn bytes(&self, float: usize) -> usize {
        let count = self.d_in * self.d_out;
        match self.quant {
            _ if self.int8 => count,
            Some(quant) => quant.bytes(count),
            None => count * float,
        }
    }

    /// The layer on a device that multiplies in 8 bits, or in floats.
    pub fn with_int8(self, int8: bool) -> LinearSpec {
        LinearSpec { int8, quant: self.quant.filter(|_| !int8), ..self }
    }
}

/// Matrix `[d_out, d_in]` and bias `[d_out]` of a linear layer on the host.
pub struct LinearData {
    /// Row-major, in the format of the layer's [`LinearSpec`].
    pub weight: Numbers,
    /// One number per output column.
    pub bias: Vec<f32>,
}

impl LinearData {
    /// Converts the matrix to floats.
    pub fn floats(self) -> ConvData {
        ConvData { weight: self.weight.floats(), bias: self.bias }
    }
}

impl From<ConvData> for LinearData {
    /// A convolution of one tap.
    fn from(data: ConvData) -> LinearData {
        LinearData { weight: Numbers::Floats(data.weight), bias: data.bias }
    }
}

/// A matrix and a bias on a device: y = x Wᵀ + b.
#[derive(Clone)]
pub struct Linear {
    /// Its shape, and the format of the matrix on the device.
    pub spec: LinearSpec,
    /// The device's own form.
    pub packed: Packed,
}

/// Numbers in f32 on a device, such as one for each channel.
#[derive(Clone)]
pub struct Vector {
    /// Number of values.
    pub len: usize,
    /// The device's own form.
    pub packed: Packed,
}

/// Gain and shift of a norm on a device.
#[derive(Clone)]
pub struct Norm {
    /// Channels.
    pub channels: usize,
    /// Groups that share statistics.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f32,
    /// Whether results are bytes that only the convolution packed with it can read; see
    /// [`crate::Ops::norm_conv_weights`].
    pub int8: bool,
    /// The device's own form.
    pub packed: Packed,
}

/// Shape of an upsampler: doubles rows and columns, and frames when `time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpsampleSpec {
    /// Channels, in and out.
    pub channels: usize,
    /// Whether frames are doubled too.
    pub time: bool,
}

impl UpsampleSpec {
    /// Low-resolution frames that the kernels span.
    pub fn taps_t(&self) -> usize {
        if self.time { 2 } else { 3 }
    }

    /// Output frames per low-resolution frame.
    pub fn frames(&self) -> usize {
        if self.time { 2 } else { 1 }
    }

    /// Output phases per low-resolution pixel, in the order (time, row, column).
    pub fn phases(&self) -> usize {
        4 * self.frames()
    }

    /// The convolution that computes a phase; those of later rows and columns are padded by one pixel less.
    pub fn phase(&self) -> ConvSpec {
        let taps = Thw::new(self.taps_t(), 2, 2);
        ConvSpec { pad_after: 0, ..ConvSpec::same(self.channels, self.channels, taps) }
    }

    /// Sets of kernels: those for the clip's second frame are one of their own.
    pub fn sets(&self) -> usize {
        if self.time { 2 } else { 1 }
    }

    /// Number of weights of all sets.
    pub fn weights(&self) -> usize {
        self.sets() * self.phases() * self.phase().weights()
    }

    /// Low-resolution frames that the next slice will want to see.
    pub fn cached_frames(&self) -> usize {
        self.taps_t() - 1
    }

    /// Extent of the output. The clip's first frame becomes one frame, not two.
    pub fn output(&self, input: Thw, starts: bool) -> Thw {
        let dropped = usize::from(self.time && starts);
        Thw { t: input.t * self.frames() - dropped, h: input.h * 2, w: input.w * 2 }
    }
}

/// The two convolutions of an upsampler on the host, as the checkpoint stores them; [`crate::merge()`] merges them.
pub struct UpsampleData {
    /// 1x1x1, `[sub, c, c]`: sub-positions are (row, column, time) within a low-resolution pixel.
    pub upscale: ConvData,
    /// 3x3x3 on the shuffled result.
    pub conv: ConvData,
}

/// Merged weights of an upsampler on the host.
///
/// Phase (z, y, x) of low-resolution pixel (k, i, j) is output (2k+z, 2i+y, 2j+x); it reads rows i-1+y and i+y,
/// columns j-1+x and j+x, and frames k-1, k (time) or k-2, k-1, k (space only).
pub struct Merged {
    /// `[phase, c_out, c_in, t, 2, 2]`.
    pub kernels: Vec<f32>,
    /// `[phase, c_out, c_in, 2, 2]`: the tap of the previous frame when that is the clip's first; empty without time.
    pub after_first: Vec<f32>,
    /// `[position, z, row class, column class, c]`; positions are (later, second, start) with time, else (later).
    /// Classes: first, interior of phase 0, interior of phase 1, last; fewer taps are inside the plane at its border.
    pub bias: Vec<f32>,
}

/// Row or column classes of [`Merged::bias`].
pub const BORDER_CLASSES: usize = 4;

/// Class of output row (or column) `i` of `n`.
pub fn border_class(i: usize, n: usize) -> usize {
    match i {
        0 => 0,
        _ if i + 1 == n => 3,
        _ => 1 + i % 2,
    }
}

/// Position of an upsampler's output frame in its clip; selects its bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClipPosition {
    /// Both low-resolution frames follow the clip's first.
    Later = 0,
    /// The previous low-resolution frame is the clip's first.
    Second = 1,
    /// The clip's first frame.
    Start = 2,
}

/// An upsampler on a device.
#[derive(Clone)]
pub struct Upsample {
    /// What it computes.
    pub spec: UpsampleSpec,
    /// Products that the device executes, relative to those of the merged kernels. For reports only.
    pub executed: f32,
    /// The device's own form.
    pub packed: Packed,
}
