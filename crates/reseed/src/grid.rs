//! The batches of a clip, known without computing them: what a job on a part of the clip needs.

use std::ops::Range;

use reseed_media::Frame;

use crate::batch::{Batching, End, ShotStart, extend};
use crate::settings::Settings;
use crate::shot::{FrameSignature, ShotDetector};

/// The shots and batches of a clip.
///
/// A batch *adds* the frames that it does not share with the batch before it. Its result also depends on the batches
/// that are cross-faded into these frames. The grid depends on the cuts only, so that one cheap pass over the input
/// finds it: [`push`](BatchGrid::push) takes its frames in order, [`finish`](BatchGrid::finish) ends it. A grid answers
/// for the frames that it has passed and can grow while they are computed. Without shot detection, the number of frames
/// is enough.
///
/// ```
/// use reseed::{RangeJob, Session, Settings};
///
/// let session = Session::builder().model("formula:tiny").device("cpu").threads(1).open()?;
/// let mut clip = reseed::media::sample();
/// let mut job = RangeJob::new(&session, clip.info(), &Settings::default())?;
/// while let Some(frame) = clip.next()? {
///     job.grid_mut().push(&frame);
/// }
/// job.grid_mut().finish();
/// assert_eq!(job.grid().frames(), Some(9));
/// assert_eq!(job.grid().covering(6..7), Some(5..9), "the second batch of five adds four frames");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct BatchGrid {
    batching: Batching,
    lead_in: usize,
    detect_shots: bool,
    /// How many batches of a shot after a batch change the frames that it adds.
    reach: usize,
    shots: Vec<ShotStart>,
    /// The first frames, until all that the lead-in mirrors are here.
    head: Vec<FrameSignature>,
    detector: ShotDetector<()>,
    /// Frames of the clip that were pushed.
    pushed: usize,
    /// Frames of the job, which include the lead-in, whose shot is known.
    decided: usize,
    ended: bool,
}

impl BatchGrid {
    /// The grid of a clip with these settings. It is complete if shots are not detected and the length is known.
    pub(crate) fn new(settings: &Settings, frames: Option<usize>) -> BatchGrid {
        let Settings { batching, lead_in, detect_shots, overlap, .. } = *settings;
        let mut grid = BatchGrid {
            batching,
            lead_in,
            detect_shots,
            reach: reach(batching, &overlap.weights(batching.shared())),
            shots: vec![ShotStart::default()],
            head: Vec::new(),
            detector: ShotDetector::default(),
            pushed: 0,
            decided: 0,
            ended: false,
        };
        if let Some(frames) = frames.filter(|_| !detect_shots) {
            grid.complete(frames);
        }
        grid
    }

    /// Adds the next frame of the clip.
    pub fn push(&mut self, frame: &Frame) {
        assert!(!self.ended, "a complete grid takes no frames");
        self.pushed += 1;
        if !self.detect_shots {
            self.decided = if self.pushed > self.lead_in { self.lead_in + self.pushed } else { 0 };
            return;
        }
        let signature = FrameSignature::new(frame);
        if self.pushed > self.lead_in + 1 || self.lead_in == 0 {
            return self.detect(signature);
        }
        self.head.push(signature);
        if self.head.len() > self.lead_in {
            self.detect_head();
        }
    }

    /// The clip has no more frames.
    pub fn finish(&mut self) {
        if self.ended {
            return;
        }
        self.detect_head();
        if let Some(((), cut)) = self.detector.finish() {
            self.decide(cut);
        }
        if !self.detect_shots {
            self.complete(self.pushed);
        }
        self.ended = true;
    }

    /// A complete grid from the [cuts](BatchGrid::cuts) of an earlier one with the same settings, for a clip of so many
    /// frames.
    pub fn with_cuts(self, cuts: &[usize], frames: usize) -> BatchGrid {
        let mut grid = BatchGrid { shots: vec![ShotStart::default()], decided: 0, ..self };
        for cut in cuts {
            grid.decided = *cut;
            grid.start_shot();
        }
        grid.complete(frames);
        grid
    }

    /// The first frames of the shots after the first one, counted from the start of the lead-in. Together with the
    /// number of frames they are the whole state of a complete grid.
    pub fn cuts(&self) -> Vec<usize> {
        self.shots[1..].iter().map(|shot| shot.frame).collect()
    }

    /// Frames of the clip that were pushed: the index of the next one.
    pub fn pushed(&self) -> usize {
        self.pushed
    }

    /// Frames of the clip, once it has ended.
    pub fn frames(&self) -> Option<usize> {
        self.ended.then(|| self.decided.saturating_sub(self.lead_in))
    }

    /// How many frames of the clip are enough to know the batches of these frames.
    pub fn enough_for(&self, frames: Range<usize>) -> usize {
        let Batching { size, .. } = self.batching;
        (frames.end + size + self.reach * self.step() + 1).max(self.lead_in + 1)
    }

    /// All frames that the batches of `frames` add: computing one of them is computing all. `None` while the grid does
    /// not reach that far, and for no frames.
    pub fn covering(&self, frames: Range<usize>) -> Option<Range<usize>> {
        let batches = self.batches(frames)?;
        let clip = |frame: usize| frame.saturating_sub(self.lead_in);
        Some(clip(self.added(batches.start).start)..clip(self.added(batches.end - 1).end))
    }

    /// The frames of the input that computing `frames` reads. `None` as in [`covering`](BatchGrid::covering).
    pub fn input_of(&self, frames: Range<usize>) -> Option<Range<usize>> {
        let batches = self.computed(self.batches(frames)?);
        let job = self.batch(batches.start).start..self.batch(batches.end - 1).end;
        let read = job.map(|frame| self.clip_frame(frame));
        let (first, last) = read.fold((usize::MAX, 0), |(first, last), frame| (first.min(frame), last.max(frame)));
        Some(first..last + 1)
    }

