//! Finding a place in a video again by what an earlier run knew of its frames.
//!
//! Containers lead to some keyframe before a time, more or less; what a decoder gives out right behind it may be broken,
//! where frames refer to others before the keyframe. So we start well before the place and trust it only when many frames
//! in a row were the very ones that were read the first time.

use super::Video;
use super::timeline::Mark;

/// Frames before the place that the way starts at, at the latest.
const RUN_UP: usize = 96;
/// Frames in a row that must be the same, right before the place.
const PROOF: usize = 48;
/// Most frames on the way: no keyframes lie farther apart.
const LONGEST: usize = 2000;

/// The way to a frame.
pub(super) struct Way<'a> {
    /// Seconds to seek to.
    pub time: f64,
    /// The frames before the place.
    past: &'a [Mark],
    /// The frame that should come next, once one was known.
    next: Option<usize>,
    same: usize,
    passed: usize,
}

/// What a frame on the way says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Passed {
    On,
    There,
    Lost,
}

impl<'a> Way<'a> {
    /// A way behind the first `frames` frames, where seeking can pay and frames can be told apart by their timestamps.
    pub fn to(frames: usize, past: &'a [Mark], video: &Video) -> Option<Way<'a>> {
        let past = past.get(..frames).filter(|_| frames > 2 * RUN_UP && video.clip.start.is_none())?;
        let grows = |pair: &[Mark]| pair[0].stamp.zip(pair[1].stamp).is_some_and(|(a, b)| a < b);
        past.windows(2).all(grows).then_some(())?;
        let time = video.timeline.seconds(past[frames - RUN_UP].stamp?);
        Some(Way { time, past, next: None, same: 0, passed: 0 })
    }

    /// Takes the next frame on the way.
    pub fn pass(&mut self, mark: Mark) -> Passed {
        self.passed += 1;
        let found = self.past.binary_search_by_key(&mark.stamp, |past| past.stamp);
        let Ok(at) = found else {
            self.same = 0;
            let beyond = self.past.last().is_none_or(|last| mark.stamp > last.stamp);
            return if beyond || self.passed > LONGEST { Passed::Lost } else { Passed::On };
        };
        let follows = self.next.is_none_or(|next| next == at);
        self.same = if self.past[at].digest == mark.digest { 1 + if follows { self.same } else { 0 } } else { 0 };
        self.next = Some(at + 1);
        match at + 1 == self.past.len() {
            true if self.same >= PROOF => Passed::There,
            true => Passed::Lost,
            false if self.passed > LONGEST => Passed::Lost,
            false => Passed::On,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past() -> Vec<Mark> {
        (0..300).map(|i| Mark { stamp: Some(3 * i), digest: i as u64 }).collect()
    }

    fn way(past: &[Mark]) -> Way<'_> {
        Way { time: 0.0, past, next: None, same: 0, passed: 0 }
    }

    /// What the last of these frames says.
    fn last(past: &[Mark], frames: impl IntoIterator<Item = Mark>) -> Passed {
        let mut way = way(past);
        frames.into_iter().fold(Passed::On, |before, mark| {
            assert_eq!(before, Passed::On, "nothing is passed behind an end");
            way.pass(mark)
        })
    }

    #[test]
    fn the_same_frames_lead_there() {
        let past = past();
        assert_eq!(last(&past, past[200..].iter().copied()), Passed::There);
        // Broken pictures right behind a keyframe, and one of a time that nobody saw.
        let broken = |i: usize| Mark { digest: 7777, ..past[i] };
        let odd = Mark { stamp: Some(601), digest: 0 };
        let frames = [broken(198), odd, broken(201)].into_iter().chain(past[202..].iter().copied());
        assert_eq!(last(&past, frames), Passed::There);
    }

    #[test]
    fn others_do_not() {
        let past = past();
        let late = past[270..].iter().copied();
        assert_eq!(last(&past, late), Passed::Lost, "too few to be sure");
        let changed = past[200..].iter().map(|mark| Mark { digest: mark.digest / 299 * 9, ..*mark });
        assert_eq!(last(&past, changed), Passed::Lost, "other pictures");
        let gap = past[200..].iter().copied().filter(|mark| mark.stamp != Some(870));
        assert_eq!(last(&past, gap), Passed::Lost, "a frame is missing near the end");
        assert_eq!(last(&past, [Mark { stamp: Some(900), digest: 0 }]), Passed::Lost, "beyond the place");
    }
}
