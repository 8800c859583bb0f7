//! Which frames travel through the networks together. Frames are anything that can be cloned cheaply: here they are only
//! counted and put in order.

/// How a shot is cut into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Frames a batch. The networks see 4n+1; other numbers are padded up to it.
    pub size: usize,
    /// Frames that a batch shares with the one before it in its shot. One that leaves no step counts as none.
    pub overlap: usize,
    /// Whether a shot's last batch is padded to `size` as well.
    pub uniform: bool,
}

impl Batching {
    /// The overlap in force.
    pub fn shared(&self) -> usize {
        if self.overlap < self.size { self.overlap } else { 0 }
    }
}

/// Where a shot starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Its first batch, counted over the whole job.
    pub batch: usize,
    /// Its first frame, counted so too, a lead-in included.
    pub frame: usize,
}

/// Frames that travel through the networks together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<F> {
    /// Counted from zero over the whole job.
    pub number: usize,
    /// Its frames of the clip, in order.
    pub frames: Vec<F>,
    /// How many of them, from the first on, are frames of the batch before it.
    pub shared: usize,
    /// What the networks see: 4n+1 frames, of which the first are `frames`.
    pub seen: Vec<F>,
    /// Where its shot starts.
    pub shot: Start,
}

/// Cuts shots of unknown length into batches as their frames come.
pub struct Batcher<F> {
    plan: Batching,
    number: usize,
    held: Vec<F>,
    shared: usize,
    /// Frames that came so far.
    count: usize,
    shot: Start,
}

impl<F: Clone> Batcher<F> {
    /// Before the first frame.
    pub fn new(plan: Batching) -> Batcher<F> {
        Batcher::within(plan, Start::default(), 0)
    }

    /// Before the first frame of a batch of the shot that starts there.
    pub fn within(plan: Batching, shot: Start, batch: usize) -> Batcher<F> {
        assert!(plan.size > 0, "a batch has frames");
        let shared = if batch > shot.batch { plan.shared() } else { 0 };
        let count = shot.frame + (batch - shot.batch) * (plan.size - plan.shared());
        Batcher { plan, number: batch, held: Vec::new(), shared, count, shot }
    }

    /// Frames that came so far, or before this began.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds a frame to the shot; gives the batch that it completes.
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

    /// Ends the shot; gives its last batch, unless that would bring nothing new.
    pub fn end_shot(&mut self) -> Option<Batch<F>> {
        let batch = (self.held.len() > self.shared).then(|| self.batch());
        (self.held, self.shared) = (Vec::new(), 0);
        self.shot = Start { batch: self.number, frame: self.count };
        batch
    }

    fn batch(&mut self) -> Batch<F> {
        let frames = std::mem::take(&mut self.held);
        let least = if self.plan.uniform { self.plan.size } else { 0 };
        let seen = extend(&frames, least.saturating_sub(frames.len()), End::Back);
        let seen = extend(&seen, (seen.len() - 1).next_multiple_of(4) + 1 - seen.len(), End::Back);
        self.number += 1;
        Batch { number: self.number - 1, frames, shared: self.shared, seen, shot: self.shot }
    }
}

/// Which end of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Before its first frame.
    Front,
    /// Behind its last frame.
    Back,
}

/// A clip with `more` mirrored frames at one end; the frame at the turn is not repeated: `0 1 2 3` becomes
/// `0 1 2 3 2 1`. From as many as the clip has on, all but frame 0 run backwards, the last included, and the last frame
/// makes up the rest: `0 1 2` becomes `0 1 2 2 1 2 2`. At the front: `2 1 0 1 2 3` and `2 2 2 1 0 1 2`.
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
