//! Wavelet transfer, blended with the HSV result where the wavelet result is clearly more saturated than the style.
//!
//! The HSV weight is the sigmoid 1 / (1 + exp(-5 (s_content - s_style - 0.15))) of the difference in saturation.

use reseed_media::Size;

use super::hsv::{matched_saturations, saturation, with_saturation};
use super::map_pixels_with;
use super::wavelet::LowPass;

/// Excess of saturation of the wavelet result over the style from which on HSV is blended in.
const THRESHOLD: f32 = 0.075;
/// Centre and slope of the sigmoid.
const CENTRE: f32 = 0.15;
const SLOPE: f32 = 5.0;

pub fn apply(content: &mut [Vec<f32>], style: &[Vec<f32>], size: Size) {
    let matched = matched_saturations(content, style);
    let mut low_pass = LowPass::new(size);
    for (i, (content, style)) in content.iter_mut().zip(style).enumerate() {
        let low = low_pass.of_difference(style, content);
        let frame = (std::slice::from_mut(content), std::slice::from_ref(style));
        map_pixels_with(frame.0, frame.1, |content, pixel, style| {
            let wavelet = [0, 1, 2].map(|c| (content[c] + low[3 * pixel + c]).clamp(-1.0, 1.0));
            let target = saturation(style);
            if saturation(wavelet) - target <= THRESHOLD {
                return wavelet;
            }
            let hsv = with_saturation(content, matched[i * size.pixels() + pixel]);
            let weight = 1.0 / (1.0 + (-SLOPE * (saturation(content) - target - CENTRE)).exp());
            [0, 1, 2].map(|c| wavelet[c] * (1.0 - weight) + hsv[c] * weight)
        });
    }
}
