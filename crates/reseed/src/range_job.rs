//! Jobs on any part of a clip.

use std::ops::Range;

use reseed_media::{Frame, Info, Sink};

use crate::checkpoint::{Checkpoint, Recorder};
use crate::error::{RangeError, Result};
use crate::grid::BatchGrid;
use crate::numeric_class::{ClassCheck, NumericClass};
use crate::observer::Observer;
use crate::part::{ClipInput, FrameProvider, Part};
use crate::report::Report;
use crate::session::{Environment, FrameCollector, Output, Session, Watch};
use crate::settings::Settings;

/// Computes any frames of a clip. Each has the bytes that a job on the whole clip gives it.
///
/// The batches of a range are computed whole, so that a range which [covers](BatchGrid::covering) them wastes nothing.
/// Where batches are cross-faded, a range also needs the batches after it. A range that continues the last one takes
/// these from it: ranges in order cost as much as the whole job. The same device, model and memory budget are assumed;
/// see [`JobPlan::is_inexact`](crate::JobPlan::is_inexact) for plans that change the result.
///
/// ```
/// use reseed::{RangeJob, Session, Settings, Target};
///
/// let session = Session::builder().model("formula:tiny").device("cpu").threads(1).open()?;
/// let mut clip = reseed::media::sample();
/// let settings = Settings { target: Target::Scale(1.5), ..Settings::default() };
/// let mut job = RangeJob::new(&session, clip.info(), &settings)?;
/// let mut frames = Vec::new();
/// while let Some(frame) = clip.next()? {
///     job.grid_mut().push(&frame);
///     frames.push(frame);
/// }
/// job.grid_mut().finish();
///
/// let mut source = |index: usize| Ok(frames[index].clone());
/// let seventh = job.frames(&session, 7..8, &mut source, &mut ())?;
/// # let seventh = &seventh[0];
/// let whole = session.upscale_frames(frames, &settings, &mut ())?;
/// assert!(*seventh == whole[7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RangeJob {
    settings: Settings,
    info: Info,
    grid: BatchGrid,
    held: Option<CarriedFrames>,
}

/// What the last range leaves to the next: frames that are cross-faded with batches computed already.
struct CarriedFrames {
    /// The batch that adds the first of them.
    first: usize,
    frames: Vec<Vec<Vec<f32>>>,
}

impl RangeJob {
    /// A job on a clip. Its grid is empty unless shots are not detected and the number of frames is known.
    pub fn new(session: &Session, input: &Info, settings: &Settings) -> Result<RangeJob> {
        if input.kind.is_still() {
            return Err(RangeError::OfImages.into());
        }
        let settings = session.resolved(settings)?;
        settings.geometry(input)?;
        let grid = BatchGrid::new(&settings, input.frames);
        Ok(RangeJob { settings, info: input.clone(), grid, held: None })
    }

    /// The batches of the clip.
    pub fn grid(&self) -> &BatchGrid {
        &self.grid
    }

    /// The batches of the clip, to add frames to them.
    pub fn grid_mut(&mut self) -> &mut BatchGrid {
        &mut self.grid
    }

    /// The most frames before a frame that its batches have.
    pub(crate) fn longest_batch(&self) -> usize {
        self.settings.batching.size + self.settings.lead_in
    }

    /// What the results are.
    pub fn output_info(&self) -> Result<Info> {
        self.settings.output(&self.info)
    }

    /// Restores and upscales the frames of a range into `sink`, which is finished after the last one. The grid must
    /// [know](BatchGrid::covering) their batches. Reads only the [frames](BatchGrid::input_of) that they depend on.
    pub fn run(
        &mut self,
        session: &Session,
        frames: Range<usize>,
        source: &mut dyn FrameProvider,
        sink: Box<dyn Sink>,
        observer: &mut dyn Observer,
    ) -> Result<Report> {
        self.run_with(session, frames, source, sink, (observer, None))
    }

    /// The same as a part of a job on many machines: `class` decides whether this one may compute it, and the plan of
    /// the memory never changes.
    pub(crate) fn run_pinned(
        &mut self,
        session: &Session,
        frames: Range<usize>,
        source: &mut dyn FrameProvider,
        sink: Box<dyn Sink>,
        (observer, class): (&mut dyn Observer, ClassCheck),
    ) -> Result<Report> {
        self.run_with(session, frames, source, sink, (observer, Some(class)))
    }

