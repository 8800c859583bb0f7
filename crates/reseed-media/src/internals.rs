//! Not part of the public interface: parsers of bytes in memory, for fuzzing. May change in any version.

use std::io::Cursor;

use crate::error::Result;
use crate::stream::Source;
use crate::y4m::Reader;

const NAME: &str = "input.y4m";

/// A Y4M stream as a pipe brings it.
pub fn y4m_pipe(bytes: Vec<u8>) -> Result<Box<dyn Source>> {
    Ok(Box::new(Reader::new(Cursor::new(bytes), NAME)?))
}

/// A Y4M file, whose frames are counted first.
pub fn y4m_file(bytes: Vec<u8>) -> Result<Box<dyn Source>> {
    Ok(Box::new(Reader::seekable(Cursor::new(bytes), NAME)?))
}
