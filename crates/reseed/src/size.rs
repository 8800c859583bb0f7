//! Computes the sizes of a job from the input size and the target.

use reseed_media::Size;

use crate::error::{Error, Result};

/// The networks need sides that are multiples of 16: a latent pixel covers 8 pixels, a patch 2 latent pixels.
const SIDE_FACTOR: usize = 16;

/// The requested output size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// The shorter side in pixels; the longer side keeps the aspect ratio.
    ShortSide(usize),
    /// A factor for both sides.
    Scale(f64),
    /// An exact size, which may change the aspect ratio.
    Exact(Size),
}

/// The sizes of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the input frames.
    pub input: Size,
    /// Sizes of the consecutive resampling steps: none, one or two.
    pub steps: Vec<Size>,
    /// Size of the output frames: the top left of the last step.
    pub output: Size,
    /// Size of the padded frames that the networks process.
    pub padded: Size,
}

impl Geometry {
    /// Computes the sizes for frames of size `input`. A result with a side above `longest` is shrunk in a second
    /// resampling step, as in the public pipeline. Odd sides are cropped by one pixel, because most video formats need
    /// even sides; an exact target is not cropped.
    pub fn new(input: Size, target: Target, longest: Option<usize>) -> Result<Geometry> {
        let first = target.size(input);
        let mut steps = if first == input { Vec::new() } else { vec![first] };
        if let Some(limit) = longest.filter(|&limit| limit < first.h.max(first.w)) {
            let ratio = limit as f64 / first.h.max(first.w) as f64;
            let shrunk = both(first, |side| (side as f64 * ratio).round_ties_even() as usize);
            steps.extend((shrunk != first).then_some(shrunk));
        }
        let resized = *steps.last().unwrap_or(&input);
        let output = match target {
            Target::Exact(_) => resized,
            Target::ShortSide(_) | Target::Scale(_) => both(resized, |side| side / 2 * 2),
        };
        if output.h == 0 || output.w == 0 {
            return Err(Error::NoPixels { input, output });
        }
        if !first.is_plausible() {
            return Err(Error::TooLarge { input, output: first });
        }
        Ok(Geometry { input, steps, output, padded: both(resized, |side| side.next_multiple_of(SIDE_FACTOR)) })
    }

    /// Size after the last resampling step, before odd sides are cropped.
    pub fn resized(&self) -> Size {
        *self.steps.last().unwrap_or(&self.input)
    }
}

impl Target {
    /// Size of the first resampling step.
    fn size(self, input: Size) -> Size {
        match self {
            Target::Exact(size) => size,
            // The conversion saturates; `Geometry::new` rejects sides that are too large.
            Target::Scale(scale) => both(input, |side| (side as f64 * scale).round() as usize),
            Target::ShortSide(short) => {
                let (shorter, longer) = (input.h.min(input.w), input.h.max(input.w));
                let long = (short as f64 * longer as f64 / shorter as f64) as usize;
                if input.h < input.w { Size { h: short, w: long } } else { Size { h: long, w: short } }
            }
        }
    }
}

fn both(size: Size, side: impl Fn(usize) -> usize) -> Size {
    Size { h: side(size.h), w: side(size.w) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: Size = Size { h: 30, w: 41 };

    #[test]
    fn a_scale_rounds_both_sides_and_crops_them_to_even() {
        let plan = Geometry::new(INPUT, Target::Scale(2.5), None).unwrap();
        assert_eq!(plan.steps, [Size { h: 75, w: 103 }]);
        assert_eq!((plan.output, plan.padded), (Size { h: 74, w: 102 }, Size { h: 80, w: 112 }));
    }

    #[test]
    fn an_exact_size_is_not_cropped() {
        let size = Size { h: 33, w: 17 };
        let plan = Geometry::new(INPUT, Target::Exact(size), None).unwrap();
        assert_eq!((plan.steps, plan.output), (vec![size], size));
    }

    #[test]
    fn empty_and_too_large_sizes_are_rejected() {
        let no_pixels = |target| matches!(Geometry::new(INPUT, target, None), Err(Error::NoPixels { .. }));
        assert!(no_pixels(Target::Scale(0.01)) && no_pixels(Target::ShortSide(1)) && no_pixels(Target::Scale(-1.0)));
        for target in [Target::Scale(1e9), Target::Scale(f64::INFINITY), Target::ShortSide(usize::MAX / 64)] {
            assert!(matches!(Geometry::new(INPUT, target, None), Err(Error::TooLarge { .. })), "{target:?}");
        }
    }
}
