//! Gives a result back what the input really holds: result ← result + s · up(input - down(result)).
//!
//! Everything that survives in the small picture is then the input's; what the networks made stays where the input says
//! nothing. A noisy input gives its noise back too, so that a model asks for a strength that suits what it was trained on.

use std::borrow::Borrow;

use rayon::prelude::*;
use reseed_media::{Frame, Size};
use reseed_model::weights::Source;

use crate::resize::Resizer;
use crate::size::Geometry;
use crate::view::signed;

/// Values that a thread takes at a time.
const RUN: usize = 1 << 14;

/// The strength that a transformer's file asks for, `low_band` of its metadata, from 0 to 1. The public ones ask for nothing.
pub fn of(dit: &dyn Source) -> reseed_model::Result<f32> {
    let Some(text) = dit.metadata("low_band") else { return Ok(0.0) };
    text.parse().ok().filter(|strength| (0.0..=1.0).contains(strength)).ok_or_else(|| reseed_model::Error::Metadata {
        path: dit.path().into(),
        key: "low_band",
        value: text.into(),
        expected: "it must lie between 0 and 1".into(),
    })
}

/// Gives `pictures`, of the size of a job's output and in about [-1, 1], back what `inputs` hold, frame by frame. Where the
/// output is not larger than the input nothing changes: that would hand the input back.
pub fn apply<F: Borrow<Frame>>(strength: f32, pictures: &mut [Vec<f32>], inputs: &[F], geometry: &Geometry) {
    let whole = geometry.resized();
    if strength == 0.0 || whole.h <= geometry.input.h || whole.w <= geometry.input.w {
        return;
    }
    let band = Band::new(geometry);
    pictures.iter_mut().zip(inputs).for_each(|(picture, input)| band.give_back(picture, input.borrow(), strength));
}

/// The two resamplings between a job's sizes.
struct Band {
    output: Size,
    down: Resizer<3>,
    up: Resizer<3>,
}

impl Band {
    fn new(geometry: &Geometry) -> Band {
        let (input, whole) = (geometry.input, geometry.resized());
        Band { output: geometry.output, down: Resizer::new(whole, input), up: Resizer::new(input, whole) }
    }

    fn give_back(&self, picture: &mut [f32], input: &Frame, strength: f32) {
        picture.par_chunks_mut(RUN).for_each(|run| run.iter_mut().for_each(|value| *value = value.clamp(-1.0, 1.0)));
        let lost = self.lost(picture, input);
        let line = 3 * input.size.w;
        let mut given = vec![0.0; picture.len()];
        let row = |y: usize, row: &mut [f32]| row.copy_from_slice(&lost[y * line..(y + 1) * line]);
        self.up.run(row, &mut given, self.output.w, |value| strength * value);
        picture.par_chunks_mut(RUN).zip(given.par_chunks(RUN)).for_each(|(picture, given)| {
            picture.iter_mut().zip(given).for_each(|(value, given)| *value = (*value + given).clamp(-1.0, 1.0));
        });
    }

    /// input - down(picture).
    fn lost(&self, picture: &[f32], input: &Frame) -> Vec<f32> {
        let Size { h, w } = self.output;
        // A side that lost its odd pixel has it again: its neighbour.
        let row = |y: usize, row: &mut [f32]| {
            let from = &picture[3 * w * y.min(h - 1)..][..3 * w];
            row[..from.len()].copy_from_slice(from);
            (from.len()..row.len()).for_each(|i| row[i] = row[i - 3]);
        };
        let mut lost = vec![0.0; 3 * input.size.pixels()];
        self.down.run(row, &mut lost, input.size.w, |value| value);
        let line = 3 * input.size.w;
        lost.par_chunks_mut(line).enumerate().for_each(|(y, lost)| {
            let mut here = vec![0.0; line];
            input.samples.copy_to_unit(y * line..(y + 1) * line, &mut here);
            lost.iter_mut().zip(&here).for_each(|(lost, here)| *lost = signed(*here) - *lost);
        });
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_media::Samples;
    use reseed_model::dit::{B3, Config};
    use reseed_model::weights::formula::Formula;

    #[test]
    fn a_file_says_what_it_wants_and_is_held_to_sense() {
        let source = || Formula::plain(Config::tiny(B3, 3).tensors(), 1);
        assert_eq!(of(&source()).unwrap(), 0.0);
        assert_eq!(of(&source().with_metadata("low_band", "0.75")).unwrap(), 0.75);
        for value in ["1.5", "-0.1", "NaN", "much"] {
            let refused = of(&source().with_metadata("low_band", value)).unwrap_err().to_string();
            assert!(refused.contains(&format!("`low_band` is \"{value}\"; it must lie between 0 and 1")), "{refused}");
        }
    }

    #[test]
    fn where_nothing_grows_the_result_stays_as_it_is() {
        let size = Size { h: 6, w: 10 };
        for target in [Size { h: 6, w: 10 }, Size { h: 12, w: 10 }, Size { h: 3, w: 5 }] {
            let geometry = Geometry::new(size, crate::Target::Exact(target), None).unwrap();
            let before = vec![vec![0.25; 3 * target.pixels()]];
            let mut after = before.clone();
            let input = Frame { size, samples: Samples::U8(vec![200; 3 * size.pixels()]), alpha: None };
            apply(1.0, &mut after, &[input], &geometry);
            assert_eq!(before, after, "{target}");
        }
    }
}
