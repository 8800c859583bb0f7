//! A source that reads a Y4M stream.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::header::Header;
use super::{MAGIC, converter};
use crate::error::{Error, HeaderProblem, Result};
use crate::frame::{Frame, Samples};
use crate::planes::Yuv;
use crate::stream::{ImageTags, Info, Kind, Source};

const FRAME: &[u8] = b"FRAME";

/// The longest accepted line, far longer than any valid one. It bounds the memory for untrusted input.
const MAX_LINE: usize = 4096;

/// Reads frames from a Y4M stream, one at a time.
pub(crate) struct Reader {
    input: Box<dyn BufRead + Send>,
    name: PathBuf,
    info: Info,
    yuv: Yuv,
    planes: Vec<u8>,
    spare: Option<Samples>,
    read: usize,
}

impl Reader {
    /// Reads the header of a stream that cannot seek; its number of frames is unknown. Errors name the stream `name`.
    pub fn new(input: impl Read + Send + 'static, name: impl Into<PathBuf>) -> Result<Reader> {
        let (mut input, name) = (BufReader::new(input), name.into());
        let header = read_header(&mut input, &name)?;
        Ok(Reader::with_header(input, name, header, None))
    }

    /// Reads the header and counts the frames, which also finds an incomplete or damaged file before the job starts.
    pub fn seekable(input: impl Read + Seek + Send + 'static, name: impl Into<PathBuf>) -> Result<Reader> {
        let (mut input, name) = (BufReader::new(input), name.into());
        let header = read_header(&mut input, &name)?;
        let frame_bytes = converter(&header.format, header.size).frame_bytes();
        let frames = count_frames(&mut input, &name, frame_bytes)?;
        Ok(Reader::with_header(input, name, header, Some(frames)))
    }

    fn with_header(
        input: impl BufRead + Send + 'static,
        name: PathBuf,
        header: Header,
        frames: Option<usize>,
    ) -> Reader {
        let Header { size, rate, format } = header;
        let yuv = converter(&format, size);
        let (depth, kind) = (format.depth(), Kind::Y4m(format));
        let info =
            Info { size, frames, rate, depth, alpha: false, kind, names: Vec::new(), tags: ImageTags::default() };
        Reader { input: Box::new(input), name, info, yuv, planes: Vec::new(), spare: None, read: 0 }
    }

    /// Reads the planes of the next frame; `None` after the last.
    pub(super) fn next_planes(&mut self) -> Result<Option<&[u8]>> {
        let frame = self.read + 1;
        if read_frame_line(&mut self.input, &self.name, frame)?.is_none() {
            return Ok(None);
        }
        // The buffer grows with the bytes that arrive, so that a false header cannot allocate much memory.
        let bytes = self.yuv.frame_bytes();
        self.planes.clear();
        let read = (&mut self.input).take(bytes as u64).read_to_end(&mut self.planes);
        if read.map_err(|cause| Error::Read { path: self.name.clone(), cause })? < bytes {
            return Err(Error::Truncated { path: self.name.clone(), frame });
        }
        self.read = frame;
        Ok(Some(&self.planes))
    }

    #[cfg(test)]
    pub(super) fn planes_capacity(&self) -> usize {
        self.planes.capacity()
    }
}

impl Source for Reader {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        match self.next_planes()? {
            Some(_) => Ok(Some(self.yuv.decode(&self.planes, self.spare.take()))),
            None => Ok(None),
        }
    }

    fn reuse(&mut self, done: Samples) {
        self.spare = Some(done);
    }
}

/// A line without its line feed, of at most `MAX_LINE` bytes.
struct Line {
    text: Vec<u8>,
    /// Whether the line feed was read.
    complete: bool,
}

fn read_line(input: &mut impl BufRead) -> io::Result<Line> {
    let mut text = Vec::new();
    input.take(MAX_LINE as u64).read_until(b'\n', &mut text)?;
    let complete = text.last() == Some(&b'\n');
    if complete {
        text.pop();
    }
    Ok(Line { text, complete })
}

fn read_header(input: &mut impl BufRead, name: &Path) -> Result<Header> {
    let Line { text, complete } = read_line(input).map_err(|cause| Error::Read { path: name.to_owned(), cause })?;
    let parse = || {
        if !text.starts_with(MAGIC) {
            return Err(HeaderProblem::NotY4m);
        }
        if !complete {
            let too_long = text.len() >= MAX_LINE;
            return Err(if too_long { HeaderProblem::TooLong(MAX_LINE) } else { HeaderProblem::Unfinished });
        }
        Header::parse(std::str::from_utf8(&text).map_err(|_| HeaderProblem::NotText)?)
    };
    parse().map_err(|problem| Error::Header { path: name.to_owned(), problem })
}

/// Reads the header line of a frame and returns its length, or `None` at the end of the stream. Parameters of the line
/// describe fields of interlaced video and are ignored.
fn read_frame_line(input: &mut impl BufRead, name: &Path, frame: usize) -> Result<Option<usize>> {
    let Line { text, complete } = read_line(input).map_err(|cause| Error::Read { path: name.to_owned(), cause })?;
    let begins = text.starts_with(FRAME) && matches!(text.get(FRAME.len()), None | Some(b' '));
    match (complete, begins) {
        (false, _) if text.is_empty() => Ok(None),
        (true, true) => Ok(Some(text.len() + 1)),
        (false, _) if text.len() < MAX_LINE && (begins || FRAME.starts_with(&text)) => {
            Err(Error::Truncated { path: name.to_owned(), frame })
        }
        _ => Err(Error::BadFrameHeader { path: name.to_owned(), frame }),
    }
}

/// Counts frames by their header lines, whose lengths may differ.
fn count_frames<R: Read + Seek>(input: &mut BufReader<R>, name: &Path, frame_bytes: usize) -> Result<usize> {
    let cannot_read = |cause| Error::Read { path: name.to_owned(), cause };
    let start = input.stream_position().map_err(cannot_read)?;
    let end = input.seek(SeekFrom::End(0)).map_err(cannot_read)?;
    input.seek(SeekFrom::Start(start)).map_err(cannot_read)?;

    let (mut position, mut frames) = (start, 0);
    while let Some(line) = read_frame_line(input, name, frames + 1)? {
        position += (line + frame_bytes) as u64;
        if position > end {
            return Err(Error::Truncated { path: name.to_owned(), frame: frames + 1 });
        }
        input.seek_relative(frame_bytes as i64).map_err(cannot_read)?;
        frames += 1;
    }
    input.seek(SeekFrom::Start(start)).map_err(cannot_read)?;
    Ok(frames)
}
