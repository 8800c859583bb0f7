//! A sink that writes a Y4M stream.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::header::Header;
use super::{FRAME_LINE, converter};
use crate::digest::{Digest, read_into};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::frame::Frame;
use crate::partial::Partial;
use crate::planes::Yuv;
use crate::stream::{Info, Kind, Sink};

/// Writes frames to a Y4M stream, one at a time.
pub(crate) struct Writer {
    /// Declared before `partial`, so that the file closes before it is removed.
    output: BufWriter<Box<dyn Write + Send>>,
    /// A second handle of the file, for syncing; `None` for a pipe.
    file: Option<File>,
    partial: Option<Partial>,
    name: PathBuf,
    yuv: Yuv,
    planes: Vec<u8>,
    written: usize,
    /// Of all bytes of the stream.
    digest: Digest,
}

impl Writer {
    /// Writes the header for `info` to a stream that errors name `name`.
    pub fn new(output: impl Write + Send + 'static, name: impl Into<PathBuf>, info: &Info) -> Result<Writer> {
        let (header, mut writer) = Writer::without_header(output, name, info);
        writer.output.write_all(header.as_bytes()).map_err(|cause| writer.cannot_write(cause))?;
        writer.digest.update(header.as_bytes());
        Ok(writer)
    }

    /// The header line of a stream, and a writer for the frames that follow it.
    fn without_header(output: impl Write + Send + 'static, name: impl Into<PathBuf>, info: &Info) -> (String, Writer) {
        let format = match &info.kind {
            Kind::Y4m(format) => format.clone(),
            Kind::Video(video) => video.y4m_format(),
            Kind::Image | Kind::Pages | Kind::Folder | Kind::Animation(_) => Format::for_depth(info.depth),
        };
        let yuv = converter(&format, info.size);
        let header = Header { size: info.size, rate: info.rate, format };
        let output = BufWriter::new(Box::new(output) as Box<dyn Write + Send>);
        let (partial, file, name, planes, digest) = (None, None, name.into(), Vec::new(), Digest::new(0));
        (format!("{header}\n"), Writer { output, partial, file, name, yuv, planes, written: 0, digest })
    }

    /// Creates a temporary file that is renamed to `path` when it is finished.
    pub(crate) fn create(path: &Path, info: &Info) -> Result<Writer> {
        let (file, partial) = Partial::file(path)?;
        let handle = file.try_clone().map_err(|cause| Error::Write { path: path.to_owned(), cause })?;
        let writer = Writer::new(file, path, info)?;
        Ok(Writer { partial: Some(partial), file: Some(handle), ..writer })
    }

    /// Continues after the first `frames` frames of the temporary file of an interrupted run.
    pub(crate) fn resume(path: &Path, info: &Info, frames: usize) -> Result<Writer> {
        let (mut file, partial) = Partial::reopen_file(path)?;
        let cannot_write = |cause| Error::Write { path: path.to_owned(), cause };
        let existing = file.metadata().map_err(cannot_write)?.len();
        let output = file.try_clone().map_err(cannot_write)?;
        let (header, mut writer) = Writer::without_header(output, path, info);
        let frame = (FRAME_LINE.len() + writer.yuv.frame_bytes()) as u64;
        let length = header.len() as u64 + frames as u64 * frame;
        if existing < length {
            let complete = existing.saturating_sub(header.len() as u64) / frame;
            return Err(Error::MissingFrame { path: partial.path().to_owned(), frame: complete as usize + 1 });
        }
        read_into(&mut writer.digest, &file, length).map_err(cannot_write)?;
        file.set_len(length).and_then(|()| file.seek(SeekFrom::End(0))).map_err(cannot_write)?;
        Ok(Writer { partial: Some(partial), file: Some(file), written: frames, ..writer })
    }

    /// Writes the planes of a frame.
    pub(super) fn write_planes(&mut self, planes: &[u8]) -> Result<()> {
        let written = self.output.write_all(FRAME_LINE).and_then(|()| self.output.write_all(planes));
        self.digest.update(FRAME_LINE);
        self.digest.update(planes);
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
        self.written += 1;
        written
    }

    fn sync(&mut self) -> Result<usize> {
        let Some(file) = &self.file else { return Ok(0) };
        let synced = self.output.flush().and_then(|()| file.sync_data());
        synced.map_err(|cause| self.cannot_write(cause))?;
        Ok(self.written)
    }

    fn digest(&self) -> u64 {
        self.digest.value()
    }

    fn keep_unfinished(&mut self) {
        if let Some(partial) = &mut self.partial {
            partial.keep();
        }
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.output.flush().map_err(|cause| self.cannot_write(cause))?;
        let Writer { output, file, partial, .. } = *self;
        drop((output, file));
        partial.map_or(Ok(()), Partial::commit)
    }
}
