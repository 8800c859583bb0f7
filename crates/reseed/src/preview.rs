//! One frame of a job, before the job runs.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use reseed_media::{Depth, Frame, Info, Rate, Samples, Size, Source};

use crate::error::{Error, RangeError, Result};
use crate::observer::Observer;
use crate::position::Position;
use crate::range_job::RangeJob;
use crate::session::Session;
use crate::settings::Settings;
use crate::view::{BLACK, View, WHITE};

/// Times are given in microseconds, which may be rounded down.
const TOLERANCE: Duration = Duration::from_micros(1);
/// Columns of the line between the two halves of a wipe.
const LINE: usize = 2;

/// How a result is shown beside its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The input to the left of the result.
    Side,
    /// The left half of the input and the right half of the result, with a line between them.
    Wipe,
}

/// One frame of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// The index of the frame.
    pub number: usize,
    /// The input, resized to the size of the result by bicubic interpolation.
    pub input: Frame,
    /// The result, as a job on the whole clip makes it.
    pub output: Frame,
}

impl Session {
    /// Computes one frame of the clip that `source` reads from its start. Its pixels are those of a job on the whole
    /// clip: the batches are the same, and only those that the frame depends on are computed. All frames before it are
    /// read, unless shots are not detected.
    ///
    /// ```
    /// use reseed::{Position, Session, Settings, Target};
    ///
    /// let session = Session::builder().model("formula:tiny").device("cpu").threads(1).open()?;
    /// let settings = Settings { target: Target::Scale(1.5), ..Settings::default() };
    /// let preview = session.preview(&mut *reseed::media::sample(), Position::Frame(6), &settings, &mut ())?;
    /// assert_eq!(preview.output.size.to_string(), "144x96");
    /// # Ok::<(), reseed::Error>(())
    /// ```
    pub fn preview(
        &self,
        source: &mut dyn Source,
        at: Position,
        settings: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<Preview> {
        let mut job = RangeJob::new(self, source.info(), settings)?;
        let view = View::new(settings.geometry(source.info())?);
        let (number, read) = Search { job: &mut job, source, at, observer }.run()?;
        let mut provider = |index: usize| Ok(read.frame(index).clone());
        let output = job.frames(self, number..number + 1, &mut provider, observer)?.swap_remove(0);
        Ok(Preview { number, input: resized(&view, read.frame(number), output.depth()), output })
    }
}

impl Settings {
    /// A frame of an input at the size of the result, resized as [`Preview::input`] is.
    pub fn resized_input(&self, input: &Info, frame: &Frame) -> Result<Frame> {
        let view = View::new(self.geometry(&Info { size: frame.size, ..input.clone() })?);
        Ok(resized(&view, frame, frame.depth()))
    }
}

/// The frame at the output size.
fn resized(view: &View, frame: &Frame, depth: Depth) -> Frame {
    let size = view.geometry().output;
    let mut samples = Samples::black(depth, 3 * size.pixels());
    samples.set_between(&view.cropped(frame), [BLACK, WHITE]);
    let alpha = frame.alpha.as_ref().map(|alpha| Samples::from_unit(&view.alpha(alpha), depth));
    Frame { size, samples, alpha }
}

/// The last frames that were read.
#[derive(Default)]
struct Recent {
    frames: VecDeque<Frame>,
    /// The index of the first of them.
    first: usize,
}

impl Recent {
    fn frame(&self, index: usize) -> &Frame {
        &self.frames[index - self.first]
    }

    /// Adds a frame and drops those before `needed`.
    fn push(&mut self, frame: Frame, needed: usize) {
        self.frames.push_back(frame);
        while self.first < needed && self.frames.len() > 1 {
            self.frames.pop_front();
            self.first += 1;
        }
    }
}

/// Reads a clip up to the frames that its frame at a position depends on.
struct Search<'a> {
    job: &'a mut RangeJob,
    source: &'a mut dyn Source,
    at: Position,
    observer: &'a mut dyn Observer,
}

