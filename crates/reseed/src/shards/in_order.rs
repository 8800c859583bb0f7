//! The frames of a source for a shard, compared with those of the plan.

use std::collections::VecDeque;
use std::path::Path;

use reseed_media::{Error, Frame, Mark, Problem, Result, Source};

use super::mark;
use crate::part::FrameProvider;

/// Reads frames forwards from a first one, and holds the last ones.
pub struct InOrder<'a> {
    source: Box<dyn Source>,
    path: &'a Path,
    /// The frames of the plan.
    marks: &'a [Mark],
    recent: VecDeque<Frame>,
    /// The index of the first recent frame.
    first: usize,
    /// How many frames are held.
    most: usize,
}

impl<'a> InOrder<'a> {
    /// The frames of a source that has read none, the last `most` of which can be read again.
    pub fn new(source: Box<dyn Source>, (path, marks): (&'a Path, &'a [Mark]), most: usize) -> InOrder<'a> {
        InOrder { source, path, marks, recent: VecDeque::new(), first: 0, most }
    }

    /// Goes to the first frame, and reads it.
    pub fn start(&mut self, first: usize) -> Result<()> {
        self.source.info().expect_marks(self.marks);
        self.first = self.source.skip(first)?;
        if self.first < first {
            return Err(self.changed(self.first));
        }
        self.read()
    }

    /// The damage of the input.
    pub fn problems(&mut self) -> Vec<Problem> {
        self.source.problems()
    }

    fn read(&mut self) -> Result<()> {
        let index = self.first + self.recent.len();
        let frame = self.source.next()?.ok_or_else(|| self.changed(index))?;
        if self.marks.get(index) != Some(&mark(self.source.info(), index, &frame)) {
            return Err(self.changed(index));
        }
        self.recent.push_back(frame);
        if self.recent.len() > self.most {
            self.recent.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    fn changed(&self, index: usize) -> Error {
        Error::FrameChanged { path: self.path.into(), frame: index + 1 }
    }
}

impl FrameProvider for InOrder<'_> {
    fn frame(&mut self, index: usize) -> Result<Frame> {
        while index >= self.first + self.recent.len() {
            self.read()?;
        }
        let held = index.checked_sub(self.first).expect("the batches of a shard go forwards");
        Ok(self.recent[held].clone())
    }
}
