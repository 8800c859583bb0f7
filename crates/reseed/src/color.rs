//! Gives what a network made the colours of its input.
//!
//! `content` is the network's result, `style` the resized input, both as pictures `[H, W, 3]` in about [-1, 1]: all the
//! frames of one slice. Wavelet and adain treat frames one by one; the others match distributions over the whole slice.

mod adain;
mod adaptive;
mod hsv;
mod lab;
mod rank;
mod root;
mod wavelet;

use rayon::prelude::*;
use reseed_media::Size;

/// Pixels that a thread takes at a time.
const RUN: usize = 1 << 13;

/// How colours are corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// The style's low band, then its distributions of a\* and b\* and a fifth of the way to that of L\*.
    #[default]
    Lab,
    /// The content's detail on the style's low band.
    Wavelet,
    /// Wavelet, and hsv where that came out too saturated.
    WaveletAdaptive,
    /// The style's distribution of saturation within each of twelve bands of hue.
    Hsv,
    /// The style's mean and standard deviation, frame by frame and channel by channel.
    Adain,
    /// As the network made them.
    None,
}

impl Color {
    /// Corrects the frames of one slice.
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

/// A pixel's three values.
fn rgb(pixel: &[f32]) -> [f32; 3] {
    [pixel[0], pixel[1], pixel[2]]
}

/// Replaces every pixel by a function of it, of its number in the slice, and of the style's at its place.
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
