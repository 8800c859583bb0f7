//! Colour transfer from the input to the restored frames.
//!
//! `content` holds the restored frames of one slice, `style` the resized input frames, both `[H, W, 3]` in about [-1,
//! 1]. Wavelet and AdaIN work frame by frame; the other methods match distributions over the whole slice.

mod adain;
mod adaptive;
mod hsv;
mod lab;
mod rank;
mod root;
mod wavelet;

use std::fmt;
use std::str::FromStr;

use rayon::prelude::*;
use reseed_media::Size;

use crate::names;

/// Pixels per parallel work item.
const RUN: usize = 1 << 13;

/// Colour transfer method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// Wavelet, then histogram matching in CIE Lab: a\* and b\* fully, L\* by a fifth.
    #[default]
    Lab,
    /// Wavelet decomposition: high frequencies of the content, low frequencies of the style.
    Wavelet,
    /// Wavelet, blended with HSV where the wavelet result is too saturated.
    WaveletAdaptive,
    /// Histogram matching of HSV saturation in each of twelve hue bands.
    Hsv,
    /// Adaptive instance normalisation (AdaIN): mean and standard deviation of the style, per frame and channel.
    Adain,
    /// No colour transfer.
    None,
}

const NAMES: [(&str, Color); 6] = [
    ("lab", Color::Lab),
    ("wavelet", Color::Wavelet),
    ("wavelet-adaptive", Color::WaveletAdaptive),
    ("hsv", Color::Hsv),
    ("adain", Color::Adain),
    ("none", Color::None),
];

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(names::name_of(&NAMES, *self))
    }
}

impl FromStr for Color {
    type Err = String;

    fn from_str(text: &str) -> Result<Color, String> {
        // The public programs write names with an underscore.
        names::named(&NAMES, &text.replace('_', "-")).map_err(|known| format!("`{text}` is not {known}"))
    }
}

impl Color {
    /// Transfers the colours of `style` to the frames of one slice.
    pub fn apply(self, content: &mut [Vec<f32>], style: Vec<Vec<f32>>, size: Size) {
        match self {
            Color::Lab => lab::apply(content, style, size),
            Color::Wavelet => wavelet::apply(content, &style, size),
            Color::WaveletAdaptive => adaptive::apply(content, &style, size),
            Color::Hsv => hsv::apply(content, &style),
            Color::Adain => adain::apply(content, &style),
            Color::None => {}
        }
    }
}

/// [-1, 1] to [0, 1], clamped.
pub(crate) fn unit(value: f32) -> f32 {
    ((value + 1.0) / 2.0).clamp(0.0, 1.0)
}

fn rgb(pixel: &[f32]) -> [f32; 3] {
    [pixel[0], pixel[1], pixel[2]]
}

/// Maps every pixel of the content: `f` gets the pixel, its index in the slice and the pixel of the style.
fn map_pixels_with(
    content: &mut [Vec<f32>],
    style: &[Vec<f32>],
    f: impl Fn([f32; 3], usize, [f32; 3]) -> [f32; 3] + Sync,
) {
    let runs = |i: usize, content: &mut Vec<f32>, style: &Vec<f32>| {
        let first = i * content.len() / 3;
        content.par_chunks_mut(3 * RUN).zip(style.par_chunks(3 * RUN)).enumerate().for_each(|(k, (content, style))| {
            for (j, (content, style)) in content.chunks_exact_mut(3).zip(style.chunks_exact(3)).enumerate() {
                content.copy_from_slice(&f(rgb(content), first + k * RUN + j, rgb(style)));
            }
        });
    };
    content.par_iter_mut().zip(style).enumerate().for_each(|(i, (content, style))| runs(i, content, style));
}
