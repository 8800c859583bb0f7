//! Splits shots into batches. The frame type is generic: a batcher only counts, orders and clones frames.

/// How a shot is split into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Frames per batch. The networks need 4n+1 frames; other lengths are padded to the next 4n+1.
    pub size: usize,
    /// Frames that consecutive batches of a shot share. An overlap of `size` or more counts as 0.
    pub overlap: usize,
    /// Whether the last batch of a shot is padded to `size` too.
    pub uniform: bool,
}

impl Batching {
    /// The effective overlap: `overlap` if it is below `size`, otherwise 0.
    pub fn shared(&self) -> usize {
        if self.overlap < self.size { self.overlap } else { 0 }
    }
}

/// The position at which a shot starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShotStart {
    /// Index of its first batch in the job.
    pub batch: usize,
    /// Index of its first frame in the job, including the lead-in.
    pub frame: usize,
}

/// Frames that the networks process together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<F> {
    /// Index of the batch in the job, from 0.
    pub number: usize,
    /// Its frames of the clip, in order.
    pub frames: Vec<F>,
    /// How many of its first frames also belong to the previous batch.
    pub shared: usize,
    /// The input of the networks: `frames`, padded to 4n+1 frames.
    pub seen: Vec<F>,
    /// Start of its shot.
    pub shot: ShotStart,
}

impl<F: Clone> Batch<F> {
    /// A batch of these frames, the first `shared` of which belong to the previous batch too.
    pub fn new(plan: Batching, number: usize, frames: Vec<F>, (shared, shot): (usize, ShotStart)) -> Batch<F> {
        let min_frames = if plan.uniform { plan.size } else { 0 };
        let seen = extend(&frames, min_frames.saturating_sub(frames.len()), End::Back);
        let seen = extend(&seen, (seen.len() - 1).next_multiple_of(4) + 1 - seen.len(), End::Back);
        Batch { number, frames, shared, seen, shot }
    }
}

/// Splits shots of unknown length into batches as frames arrive.
pub struct Batcher<F> {
    plan: Batching,
    number: usize,
    held: Vec<F>,
    shared: usize,
    /// Frames of the job up to now.
    count: usize,
    shot: ShotStart,
}

impl<F: Clone> Batcher<F> {
    /// A batcher at the first frame of a job.
    pub fn new(plan: Batching) -> Batcher<F> {
        Batcher::starting_at(plan, ShotStart::default(), 0)
    }

    /// A batcher at the first frame of batch `batch` of the shot that starts at `shot`.
    pub fn starting_at(plan: Batching, shot: ShotStart, batch: usize) -> Batcher<F> {
        assert!(plan.size > 0, "the batch size is 0");
        let shared = if batch > shot.batch { plan.shared() } else { 0 };
        let count = shot.frame + (batch - shot.batch) * (plan.size - plan.shared());
        Batcher { plan, number: batch, held: Vec::new(), shared, count, shot }
    }

    /// Frames of the job up to now, including those before the start of this batcher.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds a frame to the shot; returns the batch that it completes.
    pub fn push(&mut self, frame: F) -> Option<Batch<F>> {
        self.held.push(frame);
        self.count += 1;
        (self.held.len() == self.plan.size).then(|| {
            let keep = self.plan.shared();
            let tail = self.held[self.held.len() - keep..].to_vec();
            let batch = self.batch();
            (self.held, self.shared) = (tail, keep);
            batch
        })
    }

    /// Ends the shot; returns its last batch, unless all frames of that batch belong to the previous one too.
    pub fn end_shot(&mut self) -> Option<Batch<F>> {
        let batch = (self.held.len() > self.shared).then(|| self.batch());
        (self.held, self.shared) = (Vec::new(), 0);
        self.shot = ShotStart { batch: self.number, frame: self.count };
        batch
    }

    fn batch(&mut self) -> Batch<F> {
        let frames = std::mem::take(&mut self.held);
        self.number += 1;
        Batch::new(self.plan, self.number - 1, frames, (self.shared, self.shot))
    }
}

/// An end of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Before its first frame.
    Front,
    /// After its last frame.
    Back,
}

/// Pads a clip by `more` frames at one end.
///
/// Below the clip length, this is reflection padding without repeating the edge frame: `0 1 2 3` becomes `0 1 2 3 2 1`,
/// or `2 1 0 1 2 3` at the front. From the clip length on, frames `t-1` to `1` follow in reverse order, then copies of
/// the last frame: `0 1 2` becomes `0 1 2 2 1 2 2`, or `2 2 2 1 0 1 2` at the front.
pub fn extend<F: Clone>(frames: &[F], more: usize, end: End) -> Vec<F> {
    let t = frames.len();
    let backwards = |range: std::ops::Range<usize>| frames[range].iter().rev().cloned();
    let copies = (more + 1).saturating_sub(t);
    let rest = std::iter::repeat_n(frames[t - 1].clone(), if more < t { 0 } else { copies });
    match end {
        End::Back if more < t => frames.iter().cloned().chain(backwards(t - 1 - more..t - 1)).collect(),
        End::Back => frames.iter().cloned().chain(backwards(1..t)).chain(rest).collect(),
        End::Front if more < t => backwards(1..more + 1).chain(frames.iter().cloned()).collect(),
        End::Front => rest.chain(backwards(1..t)).chain(frames.iter().cloned()).collect(),
    }
}