impl Search<'_> {
    /// The index of the frame, and the frames that it depends on.
    fn run(self) -> Result<(usize, Recent)> {
        let (mut read, mut number) = (Recent::default(), None);
        if let (Position::Frame(index), Some(needed)) = (self.at, self.needed(self.at)) {
            read.first = self.source.skip(needed.start).map_err(Error::Input)?;
            number = Some(index);
        }
        loop {
            let next = read.first + read.frames.len();
            if let Some((number, _)) = number.zip(number.and_then(|n| self.complete(n, next))) {
                return Ok((number, read));
            }
            if self.observer.cancelled() {
                return Err(Error::Cancelled);
            }
            let Some(frame) = self.source.next().map_err(Error::Input)? else {
                self.job.grid_mut().finish();
                let last = next.checked_sub(1).ok_or(Error::NoFrames { path: None })?;
                let number = number.or_else(|| self.is_shown_last(last).then_some(last)).filter(|n| *n <= last);
                let number = number.ok_or_else(|| self.beyond(next))?;
                return Ok((number, read));
            };
            if self.job.grid().frames().is_none() {
                self.job.grid_mut().push(&frame);
            }
            number = number.or_else(|| self.reached(next));
            read.push(frame, self.oldest(number.unwrap_or(next)));
        }
    }

    /// The frames that a position depends on, if that is known before any is read.
    fn needed(&self, at: Position) -> Option<Range<usize>> {
        match at {
            Position::Frame(index) => self.job.grid().input_of(index..index + 1),
            Position::Time(_) => None,
        }
    }

    /// The frames of a position, if all are read.
    fn complete(&self, number: usize, next: usize) -> Option<Range<usize>> {
        self.job.grid().input_of(number..number + 1).filter(|needed| needed.end <= next)
    }

    /// The first frame that a batch with this frame, or with the one before it, can need.
    fn oldest(&self, number: usize) -> usize {
        number.saturating_sub(self.job.longest_batch() + 1)
    }

    /// The frame at the position, if the frame with index `read` that was just read shows which it is.
    fn reached(&self, read: usize) -> Option<usize> {
        match self.at {
            Position::Frame(index) => (read >= index).then_some(index),
            Position::Time(time) if self.time(read) > time + TOLERANCE => Some(read.saturating_sub(1)),
            Position::Time(_) => None,
        }
    }

    /// Whether the last frame is shown at the time.
    fn is_shown_last(&self, last: usize) -> bool {
        matches!(self.at, Position::Time(time) if time < self.time(last) + self.length())
    }

    fn beyond(&self, frames: usize) -> Error {
        let end = self.time(frames - 1) + self.length();
        RangeError::BeyondEnd { at: self.at, frames, seconds: end.as_secs_f64() }.into()
    }

    /// When a frame that was just read is shown.
    fn time(&self, index: usize) -> Duration {
        let Rate { num, den } = self.source.info().rate;
        let regular = || Duration::from_secs_f64(index as f64 * f64::from(den) / f64::from(num.max(1)));
        self.source.time().unwrap_or_else(regular)
    }

    /// How long a frame is shown.
    fn length(&self) -> Duration {
        let Rate { num, den } = self.source.info().rate;
        Duration::from_secs_f64(f64::from(den) / f64::from(num.max(1)))
    }
}

impl Preview {
    /// The result beside its input.
    pub fn compared(&self, how: Comparison) -> Frame {
        let Size { h, w } = self.output.size;
        let half = w / 2;
        let (width, from_input, line) = match how {
            Comparison::Side => (2 * w, w, 0),
            Comparison::Wipe => (w, half, LINE.min(w)),
        };
        let from_output = |x: usize| if how == Comparison::Side { x - w } else { x };
        let on_line = |x: usize| line > 0 && (half - line.min(half) / 2..half + line.div_ceil(2)).contains(&x);
        let pick = |of: &dyn Fn(&Frame) -> (Vec<f32>, usize)| {
            let ((before, channels), (after, _)) = (of(&self.input), of(&self.output));
            let mut values = Vec::with_capacity(h * width * channels);
            for (y, x) in (0..h).flat_map(|y| (0..width).map(move |x| (y, x))) {
                let at = |x: usize| channels * (y * w + x)..channels * (y * w + x + 1);
                match x {
                    x if on_line(x) => values.extend(std::iter::repeat_n(1.0, channels)),
                    x if x < from_input => values.extend_from_slice(&before[at(x)]),
                    x => values.extend_from_slice(&after[at(from_output(x))]),
                }
            }
            Samples::from_unit(&values, self.output.depth())
        };
        let alpha = |frame: &Frame| {
            let mut unit = vec![1.0; h * w];
            if let Some(alpha) = &frame.alpha {
                alpha.copy_to_unit(0..h * w, &mut unit);
            }
            (unit, 1)
        };
        let samples = pick(&|frame: &Frame| (frame.to_unit(), 3));
        let alpha = self.output.alpha.as_ref().map(|_| pick(&alpha));
        Frame { size: Size { h, w: width }, samples, alpha }
    }
}
