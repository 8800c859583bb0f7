//! From the size of the input to the sizes that a job works at.

use reseed_media::Size;

use crate::error::{Error, Result};

/// Sides that the networks see are multiples of this: eight pixels a latent, two latents a patch.
const SIDE_FACTOR: usize = 16;

/// What a user asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// The shorter side in pixels; the longer follows.
    ShortSide(usize),
    /// Both sides times this.
    Scale(f64),
    /// This size, whatever it does to the picture's proportions.
    Exact(Size),
}

/// The sizes of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Of the frames that are read.
    pub input: Size,
    /// Sizes to resample to, one after the other: none, one or two.
    pub steps: Vec<Size>,
    /// Of the frames that are written: the top left of the last step.
    pub output: Size,
    /// Of the frames that the networks see.
    pub padded: Size,
}

impl Geometry {
    /// Plans the sizes for frames of size `input`. A result longer than `longest` is shrunk, from the picture already
    /// resampled, as the public pipeline does. Unless a size was asked for by name, odd sides lose a pixel, because most
    /// video formats hold only even ones.
    pub fn new(input: Size, target: Target, longest: Option<usize>) -> Result<Geometry> {
        let first = target.of(input);
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

    /// Size of the input resampled: the output's, with the odd pixels that it may have lost.
    pub fn resized(&self) -> Size {
        *self.steps.last().unwrap_or(&self.input)
    }
}

impl Target {
    fn of(self, input: Size) -> Size {
        match self {
            Target::Exact(size) => size,
            // Sides beyond any picture's saturate here and are refused by their size.
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
    fn a_scale_rounds_both_sides_and_keeps_them_even() {
        let plan = Geometry::new(INPUT, Target::Scale(2.5), None).unwrap();
        assert_eq!(plan.steps, [Size { h: 75, w: 103 }]);
        assert_eq!((plan.output, plan.padded), (Size { h: 74, w: 102 }, Size { h: 80, w: 112 }));
    }

    #[test]
    fn a_size_asked_for_by_name_is_kept_to_the_pixel() {
        let size = Size { h: 33, w: 17 };
        let plan = Geometry::new(INPUT, Target::Exact(size), None).unwrap();
        assert_eq!((plan.steps, plan.output), (vec![size], size));
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        let no_pixels = |target| matches!(Geometry::new(INPUT, target, None), Err(Error::NoPixels { .. }));
        assert!(no_pixels(Target::Scale(0.01)) && no_pixels(Target::ShortSide(1)) && no_pixels(Target::Scale(-1.0)));
        for target in [Target::Scale(1e9), Target::Scale(f64::INFINITY), Target::ShortSide(usize::MAX / 64)] {
            assert!(matches!(Geometry::new(INPUT, target, None), Err(Error::TooLarge { .. })), "{target:?}");
        }
    }
}