    /// The batches that add frames of the clip.
    pub(crate) fn batches(&self, frames: Range<usize>) -> Option<Range<usize>> {
        if frames.is_empty() || (self.lead_in > 0 && !self.knows_lead_in()) {
            return None;
        }
        let first = self.batch_adding(self.lead_in + frames.start)?;
        let last = self.batch_adding(self.lead_in + frames.end - 1)?;
        Some(first..last + 1)
    }

    /// The batches to compute for what these batches add.
    pub(crate) fn computed(&self, batches: Range<usize>) -> Range<usize> {
        let (_, end) = self.shot_of(batches.end - 1);
        let last = batches.end - 1 + self.reach;
        batches.start..end.map_or(last, |end| last.min(self.batches_before(end) - 1)) + 1
    }

    /// How the clip is split.
    pub(crate) fn batching(&self) -> Batching {
        self.batching
    }

    /// Frames of the lead-in before the frames that a batch adds.
    pub(crate) fn lead_in_before(&self, batch: usize) -> usize {
        self.added(batch).start.min(self.lead_in)
    }

    /// The shot of a batch.
    pub(crate) fn shot(&self, batch: usize) -> ShotStart {
        self.shot_of(batch).0
    }

    /// The frames of a batch, in frames of the job.
    pub(crate) fn batch(&self, batch: usize) -> Range<usize> {
        let (shot, end) = self.shot_of(batch);
        let start = shot.frame + (batch - shot.batch) * self.step();
        let full = start + self.batching.size;
        start..end.map_or(full, |end| full.min(end))
    }

    /// How many of its first frames belong to the batch before it too.
    pub(crate) fn shared(&self, batch: usize) -> usize {
        if batch == self.shot(batch).batch { 0 } else { self.batching.shared() }
    }

    /// The frame of the clip that is a frame of the job: the lead-in mirrors the first frames.
    pub(crate) fn clip_frame(&self, frame: usize) -> usize {
        if frame >= self.lead_in {
            return frame - self.lead_in;
        }
        let known = self.frames().unwrap_or(self.pushed);
        let first: Vec<usize> = (0..known.min(self.lead_in + 1)).collect();
        extend(&first, self.lead_in, End::Front)[frame]
    }

    fn added(&self, batch: usize) -> Range<usize> {
        let frames = self.batch(batch);
        frames.start + self.shared(batch)..frames.end
    }

    fn step(&self) -> usize {
        self.batching.size - self.batching.shared()
    }

    fn knows_lead_in(&self) -> bool {
        self.ended || self.pushed > self.lead_in
    }

    /// The batch that adds a frame of the job, if all batches that change the frame are known.
    fn batch_adding(&self, frame: usize) -> Option<usize> {
        if frame >= self.decided {
            return None;
        }
        let at = self.shots.partition_point(|shot| shot.frame <= frame) - 1;
        let (shot, within) = (self.shots[at], frame - self.shots[at].frame);
        let index = (within + 1).saturating_sub(self.batching.size).div_ceil(self.step());
        let last = shot.frame + self.batching.size + (index + self.reach) * self.step();
        let closed = self.ended || at + 1 < self.shots.len();
        (closed || last <= self.decided).then_some(shot.batch + index)
    }

    /// The shot of a batch, and the frame after its last one if the shot has ended.
    fn shot_of(&self, batch: usize) -> (ShotStart, Option<usize>) {
        let at = self.shots.partition_point(|shot| shot.batch <= batch) - 1;
        let end = self.shots.get(at + 1).map(|next| next.frame);
        (self.shots[at], end.or(self.ended.then_some(self.decided)))
    }

    /// Batches of the job up to the end of a shot.
    fn batches_before(&self, end: usize) -> usize {
        let at = self.shots.partition_point(|shot| shot.frame < end).max(1) - 1;
        let frames = end - self.shots[at].frame;
        let further = frames.saturating_sub(self.batching.size).div_ceil(self.step());
        self.shots[at].batch + usize::from(frames > 0) + further
    }

    fn detect_head(&mut self) {
        let head = std::mem::take(&mut self.head);
        if !head.is_empty() {
            extend(&head, self.lead_in, End::Front).into_iter().for_each(|signature| self.detect(signature));
        }
    }

    fn detect(&mut self, signature: FrameSignature) {
        if let Some(((), cut)) = self.detector.push((), signature) {
            self.decide(cut);
        }
    }

    fn decide(&mut self, cut: bool) {
        if cut {
            self.start_shot();
        }
        self.decided += 1;
    }

    fn start_shot(&mut self) {
        let batch = self.batches_before(self.decided);
        self.shots.push(ShotStart { batch, frame: self.decided });
    }

    /// Ends a clip of so many frames after its last cut.
    fn complete(&mut self, frames: usize) {
        self.decided = if frames > 0 { self.lead_in + frames } else { 0 };
        (self.pushed, self.ended) = (frames, true);
    }
}

/// How many batches after a batch change the frames that it adds, with these weights of the earlier batch.
fn reach(batching: Batching, weights: &[f32]) -> usize {
    let step = batching.size - batching.shared();
    let changes = |after: &usize| {
        let shared = (batching.size - after * step).min(weights.len());
        weights[..shared].iter().any(|weight| *weight < 1.0)
    };
    (1..batching.size.div_ceil(step)).rev().find(changes).unwrap_or(0)
}

#[cfg(test)]
mod tests;
