//! Animated GIF, PNG and WebP files: all frames, composited, with their delays.
//!
//! A sink keeps its frames as PNG files in a folder beside the output and joins them at the end, so that an interrupted
//! job can resume. PNG and WebP store frames without loss. GIF has 256 colours, which ffmpeg chooses for the whole
//! animation, and delays of hundredths of a second.

mod apng;
mod gif;
mod read;
mod sink;
mod webp;

use std::path::Path;

use crate::delays::{Animation, Delay};

pub(crate) use read::{AnimationSource, is_animated};
pub(crate) use sink::AnimationSink;

/// The format of an animation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnimationFormat {
    Gif,
    Apng,
    WebP,
}

impl AnimationFormat {
    /// The format that an output of this name is written in. `.png` is animated only if the source is.
    pub fn for_output(path: &Path, animated: bool) -> Option<AnimationFormat> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "gif" => Some(AnimationFormat::Gif),
            "apng" => Some(AnimationFormat::Apng),
            "png" if animated => Some(AnimationFormat::Apng),
            "webp" => Some(AnimationFormat::WebP),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            AnimationFormat::Gif => "GIF",
            AnimationFormat::Apng => "PNG",
            AnimationFormat::WebP => "WebP",
        }
    }
}
