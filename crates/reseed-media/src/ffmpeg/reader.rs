//! A source that reads a video.

use std::time::Duration;

use super::decoder::Decoder;
use super::process::Exit;
use super::seek::{SeekCheck, SeekState};
use super::tools::Tools;
use crate::digest::digest;
use crate::error::{Error, Result};
use crate::frame::{Frame, Mark, Rate, Samples};
use crate::planes::Planes;
use crate::problem::Problem;
use crate::stream::{Info, Kind, Source};
use crate::video::Video;

/// Seconds before the start of a clip at which decoding starts, so that its first frames lack no reference.
const SEEK_MARGIN: f64 = 2.0;

/// Reads frames from ffmpeg, one at a time.
pub(super) struct Reader {
    info: Info,
    planes: Planes,
    buffer: Vec<u8>,
    spare: Option<Samples>,
    decoder: Decoder,
    tools: Tools,
    /// Frames read or skipped.
    read: usize,
    /// Whether the frame after the end of the clip was read.
    ended: bool,
    /// Damage that was not returned yet, but for that of the running decoder.
    problems: Vec<Problem>,
}

impl Reader {
    /// Starts decoding the video that `info` describes. `problems` are those that are known already.
    pub fn new(tools: Tools, info: Info, problems: Vec<Problem>) -> Result<Reader> {
        let video = described(&info);
        let decoder = Decoder::start(&tools, video, info.size, seek_time(video))?;
        let planes = Planes::new(info.size, video.layout);
        let (buffer, spare, read, ended) = (Vec::new(), None, 0, false);
        Ok(Reader { tools, info, planes, buffer, spare, decoder, read, ended, problems })
    }

    /// Restarts the decoder, at the beginning or at the keyframe before a time in seconds.
    fn restart(&mut self, before: Option<f64>) -> Result<()> {
        self.decoder = Decoder::start(&self.tools, described(&self.info), self.info.size, before)?;
        Ok(())
    }

    /// Reads the planes of the next frame and returns its mark; `None` after the last frame.
    fn read_planes(&mut self) -> Result<Option<Mark>> {
        let bytes = self.planes.frame_bytes();
        self.buffer.resize(bytes, 0);
        let video = described(&self.info);
        let read = self.decoder.read(&mut self.buffer);
        let read = read.map_err(|cause| Error::Read { path: video.path.clone(), cause })?;
        if read == bytes {
            let timestamp = self.decoder.timestamp();
            return Ok(Some(Mark { timestamp, digest: digest(0, &self.buffer) }));
        }
        let failed = |reason| Error::DecoderFailed { path: video.path.clone(), reason };
        if let Some(exit) = self.decoder.wait() {
            exit.map_err(|cause| cause.to_string()).and_then(Exit::check_read).map_err(failed)?;
        }
        match read {
            0 => Ok(None),
            _ => Err(failed("it ended in the middle of a frame".to_owned())),
        }
    }

    /// Reads the planes of the next frame and records its time; `false` after the last frame.
    fn advance(&mut self) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let mut mark = self.read_planes()?;
        if self.read == 0 && self.is_late(mark) {
            self.restart(None)?;
            mark = self.read_planes()?;
        }
        let video = described(&self.info);
        let beyond = |mark: &Mark| video.timeline.is_beyond(*mark, video.clip.end);
        match mark.filter(|mark| !beyond(mark)) {
            Some(mark) => video.timeline.push(mark),
            None => self.ended = true,
        }
        self.read += usize::from(!self.ended);
        Ok(!self.ended)
    }

    /// Whether the first frame after a seek comes too late: a file with a bad index is decoded from its beginning.
    fn is_late(&self, first: Option<Mark>) -> bool {
        let video = described(&self.info);
        let Some(start) = video.clip.start.filter(|_| seek_time(video).is_some()) else { return false };
        let Rate { num, den } = self.info.rate;
        let latest = start + Duration::from_secs_f64(1.5 * f64::from(den) / f64::from(num));
        first.is_none_or(|mark| video.timeline.is_beyond(mark, Some(latest)))
    }

    /// Seeks to frame `frames` from an earlier keyframe. Returns whether the position is certain: the frames before it
    /// must equal those that an earlier run read.
    fn seek(&mut self, frames: usize) -> Result<bool> {
        let earlier = described(&self.info).timeline.earlier_marks();
        let Some(mut check) = SeekCheck::new(frames, &earlier, described(&self.info)) else { return Ok(false) };
        self.restart(Some(check.time))?;
        loop {
            // A decoder that fails after a seek may still succeed from the first frame.
            let Ok(Some(mark)) = self.read_planes() else { return Ok(false) };
            match check.next(mark) {
                SeekState::Searching => {}
                SeekState::Failed => return Ok(false),
                SeekState::Arrived => break,
            }
        }
        earlier[..frames].iter().for_each(|mark| described(&self.info).timeline.push(*mark));
        self.read = frames;
        Ok(true)
    }
}

impl Source for Reader {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        Ok(self.advance()?.then(|| self.planes.decode(&self.buffer, self.spare.take())))
    }

    fn time(&self) -> Option<Duration> {
        let timeline = &described(&self.info).timeline;
        let ticks = timeline.time(self.read.saturating_sub(1) as i64);
        Some(Duration::from_micros(timeline.clock().micros(ticks).max(0) as u64))
    }

    fn reuse(&mut self, done: Samples) {
        self.spare = Some(done);
    }

    fn problems(&mut self) -> Vec<Problem> {
        let decoder = self.decoder.take_problems(described(&self.info));
        self.problems.drain(..).chain(decoder).collect()
    }

    fn skip(&mut self, frames: usize) -> Result<usize> {
        if self.read == 0 && !described(&self.info).timeline.earlier_marks().is_empty() {
            if self.seek(frames)? {
                return Ok(frames);
            }
            self.restart(None)?;
        }
        for skipped in 0..frames {
            if !self.advance()? {
                return Ok(skipped);
            }
        }
        Ok(frames)
    }
}

/// The time from which the start of a clip is decoded, in seconds; `None` for the beginning of the file. A seek is
/// exact only in containers with an index.
fn seek_time(video: &Video) -> Option<f64> {
    let start = video.clip.start?.as_secs_f64() - SEEK_MARGIN;
    let indexed = ["mov", "matroska"].iter().any(|name| video.format.contains(name));
    (indexed && start > 0.0).then_some(start)
}

fn described(info: &Info) -> &Video {
    match &info.kind {
        Kind::Video(video) => video,
        other => unreachable!("the reader needs a video, not {other:?}"),
    }
}
