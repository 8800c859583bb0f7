//! `wavelet`, but `hsv` where wavelet came out clearly more saturated than the style, the more so the more the content
//! itself exceeds the style.

use reseed_media::Size;

use super::hsv::{matched_saturations, saturation, with_saturation};
use super::map_pixels_with;
use super::wavelet::Low;

/// By how much the wavelet's saturation must exceed the style's.
const CLEARLY: f32 = 0.075;
/// By how much the content's saturation exceeds the style's where both methods have equal shares, and how fast that turns.
const EVEN: f32 = 0.15;
const SLOPE: f32 = 5.0;

pub fn apply(content: &mut [Vec<f32>], style: &[Vec<f32>], size: Size) {
    let matched = matched_saturations(content, style);
    let mut low = Low::new(size);
    for (i, (content, style)) in content.iter_mut().zip(style).enumerate() {
        let low = low.of_difference(style, content);
        let frame = (std::slice::from_mut(content), std::slice::from_ref(style));
        map_pixels_with(frame.0, frame.1, |content, pixel, style| {
            let wavelet = [0, 1, 2].map(|c| (content[c] + low[3 * pixel + c]).clamp(-1.0, 1.0));
            let wanted = saturation(style);
            if saturation(wavelet) - wanted <= CLEARLY {
                return wavelet;
            }
            let hsv = with_saturation(content, matched[i * size.pixels() + pixel]);
            let share = 1.0 / (1.0 + (-SLOPE * (saturation(content) - wanted - EVEN)).exp());
            [0, 1, 2].map(|c| wavelet[c] * (1.0 - share) + hsv[c] * share)
        });
    }
}
