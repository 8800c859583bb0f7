//! A sink that writes a video.

use std::path::{Path, PathBuf};

use super::closing::Closing;
use super::encoder::{Encoder, EncoderConfig, relative_times};
use super::marks::Marks;
use super::mux::Mux;
use super::output_format::OutputFormat;
use super::spool::Spool;
use super::timecode;
use super::verify::{Expected, verify};
use super::work_folder::WorkFolder;
use crate::error::Result;
use crate::frame::Frame;
use crate::partial::Partial;
use crate::planes::Planes;
use crate::stream::{Info, Kind, Sink};
use crate::video::{Codec, Container, Options, SEGMENT_FRAMES, Timeline, Video};

/// Writes frames to a video, segment by segment.
pub(crate) struct Writer {
    path: PathBuf,
    encoder: EncoderConfig,
    planes: Planes,
    buffer: Vec<u8>,
    options: Options,
    container: Container,
    codec: Codec,
    source: Option<Box<Video>>,
    /// The times of the frames; `None` for a constant rate.
    timeline: Option<Timeline>,
    /// The encoder of the current segment. Declared before `work`, so that the process ends before its file is removed.
    current: Option<Encoder>,
    /// The previous segment, while its file is completed and verified.
    previous: Option<Closing>,
    /// The index of the next segment.
    next: usize,
    spool: Option<Spool>,
    marks: Option<Marks>,
    /// Whether the frames in the spool must still be encoded.
    replay_pending: bool,
    /// The number of next frames that finished segments already hold.
    already_encoded: usize,
    work: WorkFolder,
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
        let timeline = match &info.kind {
            Kind::Video(video) => Some(video.timeline.clone()),
            Kind::Animation(animation) => Some(animation.timeline()),
            _ => None,
        };
        Ok(Writer {
            path: path.to_owned(),
            planes,
            encoder,
            buffer: Vec::new(),
            options: options.clone(),
            container,
            codec,
            source,
            timeline,
            current: None,
            previous: None,
            next: work.segments.len(),
            spool,
            marks,
            replay_pending: resume.is_some(),
            already_encoded: resume.map_or(0, |frames| work.frames().saturating_sub(frames)),
            work,
            partial,
        })
    }

    /// Encodes the spooled frames that are in no segment. This waits for the next frame, because the source reports the
    /// times of earlier frames only when it is read again.
    fn replay(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.replay_pending) {
            return Ok(());
        }
        let Some(spool) = self.spool.take() else { return Ok(()) };
        let replayed = spool.replay(self.work.frames(), self.planes.frame_bytes(), |planes| self.append(planes));
        self.spool = Some(spool);
        replayed
    }

    /// Sends the planes of a frame to the current encoder, which it starts if there is none.
    fn append(&mut self, planes: &[u8]) -> Result<()> {
        self.advance_previous()?;
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
    fn advance_previous(&mut self) -> Result<()> {
        if self.previous.as_mut().is_some_and(Closing::has_ended)
            && let Some(closing) = self.previous.take()
        {
            self.previous = closing.advance(&self.encoder, &mut self.work)?;
        }
        Ok(())
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

    /// Joins the segments and verifies the result.
    fn join(&self) -> Result<()> {
        let mut tags = self.encoder.tags.clone();
        if let Some(video) = self.source.as_ref().filter(|_| self.options.metadata) {
            tags.extend(timecode::options(video));
        }
        let mux = Mux {
            tools: &self.encoder.tools,
            container: self.container,
            codec: self.codec,
            options: &self.options,
            source: self.source.as_deref(),
            timeline: self.timeline.as_ref(),
            clock: self.encoder.clock,
            tags: &tags,
        };
        self.partial.renew()?;
        mux.run(&self.work, self.partial.path(), &self.path)?;
        let joined = verify(&self.encoder.tools, self.partial.path(), self.expected())?;
        joined.map_err(|reason| self.encoder.failed(reason))
    }

    /// What the joined file holds.
    fn expected(&self) -> Expected {
        let frames = self.work.frames();
        let times = self.timeline.as_ref().map(|timeline| {
            let time = |frame: usize| timeline.time(frame as i64);
            [time(frames.saturating_sub(1)) - time(0)]
        });
        self.encoder.expected(frames, times.as_ref().map(|times| &times[..]))
    }
}

impl Sink for Writer {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        self.replay()?;
        let mut planes = std::mem::take(&mut self.buffer);
        self.planes.encode(frame, &mut planes);
        match self.already_encoded {
            0 => self.append(&planes)?,
            _ => self.already_encoded -= 1,
        }
        self.spool.as_mut().map_or(Ok(()), |spool| spool.append(&planes))?;
        self.buffer = planes;
        Ok(())
    }

    fn sync(&mut self) -> Result<usize> {
        self.advance_previous()?;
        let Some(spool) = &mut self.spool else { return Ok(0) };
        let written = spool.sync()?;
        if let Some((marks, video)) = self.marks.as_mut().zip(self.source.as_ref()) {
            marks.append(&video.timeline)?;
        }
        self.work.sync()?;
        spool.discard_before(self.work.frames());
        Ok(written)
    }

    fn keep_unfinished(&mut self) {
        self.work.keep = true;
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.replay()?;
        self.close_current()?;
        self.finish_previous()?;
        self.join()?;
        let Writer { mut work, partial, .. } = *self;
        partial.commit()?;
        work.keep = false;
        Ok(())
    }
}
