//! A Y4M stream as a sink for frames.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::Format;
use super::header::Header;
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::partial::Partial;
use crate::planes::Yuv;
use crate::stream::{Info, Kind, Sink};

/// Writes frames to a Y4M stream, one at a time.
pub struct Writer {
    /// Declared before `partial`, so that the file closes before that removes it.
    output: BufWriter<Box<dyn Write + Send>>,
    partial: Option<Partial>,
    name: PathBuf,
    yuv: Yuv,
    planes: Vec<u8>,
}

impl Writer {
    /// Writes the header for `info` to a stream that errors call `name`. What was not Y4M before gets
    /// [`Format::for_depth`].
    pub fn new(output: impl Write + Send + 'static, name: impl Into<PathBuf>, info: &Info) -> Result<Writer> {
        let format = match &info.kind {
            Kind::Y4m(format) => format.clone(),
            Kind::Video(video) => video.y4m_format(),
            Kind::Image | Kind::Folder => Format::for_depth(info.depth),
        };
        let yuv = format.converter(info.size);
        let header = Header { size: info.size, rate: info.rate, format };
        let output = BufWriter::new(Box::new(output) as Box<dyn Write + Send>);
        let mut writer = Writer { output, partial: None, name: name.into(), yuv, planes: Vec::new() };
        writeln!(writer.output, "{header}").map_err(|cause| writer.cannot_write(cause))?;
        Ok(writer)
    }

    /// Writes to a file that appears at `path` when it is finished.
    pub(crate) fn create(path: &Path, info: &Info) -> Result<Writer> {
        let (file, partial) = Partial::file(path)?;
        let writer = Writer::new(file, path, info)?;
        Ok(Writer { partial: Some(partial), ..writer })
    }

    /// Writes a frame's planes as they are to stand in the stream.
    pub(super) fn write_planes(&mut self, planes: &[u8]) -> Result<()> {
        let written = self.output.write_all(b"FRAME\n").and_then(|()| self.output.write_all(planes));
        written.map_err(|cause| self.cannot_write(cause))
    }

    fn cannot_write(&self, cause: io::Error) -> Error {
        Error::Write { path: self.name.clone(), cause }
    }
}

impl Sink for Writer {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        let mut planes = std::mem::take(&mut self.planes);
        self.yuv.encode(frame, &mut planes);
        let written = self.write_planes(&planes);
        self.planes = planes;
        written
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.output.flush().map_err(|cause| self.cannot_write(cause))?;
        let Writer { output, partial, .. } = *self;
        drop(output);
        partial.map_or(Ok(()), Partial::commit)
    }
}
