//! Pans over a photograph, and how evenly sharp their frames are. A model that restores some frames of a batch better
//! than others makes a pan pulse at the rate of the batches.

use reseed_media::{Frame, Size};

/// Frames before and after a frame that it is compared with.
const AROUND: usize = 2;

/// Frames that a camera sees which moves over a photograph by `step` pixels to the right and back for every frame.
pub fn pan(photograph: &Frame, size: Size, step: usize, frames: usize) -> Vec<Frame> {
    let room = photograph.size.w - size.w;
    let unit = photograph.to_unit();
    let top = (photograph.size.h - size.h) / 2;
    let frame = |i: usize| {
        // There and back again.
        let way = (i * step) % (2 * room).max(1);
        let left = way.min(2 * room - way);
        let row = |y: usize| &unit[3 * ((top + y) * photograph.size.w + left)..][..3 * size.w];
        let values: Vec<f32> = (0..size.h).flat_map(row).copied().collect();
        Frame::from_unit(size, &values, photograph.depth())
    };
    (0..frames).map(frame).collect()
}

/// Root mean square of the differences between neighbouring pixels of the luma.
pub fn sharpness(frame: &Frame) -> f64 {
    let Size { h, w } = frame.size;
    let unit = frame.to_unit();
    let (pixels, _) = unit.as_chunks::<3>();
    let luma: Vec<f64> =
        pixels.iter().map(|[r, g, b]| f64::from(0.2126 * r) + f64::from(0.7152 * g) + f64::from(0.0722 * b)).collect();
    let mut sum = 0.0;
    for y in 0..h - 1 {
        for x in 0..w - 1 {
            let (here, right, below) = (luma[y * w + x], luma[y * w + x + 1], luma[(y + 1) * w + x]);
            sum += (right - here).powi(2) + (below - here).powi(2);
        }
    }
    (sum / ((h - 1) * (w - 1)) as f64).sqrt()
}

/// Sharpness of each result relative to its original.
pub fn relative_sharpness(results: &[Frame], originals: &[Frame]) -> Vec<f64> {
    results.iter().zip(originals).map(|(result, original)| sharpness(result) / sharpness(original)).collect()
}

/// Largest deviation of the relative sharpness of a frame from the median of five frames around it, as a fraction: zero
/// is best. The first frame of a shot has no frames before it and does not count.
pub fn pulse(relative: &[f64]) -> f64 {
    let deviation = |frames: &[f64]| {
        let mut sorted = frames.to_vec();
        sorted.sort_by(f64::total_cmp);
        (frames[AROUND] / sorted[AROUND] - 1.0).abs()
    };
    relative.get(1..).unwrap_or_default().windows(2 * AROUND + 1).map(deviation).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sharper_frame_is_a_pulse_and_a_slow_change_is_none() {
        let mut relative: Vec<f64> = (0..12).map(|i| 0.7 - 0.001 * f64::from(i)).collect();
        assert!(pulse(&relative) < 1e-12);
        relative[6] *= 1.1;
        assert!((pulse(&relative) - 0.1).abs() < 0.002);
        assert_eq!(pulse(&relative[..3]), 0.0);
    }
}
