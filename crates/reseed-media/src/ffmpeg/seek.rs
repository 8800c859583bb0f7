//! Verifies a seek in a video by the marks that an earlier run saved.
//!
//! A seek lands on some keyframe near the requested time. The first frames after it may be damaged where they refer to
//! frames before the keyframe. So the decoder starts well before the target, and the seek succeeds only if many
//! consecutive frames before the target equal those of the earlier run.

use crate::frame::Mark;
use crate::video::{FieldAction, Video};

/// The least distance in frames from the start of decoding to the target.
const PREROLL: usize = 96;
/// Consecutive frames right before the target that must match.
const MIN_MATCHES: usize = 48;
/// The most frames to decode before giving up; keyframes are closer than this.
const MAX_FRAMES: usize = 2000;

/// The check of one seek.
pub(super) struct SeekCheck<'a> {
    /// The time to seek to, in seconds.
    pub time: f64,
    /// The marks of the frames before the target.
    earlier: &'a [Mark],
    /// The index of the expected next frame, once a frame was recognised.
    next: Option<usize>,
    /// Consecutive frames that matched.
    matches: usize,
    decoded: usize,
}

/// The state of a seek after a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SeekState {
    Searching,
    Arrived,
    Failed,
}

impl<'a> SeekCheck<'a> {
    /// A check for a seek to frame `frames`; `None` if seeking saves little or timestamps do not identify frames.
    pub fn new(frames: usize, earlier: &'a [Mark], video: &Video) -> Option<SeekCheck<'a>> {
        // Inverse telecine counts cycles of frames from the beginning.
        let whole = video.clip.start.is_none() && video.fields != FieldAction::InverseTelecine;
        let earlier = earlier.get(..frames).filter(|_| frames > 2 * PREROLL && whole)?;
        let increases = |pair: &[Mark]| pair[0].timestamp.zip(pair[1].timestamp).is_some_and(|(a, b)| a < b);
        earlier.windows(2).all(increases).then_some(())?;
        let time = video.timeline.seconds(earlier[frames - PREROLL].timestamp?);
        Some(SeekCheck { time, earlier, next: None, matches: 0, decoded: 0 })
    }

    /// Checks the next decoded frame.
    pub fn next(&mut self, mark: Mark) -> SeekState {
        self.decoded += 1;
        let found = self.earlier.binary_search_by_key(&mark.timestamp, |earlier| earlier.timestamp);
        let Ok(at) = found else {
            self.matches = 0;
            let beyond = self.earlier.last().is_none_or(|last| mark.timestamp > last.timestamp);
            return if beyond || self.decoded > MAX_FRAMES { SeekState::Failed } else { SeekState::Searching };
        };
        let follows = self.next.is_none_or(|next| next == at);
        self.matches =
            if self.earlier[at].digest == mark.digest { 1 + if follows { self.matches } else { 0 } } else { 0 };
        self.next = Some(at + 1);
        match at + 1 == self.earlier.len() {
            true if self.matches >= MIN_MATCHES => SeekState::Arrived,
            true => SeekState::Failed,
            false if self.decoded > MAX_FRAMES => SeekState::Failed,
            false => SeekState::Searching,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> Vec<Mark> {
        (0..300).map(|i| Mark { timestamp: Some(3 * i), digest: i as u64 }).collect()
    }

    /// The state after the last of `frames`.
    fn last(earlier: &[Mark], frames: impl IntoIterator<Item = Mark>) -> SeekState {
        let mut check = SeekCheck { time: 0.0, earlier, next: None, matches: 0, decoded: 0 };
        frames.into_iter().fold(SeekState::Searching, |before, mark| {
            assert_eq!(before, SeekState::Searching, "no frame follows a final state");
            check.next(mark)
        })
    }

    #[test]
    fn matching_frames_arrive() {
        let marks = marks();
        assert_eq!(last(&marks, marks[200..].iter().copied()), SeekState::Arrived);
        // Damaged frames right after a keyframe, and one with an unknown timestamp.
        let damaged = |i: usize| Mark { digest: 7777, ..marks[i] };
        let unknown = Mark { timestamp: Some(601), digest: 0 };
        let frames = [damaged(198), unknown, damaged(201)].into_iter().chain(marks[202..].iter().copied());
        assert_eq!(last(&marks, frames), SeekState::Arrived);
    }

    #[test]
    fn other_frames_fail() {
        let marks = marks();
        let late = marks[270..].iter().copied();
        assert_eq!(last(&marks, late), SeekState::Failed, "too few matches");
        let changed = marks[200..].iter().map(|mark| Mark { digest: mark.digest / 299 * 9, ..*mark });
        assert_eq!(last(&marks, changed), SeekState::Failed, "different frames");
        let gap = marks[200..].iter().copied().filter(|mark| mark.timestamp != Some(870));
        assert_eq!(last(&marks, gap), SeekState::Failed, "a frame is missing near the target");
        assert_eq!(last(&marks, [Mark { timestamp: Some(900), digest: 0 }]), SeekState::Failed, "after the target");
    }
}
