//! What a job reads: a clip from its start, or the batches that some of its frames depend on.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use reseed_media::{Frame, Info, Source};

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::grid::BatchGrid;
use crate::input_frame::{DeviceInput, InputFrame};
use crate::read::{FrameBatch, ReadReport, check_numbers};
use crate::report::timed;

/// The frames of a clip in any order.
///
/// A closure is one: `|index: usize| Ok(frames[index].clone())`.
pub trait FrameProvider: Send {
    /// The frame with this index, counted from 0.
    fn frame(&mut self, index: usize) -> reseed_media::Result<Frame>;
}

impl<F: FnMut(usize) -> reseed_media::Result<Frame> + Send> FrameProvider for F {
    fn frame(&mut self, index: usize) -> reseed_media::Result<Frame> {
        self(index)
    }
}

/// What a job reads.
pub enum ClipInput<'a> {
    /// A whole clip.
    Whole(&'a mut dyn Source),
    /// A whole clip in the memory of a GPU.
    Device(&'a Info, Vec<DeviceInput>),
    /// A part of a clip.
    Part(Part<'a>),
}

impl ClipInput<'_> {
    /// What is known of the clip.
    pub fn info(&self) -> &Info {
        match self {
            ClipInput::Whole(source) => source.info(),
            ClipInput::Device(info, _) => info,
            ClipInput::Part(part) => part.info,
        }
    }

    /// Frames of the result, if their number is known.
    pub fn frames(&self) -> Option<usize> {
        match self {
            ClipInput::Whole(source) => source.info().frames,
            ClipInput::Device(_, frames) => Some(frames.len()),
            ClipInput::Part(part) => Some(part.frames.len()),
        }
    }

    /// The batch after the last one whose frames are sent.
    pub fn end(&self) -> usize {
        match self {
            ClipInput::Whole(_) | ClipInput::Device(..) => usize::MAX,
            ClipInput::Part(part) => part.batches.end,
        }
    }
}

/// The batches that add some frames of a clip.
pub struct Part<'a> {
    /// What is known of the clip.
    pub info: &'a Info,
    /// Its batches.
    pub grid: &'a BatchGrid,
    /// The frames.
    pub frames: Range<usize>,
    /// The batches that add them.
    pub batches: Range<usize>,
    /// The frames of the clip.
    pub provider: &'a mut dyn FrameProvider,
}

impl Part<'_> {
    /// Sends the batches from `first` on, of which an earlier run has computed those before `done`.
    pub fn read(self, [first, done]: [usize; 2], stop: &AtomicBool, to: &SyncSender<FrameBatch>) -> Result<ReadReport> {
        let Part { grid, batches, provider, .. } = self;
        let mut report = ReadReport::default();
        // The frames of the batch before, some of which the next one shares.
        let mut recent: Vec<(usize, Arc<InputFrame>)> = Vec::new();
        for number in first..grid.computed(batches).end {
            let mut read = |frame: usize| {
                let index = grid.clip_frame(frame);
                let held = recent.iter().find(|(held, _)| *held == index);
                if let Some((_, frame)) = held {
                    return Ok((index, frame.clone()));
                }
                let frame = provider.frame(index).map_err(Error::Input)?;
                check_numbers(&frame, index)?;
                Ok((index, Arc::new(frame.into())))
            };
            let frames: Result<Vec<_>> = timed(&mut report.time, || grid.batch(number).map(&mut read).collect());
            recent = frames?;
            let (frames, shot) = (recent.iter().map(|(_, frame)| frame.clone()).collect(), grid.shot(number));
            let batch = Batch::new(grid.batching(), number, frames, (grid.shared(number), shot));
            report.batches += usize::from(number >= done);
            report.shots += usize::from(number == shot.batch || number == first);
            // A receiver that hung up reports its own error.
            if stop.load(Ordering::Relaxed) || to.send(batch).is_err() {
                break;
            }
        }
        Ok(report)
    }
}
