//! Computes the sizes of a job from the input size and the target.

use std::str::FromStr;

use reseed_media::Size;

use crate::error::{Error, Result};

/// The networks need sides that are multiples of 16: a latent pixel covers 8 pixels, a patch 2 latent pixels.
const SIDE_FACTOR: usize = 16;

/// Words for a shorter side.
const WORDS: [(&str, usize); 8] =
    [("hd", 720), ("fhd", 1080), ("2k", 1440), ("qhd", 1440), ("4k", 2160), ("uhd", 2160), ("5k", 2880), ("8k", 4320)];

/// The requested output size. Parsed from a shorter side (`1080`, `1080p`, `4k`), a factor (`2x`) or a size
/// (`1920x1080`).
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
    /// resampling step, as in the public pipeline; where the first step would be too large, there is only the second.
    pub fn new(input: Size, target: Target, longest: Option<usize>) -> Result<Geometry> {
        let first = target.size(input);
        let mut steps = if first == input { Vec::new() } else { vec![first] };
        if let Some(limit) = longest.filter(|&limit| limit < first.h.max(first.w)) {
            let from = if first.is_plausible() { first } else { input };
            let ratio = limit as f64 / from.h.max(from.w) as f64;
            let shrunk = both(from, |side| (side as f64 * ratio).round_ties_even() as usize);
            if !first.is_plausible() {
                steps.clear();
            }
            steps.extend((shrunk != from).then_some(shrunk));
        }
        let output = *steps.last().unwrap_or(&input);
        if output.h == 0 || output.w == 0 {
            return Err(Error::NoPixels { input, output });
        }
        if !output.is_plausible() {
            return Err(Error::TooLarge { input, output });
        }
        Ok(Geometry { input, steps, output, padded: both(output, |side| side.next_multiple_of(SIDE_FACTOR)) })
    }

    /// The same with odd sides of the output cropped by one pixel, for formats that need even sides.
    pub fn even(self) -> Result<Geometry> {
        let (input, output) = (self.input, both(self.output, |side| side / 2 * 2));
        match output.h == 0 || output.w == 0 {
            true => Err(Error::NoPixels { input, output }),
            false => Ok(Geometry { output, ..self }),
        }
    }

    /// Whether a side of the result is smaller than that of the input.
    pub fn shrinks(&self) -> bool {
        self.resized().h < self.input.h || self.resized().w < self.input.w
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

/// An error names the forms of a target.
impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Target, String> {
        let unknown = || format!("`{text}` is no size; use a shorter side such as 1080, 1080p or 4k, 2x, or 1920x1080");
        let lower = text.trim().to_ascii_lowercase();
        let positive = |number: &str| number.parse().ok().filter(|side| *side > 0).ok_or_else(unknown);
        if let Some((_, side)) = WORDS.iter().find(|(word, _)| *word == lower) {
            return Ok(Target::ShortSide(*side));
        }
        match lower.split_once('x') {
            None => positive(lower.strip_suffix('p').unwrap_or(&lower)).map(Target::ShortSide),
            Some((factor, "") | ("", factor)) => {
                let factor = factor.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
                factor.map(Target::Scale).ok_or_else(unknown)
            }
            Some((w, h)) => Ok(Target::Exact(Size { h: positive(h)?, w: positive(w)? })),
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
    fn a_scale_rounds_both_sides_and_crops_them_only_where_a_format_needs_it() {
        let plan = Geometry::new(INPUT, Target::Scale(2.5), None).unwrap();
        assert_eq!(plan.steps, [Size { h: 75, w: 103 }]);
        assert_eq!((plan.output, plan.padded), (Size { h: 75, w: 103 }, Size { h: 80, w: 112 }));
        let even = plan.even().unwrap();
        assert_eq!((even.output, even.padded), (Size { h: 74, w: 102 }, Size { h: 80, w: 112 }));
        let photo = Geometry::new(Size { h: 5, w: 7 }, Target::Scale(3.0), None).unwrap();
        assert_eq!(photo.output, Size { h: 15, w: 21 });
    }

    /// The longest side is a limit for the result, so that only the result has to be small enough.
    #[test]
    fn the_longest_side_is_applied_before_sizes_are_refused() {
        let input = Size { h: 2160, w: 3840 };
        for target in [Target::Scale(100.0), Target::Scale(f64::INFINITY), Target::ShortSide(usize::MAX / 64)] {
            let plan = Geometry::new(input, target, Some(1920)).unwrap();
            assert_eq!((&plan.steps[..], plan.output), (&[Size { h: 1080, w: 1920 }][..], Size { h: 1080, w: 1920 }));
        }
        let plan = Geometry::new(input, Target::Scale(2.0), Some(1920)).unwrap();
        assert_eq!(plan.steps, [Size { h: 4320, w: 7680 }, Size { h: 1080, w: 1920 }], "as in the public pipeline");
        assert!(plan.shrinks());
        assert!(!Geometry::new(INPUT, Target::Scale(1.0), None).unwrap().even().unwrap().shrinks());
    }

    #[test]
    fn targets_are_parsed() {
        let side = |side| Ok(Target::ShortSide(side));
        for (text, target) in [("1080", side(1080)), ("720p", side(720)), ("1080P", side(1080)), ("4k", side(2160))] {
            assert_eq!(text.parse(), target, "{text}");
        }
        for (text, target) in [
            ("8K", Target::ShortSide(4320)),
            ("2x", Target::Scale(2.0)),
            ("1.5x", Target::Scale(1.5)),
            ("1920x1080", Target::Exact(Size { h: 1080, w: 1920 })),
        ] {
            assert_eq!(text.parse(), Ok(target), "{text}");
        }
        for text in ["", "p", "0", "0x", "-2x", "x", "infx", "1920x0", "1080i", "3k", "99999999999999999999"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
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
        assert!(no_pixels(Target::Scale(0.01)) && no_pixels(Target::ShortSide(0)) && no_pixels(Target::Scale(-1.0)));
        let line = Geometry::new(INPUT, Target::ShortSide(1), None).unwrap();
        assert!(matches!(line.even(), Err(Error::NoPixels { .. })));
        for target in [Target::Scale(1e9), Target::Scale(f64::INFINITY), Target::ShortSide(usize::MAX / 64)] {
            assert!(matches!(Geometry::new(INPUT, target, None), Err(Error::TooLarge { .. })), "{target:?}");
        }
    }
}
