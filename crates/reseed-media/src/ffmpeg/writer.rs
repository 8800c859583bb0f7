//! A sink that writes a video.

use std::path::{Path, PathBuf};

use super::marks::Marks;
use super::mux::Mux;
use super::output_format::OutputFormat;
use super::segments::Segments;
use super::spool::Spool;
use super::timecode;
use super::verify::{Expected, verify};
use super::work_folder::WorkFolder;
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::partial::Partial;
use crate::planes::Planes;
use crate::stream::{Info, Kind, Sink};
use crate::video::{Codec, Container, Options, Video};

/// Writes frames to a video, segment by segment.
pub(crate) struct Writer {
    path: PathBuf,
    planes: Planes,
    buffer: Vec<u8>,
    options: Options,
    container: Container,
    codec: Codec,
    source: Option<Box<Video>>,
    segments: Segments,
    spool: Option<Spool>,
    marks: Option<Marks>,
    /// Whether the frames in the spool must still be encoded.
    replay_pending: bool,
    /// The number of next frames that finished segments already hold.
    already_encoded: usize,
    partial: Partial,
}

impl Writer {
    /// Creates a video at `path`, or continues after the first `resume` frames of an interrupted run with the same
    /// arguments.
    pub fn open(path: &Path, info: &Info, options: &Options, resume: Option<usize>) -> Result<Writer> {
        let OutputFormat { container, codec, planes, encoder } = OutputFormat::choose(path, info, options)?;
        let (_, partial) = Partial::file(path)?;
        let mut work = WorkFolder::open(path, codec.segment_format(), resume.is_some())?;
        // An error from here on must not remove the frames of the earlier run.
        work.keep = resume.is_some();
        encoder.try_out(&work, planes.frame_bytes())?;
        let spool = |written: usize| Spool::open(&work.path, work.frames(), written);
        let spool = options.resumable.then(|| spool(resume.unwrap_or(0))).transpose()?;
        let marks = match &info.kind {
            Kind::Video(video) if options.resumable => Some(Marks::open(&work.path, &video.timeline)?),
            _ => None,
        };
        let source = match &info.kind {
            Kind::Video(video) => Some(video.clone()),
            _ => None,
        };
        let already_encoded = resume.map_or(0, |frames| work.frames().saturating_sub(frames));
        Ok(Writer {
            path: path.to_owned(),
            planes,
            buffer: Vec::new(),
            options: options.clone(),
            container,
            codec,
            source,
            segments: Segments::new(encoder, info.timeline(), work, options.encoders.max(1)),
            spool,
            marks,
            replay_pending: resume.is_some(),
            already_encoded,
            partial,
        })
    }

    /// Joins the segments of an earlier run into the video.
    pub fn join_finished(self, frames: usize) -> Result<()> {
        let finished = self.segments.work.frames();
        if finished != frames {
            let frame = finished.min(frames) + 1;
            return Err(Error::MissingFrame { path: self.segments.work.path.clone(), frame });
        }
        Box::new(self).finish()
    }

    /// Encodes the spooled frames that are in no segment. This waits for the next frame, because the source reports the
    /// times of earlier frames only when it is read again.
    fn replay(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.replay_pending) {
            return Ok(());
        }
        let Some(spool) = self.spool.take() else { return Ok(()) };
        let bytes = self.planes.frame_bytes();
        let replayed = spool.replay(self.segments.work.frames(), bytes, |planes| self.segments.append(planes, false));
        self.spool = Some(spool);
        replayed
    }

    /// Makes the spooled frames safe, gives them to the encoders that lag behind, and returns their number.
    fn sync_spool(&mut self) -> Result<usize> {
        let Some(spool) = &mut self.spool else { return Ok(0) };
        let written = spool.sync()?;
        self.segments.read_spool(spool);
        Ok(written)
    }

    /// Joins the segments and verifies the result.
    fn join(&self) -> Result<()> {
        let Segments { encoder, timeline, work, .. } = &self.segments;
        let mut tags = encoder.tags.clone();
        if let Some(video) = self.source.as_ref().filter(|_| self.options.metadata) {
            tags.extend(timecode::options(video));
        }
        let mux = Mux {
            tools: &encoder.tools,
            container: self.container,
            codec: self.codec,
            options: &self.options,
            source: self.source.as_deref(),
            timeline: timeline.as_ref(),
            clock: encoder.clock,
            tags: &tags,
        };
        self.partial.renew()?;
        mux.run(work, self.partial.path(), &self.path)?;
        let joined = verify(&encoder.tools, self.partial.path(), self.expected())?;
        joined.map_err(|reason| encoder.failed(reason))
    }

    /// What the joined file holds.
    fn expected(&self) -> Expected {
        let Segments { encoder, timeline, work, .. } = &self.segments;
        let frames = work.frames();
        let times = timeline.as_ref().map(|timeline| {
            let time = |frame: usize| timeline.time(frame as i64);
            [time(frames.saturating_sub(1)) - time(0)]
        });
        encoder.expected(frames, times.as_ref().map(|times| &times[..]))
    }
}

impl Sink for Writer {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        self.replay()?;
        let mut planes = std::mem::take(&mut self.buffer);
        self.planes.encode(frame, &mut planes);
        match self.already_encoded {
            0 => {
                if self.segments.needs_sync() {
                    self.sync_spool()?;
                }
                self.segments.append(&planes, self.spool.is_some())?;
            }
            _ => self.already_encoded -= 1,
        }
        self.spool.as_mut().map_or(Ok(()), |spool| spool.append(&planes))?;
        self.buffer = planes;
        Ok(())
    }

    fn sync(&mut self) -> Result<usize> {
        self.segments.advance()?;
        let written = self.sync_spool()?;
        let Some(spool) = &mut self.spool else { return Ok(0) };
        if let Some((marks, video)) = self.marks.as_mut().zip(self.source.as_ref()) {
            marks.append(&video.timeline)?;
        }
        self.segments.work.sync()?;
        spool.discard_before(self.segments.work.frames());
        Ok(written)
    }

    fn keep_unfinished(&mut self) {
        self.segments.work.keep = true;
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.replay()?;
        self.sync_spool()?;
        self.segments.finish()?;
        self.join()?;
        let Writer { mut segments, partial, .. } = *self;
        partial.commit()?;
        segments.work.keep = false;
        Ok(())
    }
}
