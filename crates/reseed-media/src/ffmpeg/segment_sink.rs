//! A sink that writes some segments of a video.

use std::path::Path;

use super::output_format::OutputFormat;
use super::segments::Segments;
use super::work_folder::WorkFolder;
use crate::error::Result;
use crate::frame::Frame;
use crate::planes::Planes;
use crate::stream::{Info, Sink};
use crate::video::Options;

/// Writes frames to segments, and joins nothing.
pub(crate) struct SegmentSink {
    planes: Planes,
    buffer: Vec<u8>,
    segments: Segments,
}

impl SegmentSink {
    /// The segments of the video at `output` from number `first` on, in `folder`.
    pub fn create(folder: &Path, output: &Path, info: &Info, options: &Options, first: usize) -> Result<SegmentSink> {
        let OutputFormat { codec, planes, encoder, .. } = OutputFormat::choose(output, info, options)?;
        let work = WorkFolder::create(folder, codec.segment_format(), first)?;
        encoder.try_out(&work, planes.frame_bytes())?;
        Ok(SegmentSink { planes, buffer: Vec::new(), segments: Segments::new(encoder, info.timeline(), work, 1) })
    }
}

impl Sink for SegmentSink {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        self.planes.encode(frame, &mut self.buffer);
        self.segments.append(&self.buffer, false)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.segments.finish()?;
        self.segments.work.sync()?;
        self.segments.work.keep = true;
        Ok(())
    }
}
