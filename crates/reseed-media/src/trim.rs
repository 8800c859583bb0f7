//! A part of a source, by time.

use std::time::Duration;

use crate::delays::Animation;
use crate::error::Result;
use crate::frame::{Frame, Rate, Samples};
use crate::problem::Problem;
use crate::stream::{Info, Kind, Source};
use crate::video::Clip;

/// The frames of a source from a start time to an end time.
pub(crate) struct Trimmed {
    source: Box<dyn Source>,
    info: Info,
    /// The number of frames left to read; `None` without an end time.
    left: Option<usize>,
    /// Frames of the source that were skipped or read.
    passed: usize,
}

impl Trimmed {
    pub fn new(mut source: Box<dyn Source>, clip: Clip) -> Result<Trimmed> {
        let mut info = source.info().clone();
        let first = |time: Duration| match &info.kind {
            Kind::Animation(animation) => first_shown_at(time, animation),
            _ => first_at(time, info.rate),
        };
        let start = clip.start.map_or(0, first);
        let end = clip.end.map(first);
        source.skip(start)?;
        let left = end.map(|end| end.saturating_sub(start));
        let all = info.frames.map(|frames| frames.saturating_sub(start));
        info.frames = all.map(|frames| left.map_or(frames, |left| frames.min(left))).or(left);
        info.names = info.names.into_iter().skip(start).take(left.unwrap_or(usize::MAX)).collect();
        if let Kind::Animation(animation) = &mut info.kind {
            let end = end.unwrap_or(usize::MAX).min(animation.delays.len()).max(start);
            *animation = animation.part(start..end);
        }
        Ok(Trimmed { source, info, left, passed: start })
    }
}

/// The index of the first frame at or after `time`.
fn first_at(time: Duration, rate: Rate) -> usize {
    let frames = time.as_micros() * u128::from(rate.num);
    frames.div_ceil(1_000_000 * u128::from(rate.den)).try_into().unwrap_or(usize::MAX)
}

/// The index of the first frame of an animation at or after `time`.
fn first_shown_at(time: Duration, animation: &Animation) -> usize {
    let times = animation.shown().times(1_000_000);
    times.iter().position(|start| u128::from(*start) >= time.as_micros()).unwrap_or(times.len())
}

impl Source for Trimmed {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        match &mut self.left {
            Some(0) => return Ok(None),
            Some(left) => *left -= 1,
            None => {}
        }
        let frame = self.source.next()?;
        self.passed += usize::from(frame.is_some());
        Ok(frame)
    }

    fn time(&self) -> Option<Duration> {
        let Rate { num, den } = self.info.rate;
        let regular = || {
            let frames = self.passed.saturating_sub(1) as f64;
            Duration::from_secs_f64(frames * f64::from(den) / f64::from(num.max(1)))
        };
        Some(self.source.time().unwrap_or_else(regular))
    }

    fn reuse(&mut self, done: Samples) {
        self.source.reuse(done);
    }

    fn problems(&mut self) -> Vec<Problem> {
        self.source.problems()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::y4m::sample;

    #[test]
    fn the_start_frame_is_included_and_the_end_frame_is_not() {
        let rate = sample().info().rate;
        let at = |frame: u32| Some(Duration::from_secs_f64(f64::from(frame * rate.den) / f64::from(rate.num)));
        let mut complete = sample();
        let all: Vec<Frame> = std::iter::from_fn(|| complete.next().unwrap()).collect();
        let mut part = Trimmed::new(sample(), Clip { start: at(2), end: at(5), ..Clip::default() }).unwrap();
        assert_eq!(part.info().frames, Some(3));
        let frames: Vec<Frame> = std::iter::from_fn(|| part.next().unwrap()).collect();
        assert!(frames == all[2..5]);
        let rest = Trimmed::new(sample(), Clip { start: at(7), ..Clip::default() }).unwrap();
        assert_eq!(rest.info().frames, Some(2));
    }
}
