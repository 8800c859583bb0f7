//! The description of a video file in a build without the `ffmpeg` feature.

use std::path::Path;

use super::{Options, Pixels};
use crate::format::Format;
use crate::frame::Mark;

/// The description of a video file. No value of this type exists without the `ffmpeg` feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Video {}

impl Video {
    /// What `output` cannot keep of this video, one line each.
    pub fn losses(&self, _output: &Path, _options: &Options) -> Vec<String> {
        match *self {}
    }

    /// A line that says how interlaced video becomes frames.
    pub fn field_note(&self) -> Option<&str> {
        match *self {}
    }

    pub(crate) fn marks(&self, _first: usize) -> Vec<Mark> {
        match *self {}
    }

    pub(crate) fn expect_marks(&self, _marks: &[Mark]) {
        match *self {}
    }

    pub(crate) fn set_marks(&self, _marks: &[Mark]) {
        match *self {}
    }

    pub(crate) fn pixels(&self) -> Pixels {
        match *self {}
    }

    pub(crate) fn y4m_format(&self) -> Format {
        match *self {}
    }
}