    fn run_with(
        &mut self,
        session: &Session,
        frames: Range<usize>,
        source: &mut dyn FrameProvider,
        sink: Box<dyn Sink>,
        (observer, class): (&mut dyn Observer, Option<ClassCheck>),
    ) -> Result<Report> {
        let RangeJob { settings, info, grid, .. } = self;
        let outside = || RangeError::Unknown { start: frames.start, end: frames.end, frames: grid.frames() };
        let batches = grid.batches(frames.clone()).ok_or_else(outside)?;
        let covering = grid.covering(frames.clone()).ok_or_else(outside)?;
        let held =
            self.held.take().filter(|held| held.first == batches.start).map_or_else(Vec::new, |held| held.frames);
        let from = Checkpoint {
            batches: batches.start + held.len(),
            frames: covering.start,
            lead_in: grid.lead_in_before(batches.start),
            held,
            shot: grid.shot(batches.start),
        };
        let sink = RangeSink { sink, skip: frames.start - covering.start, left: frames.len() };
        let class = class.map(|check| Class { check, here: None });
        let mut output = RangeOutput { sink: Some(Box::new(sink)), from, end: batches.end, held: None, class };
        let part = ClipInput::Part(Part { info, grid, frames, batches, provider: source });
        let report = session.execute_with(part, settings, &mut output, (observer, None))?;
        self.held = output.held;
        Ok(report)
    }

    /// The same into memory.
    pub fn frames(
        &mut self,
        session: &Session,
        frames: Range<usize>,
        source: &mut dyn FrameProvider,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Frame>> {
        let collector = FrameCollector::default();
        self.run(session, frames, source, Box::new(collector.clone()), observer)?;
        Ok(collector.take())
    }
}

/// The frames of a range, out of those that its batches add.
struct RangeSink {
    sink: Box<dyn Sink>,
    skip: usize,
    left: usize,
}

impl Sink for RangeSink {
    fn write(&mut self, frame: &Frame) -> reseed_media::Result<()> {
        if self.skip > 0 {
            self.skip -= 1;
        } else if self.left > 0 {
            self.left -= 1;
            return self.sink.write(frame);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> reseed_media::Result<()> {
        self.sink.finish()
    }
}

/// The sink of a range and what it leaves to the next.
struct RangeOutput<'a> {
    sink: Option<Box<dyn Sink>>,
    from: Checkpoint,
    /// The batch after the last one of the range.
    end: usize,
    held: Option<CarriedFrames>,
    class: Option<Class<'a>>,
}

/// The numeric class of this machine and who decides on it.
struct Class<'a> {
    check: ClassCheck<'a>,
    here: Option<NumericClass>,
}

impl Output for RangeOutput<'_> {
    fn open(&mut self, _: &Info, environment: &Environment) -> Result<Box<dyn Sink>> {
        if let Some(class) = &mut self.class {
            let here = NumericClass::new(environment)?;
            (class.check)(&here)?;
            class.here = Some(here);
        }
        Ok(self.sink.take().expect("an output is opened once"))
    }

    fn start(&mut self, plan: &str, _: &Info) -> Result<Checkpoint> {
        if let Some(Class { check, here }) = &mut self.class
            && let Some(here) = here.take()
        {
            check(&here.with_plan(plan))?;
        }
        Ok(std::mem::take(&mut self.from))
    }

    fn is_pinned(&self) -> bool {
        self.class.is_some()
    }

    fn watch(&mut self) -> Watch<'_> {
        let recorder = CarriedFramesRecorder { end: self.end, held: &mut self.held };
        Watch { recorder: Some(Box::new(recorder)), ..Watch::default() }
    }
}

/// Keeps the frames after the end of a range that its batches are cross-faded into.
struct CarriedFramesRecorder<'a> {
    end: usize,
    held: &'a mut Option<CarriedFrames>,
}

impl Recorder for CarriedFramesRecorder<'_> {
    fn record(&mut self, point: &Checkpoint, _: &mut dyn Sink) -> reseed_media::Result<()> {
        if point.batches > self.end {
            let before = self.end.saturating_sub(point.first_held());
            let frames = point.held.iter().skip(before).cloned().collect();
            *self.held = Some(CarriedFrames { first: point.first_held().max(self.end), frames });
        }
        Ok(())
    }

    fn is_durable(&self) -> bool {
        false
    }
}
