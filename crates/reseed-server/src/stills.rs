//! Single frames of inputs and results, at the size that a client shows.

use std::path::Path;
use std::time::Duration;

use reseed::media::video::Clip;
use reseed::media::{Frame, Info, Kind, Result, Size, Source, check_self_contained, open_clip};
use reseed::{Settings, Target};

/// A frame by its time from the start of a clip.
#[derive(Clone, Copy, Debug)]
pub struct Still<'a> {
    /// The file or folder.
    pub path: &'a Path,
    /// The part of it.
    pub clip: Clip,
    /// The time in seconds.
    pub at: f64,
    /// Frames per second of the clip, and their number where it is known. Input and output of a job have the same, so
    /// that the same time gives the same frame.
    pub rate: f64,
    pub frames: Option<usize>,
}

impl Still<'_> {
    /// Reads the frame, with a description of its clip. `None` after the end.
    pub fn read(self) -> Result<Option<(Info, Frame)>> {
        if self.path.is_file() {
            check_self_contained(self.path)?;
        }
        let (mut source, number) = (open_clip(self.path, self.clip)?, self.number());
        match source.info().kind {
            Kind::Image | Kind::Pages => {}
            Kind::Video(_) if number > 0 => source = self.sought(source, number)?,
            _ => drop(source.skip(number)?),
        }
        let frame = source.next()?;
        Ok(frame.map(|frame| (source.info().clone(), frame)))
    }

    /// The index of the frame that is shown at the time.
    fn number(self) -> usize {
        // Times are rounded to microseconds on their way.
        let number = (self.at * self.rate + 1e-3).floor().max(0.0) as usize;
        self.frames.map_or(number, |frames| number.min(frames.saturating_sub(1)))
    }

    /// Seeks, so that a frame of a long video takes no longer than one of a short video.
    fn sought(self, mut source: Box<dyn Source>, number: usize) -> Result<Box<dyn Source>> {
        let first = source.next()?.and_then(|_| source.time()).unwrap_or_default();
        // Half a frame earlier, because times are rounded.
        let start = first + Duration::from_secs_f64((number as f64 - 0.5) / self.rate.max(1e-3));
        open_clip(self.path, Clip { start: Some(start), end: None, ..self.clip })
    }
}

/// A frame that is at most `width` pixels wide. It is never enlarged.
pub fn within(info: &Info, frame: Frame, width: Option<usize>) -> reseed::Result<Frame> {
    let Size { h, w } = frame.size;
    let Some(width) = width.filter(|width| *width < w) else { return Ok(frame) };
    let h = (h as f64 * width as f64 / w as f64).round().max(1.0) as usize;
    Settings { target: Target::Exact(Size { h, w: width }), ..Settings::default() }.resized_input(info, &frame)
}
