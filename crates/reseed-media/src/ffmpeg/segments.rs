//! The segments of a video. Each has its own encoder process, and its bytes depend on its own frames only.

use super::closing::Closing;
use super::encoder::{Encoder, EncoderConfig, relative_times};
use super::work_folder::WorkFolder;
use crate::error::Result;
use crate::video::{SEGMENT_FRAMES, Timeline};

/// Encodes frames into the segments of a work folder, one segment after the other.
pub(super) struct Segments {
    pub encoder: EncoderConfig,
    /// The times of the frames; `None` for a constant rate.
    pub timeline: Option<Timeline>,
    /// The encoder of the current segment. Declared before `work`, so that the process ends before its file is removed.
    current: Option<Encoder>,
    /// The previous segment, while its file is completed and verified.
    previous: Option<Closing>,
    /// The index of the next segment.
    next: usize,
    pub work: WorkFolder,
}

impl Segments {
    /// Continues after the finished segments of a work folder.
    pub fn new(encoder: EncoderConfig, timeline: Option<Timeline>, work: WorkFolder) -> Segments {
        let next = work.first + work.segments.len();
        Segments { encoder, timeline, current: None, previous: None, next, work }
    }

    /// Sends the planes of a frame to the current encoder, which it starts if there is none.
    pub fn append(&mut self, planes: &[u8]) -> Result<()> {
        self.advance()?;
        let mut encoder = match self.current.take() {
            Some(encoder) => encoder,
            None => {
                self.next += 1;
                self.encoder.start(&self.work, self.next - 1)?
            }
        };
        self.encoder.write(&mut encoder, planes)?;
        let full = encoder.frames == SEGMENT_FRAMES;
        self.current = Some(encoder);
        if full { self.close_current() } else { Ok(()) }
    }

    /// Starts the next step of the previous segment if the current one is complete.
    pub fn advance(&mut self) -> Result<()> {
        if self.previous.as_mut().is_some_and(Closing::has_ended)
            && let Some(closing) = self.previous.take()
        {
            self.previous = closing.advance(&self.encoder, &mut self.work)?;
        }
        Ok(())
    }

    /// Completes all segments; the last one may be short.
    pub fn finish(&mut self) -> Result<()> {
        self.close_current()?;
        self.finish_previous()
    }

    /// Waits until the previous segment is verified and has its final name.
    fn finish_previous(&mut self) -> Result<()> {
        while let Some(closing) = self.previous.take() {
            self.previous = closing.advance(&self.encoder, &mut self.work)?;
        }
        Ok(())
    }

    /// Closes the current encoder, which completes its file while the next one starts.
    fn close_current(&mut self) -> Result<()> {
        self.finish_previous()?;
        if let Some(encoder) = self.current.take() {
            let first = self.work.frames() as i64;
            let times = self.timeline.as_ref().map(|timeline| relative_times(timeline, first, encoder.frames));
            self.previous = Some(encoder.close(times.filter(|times| !self.encoder.is_regular(times))));
        }
        Ok(())
    }
}
