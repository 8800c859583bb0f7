//! What a decoder prints to standard error: the timestamp of each frame, the size of frames, and errors.

use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use super::messages::strip_origin;
use crate::frame::Size;
use crate::problem::Problem;
use crate::video::Timeline;

/// The second line that the `metadata` filter prints for each frame.
pub(super) const MARK: &str = "reseed=0";
/// The factor that packs width and height into one number.
pub(super) const WIDTH_FACTOR: usize = 65_536;
/// Errors of ffmpeg about parts of a file that frames do not depend on.
const HARMLESS: [&str; 2] = ["Referenced QT chapter track not found", "Unsupported codec"];

/// Parses the lines of a decoder.
pub(super) struct DecoderLines {
    pub timestamps: Sender<Option<i64>>,
    pub log: Arc<Mutex<Log>>,
    /// Whether decoding starts inside of the file, so that errors before the first frame are expected.
    pub seeks: bool,
}

/// The place of an event: the number of frames before it, and the timestamp of the last of them.
type Place = (usize, Option<i64>);

/// The damage that a decoder reported.
#[derive(Debug, Default)]
pub(super) struct Log {
    frames: usize,
    last: Option<i64>,
    size: Option<Size>,
    change: Option<(Size, Place)>,
    errors: usize,
    first: Option<(String, Place)>,
    /// Whether the last line counted as an error.
    counted: bool,
}

impl DecoderLines {
    /// Parses a line; returns whether it is no message for people.
    pub fn line(&mut self, line: &str) -> bool {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(timestamp) = timestamp(line) {
            log.frames += 1;
            log.last = timestamp.or(log.last);
            // Sending fails only after the reader is dropped.
            return self.timestamps.send(timestamp).is_ok();
        }
        if let Some(size) = frame_size(line) {
            log.set_size(size);
            return true;
        }
        if line != MARK && !(self.seeks && log.frames == 0) {
            log.add_error(line);
        }
        line == MARK
    }
}

impl Log {
    fn place(&self) -> Place {
        (self.frames, self.last)
    }

    fn set_size(&mut self, size: Size) {
        let first = *self.size.get_or_insert(size);
        if size != first && self.change.is_none() {
            self.change = Some((size, self.place()));
        }
    }

    fn add_error(&mut self, line: &str) {
        if let Some(times) = repetitions(line) {
            self.errors += if self.counted { times } else { 0 };
            return;
        }
        self.counted = !line.is_empty() && !HARMLESS.iter().any(|harmless| line.contains(harmless));
        if self.counted {
            self.errors += 1;
            let place = self.place();
            self.first.get_or_insert_with(|| (strip_origin(line).to_owned(), place));
        }
    }

    /// The damage since the last call.
    pub fn take_problems(&mut self, path: &Path, timeline: &Timeline) -> Vec<Problem> {
        let seconds = |place: &Place| place.1.map_or(0.0, |timestamp| timeline.seconds(timestamp));
        let path = || path.to_owned();
        let change = self.change.take().zip(self.size).map(|((to, place), from)| {
            let (seconds, frame) = (seconds(&place), place.0);
            Problem::SizeChange { path: path(), from, to, seconds, frame }
        });
        let count = std::mem::take(&mut self.errors);
        let errors = self.first.take().map(|(message, place)| {
            let (seconds, frame) = (seconds(&place), place.0);
            Problem::DecoderErrors { path: path(), count, seconds, frame, message }
        });
        change.into_iter().chain(errors).collect()
    }
}

/// Parses `frame:12   pts:1001   pts_time:0.5`. The inner option is `None` for a frame without timestamp. A message of
/// another thread may precede it on the line.
fn timestamp(line: &str) -> Option<Option<i64>> {
    let (_, line) = line.rsplit_once("frame:")?;
    let (frame, rest) = line.split_once(char::is_whitespace)?;
    frame.parse::<u64>().ok()?;
    let value = rest.trim_start().strip_prefix("pts:")?.split_whitespace().next()?;
    Some(value.parse().ok())
}

/// Parses the number that the scale filter prints when it is configured: `[Eval @ 0x7ffd] 4194368.000000`.
fn frame_size(line: &str) -> Option<Size> {
    let number: usize = strip_origin(line).strip_suffix(".000000")?.parse().ok()?;
    Some(Size { h: number % WIDTH_FACTOR, w: number / WIDTH_FACTOR })
}

/// Parses `Last message repeated 3 times`.
fn repetitions(line: &str) -> Option<usize> {
    line.strip_prefix("Last message repeated ")?.split_once(' ')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::channel;

    use super::*;
    use crate::frame::Rate;

    #[test]
    fn timestamps_are_distinguished_from_messages() {
        assert_eq!(timestamp("frame:12   pts:1001    pts_time:0.5"), Some(Some(1001)));
        assert_eq!(timestamp("oops frame:3    pts:-7      pts_time:-0.1"), Some(Some(-7)));
        assert_eq!(timestamp("frame:0    pts:NOPTS   pts_time:NOPTS"), Some(None));
        assert_eq!(timestamp("[h264 @ 0x1] error while decoding frame: 7"), None);
    }

    #[test]
    fn errors_and_changes_of_size_are_reported_with_their_place() {
        let (sender, receiver) = channel();
        let mut messages = DecoderLines { timestamps: sender, log: Arc::default(), seeks: false };
        let lines = [
            ("[Eval @ 0x7ffc] 4194368.000000", true),
            ("frame:0 pts:0 pts_time:0", true),
            (MARK, true),
            ("frame:1 pts:40 pts_time:0.04", true),
            ("[h264 @ 0x1] concealing 4 errors", false),
            ("Last message repeated 2 times", false),
            ("[mov @ 0x1] Referenced QT chapter track not found", false),
            ("Last message repeated 9 times", false),
            ("[Eval @ 0x7ffc] 2097184.000000", true),
            ("frame:0 pts:80 pts_time:0.08", true),
        ];
        for (line, consumed) in lines {
            assert_eq!(messages.line(line), consumed, "{line}");
        }
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [Some(0), Some(40), Some(80)]);
        let timeline = Timeline::new(Rate { num: 25, den: 1 }, Rate { num: 1, den: 1000 });
        let problems = messages.log.lock().unwrap().take_problems(Path::new("a.ts"), &timeline);
        let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
        assert_eq!(
            lines,
            [
                "a.ts: frames change from 64x64 to 32x32 at 0.04 s (frame 2); they are scaled to 64x64",
                "a.ts: damaged, 3 errors while decoding, the first at 0.04 s (frame 2): concealing 4 errors",
            ]
        );
    }
}
