//! SMPTE timecodes, which number the frames of a video by a time of day. MOV and MP4 store them in a track, other
//! containers in a tag.

use crate::frame::Rate;
use crate::video::Video;

/// Arguments of ffmpeg that give the output the timecode of its source.
pub(super) fn options(video: &Video) -> Vec<String> {
    match timecode(video) {
        // A timecode of the whole file would take precedence over that of the stream.
        Some(timecode) => {
            ["-metadata", "timecode=", "-metadata:s:v:0", &format!("timecode={timecode}")].map(str::to_owned).into()
        }
        None => Vec::new(),
    }
}

/// The timecode of the first frame that is read.
fn timecode(video: &Video) -> Option<String> {
    let rate = video.timeline.clock().rate();
    let fps = f64::from(rate.num) / f64::from(rate.den);
    // The first frame at or after the start.
    let skipped = (video.clip.start.unwrap_or_default().as_secs_f64() * fps - 1e-6).ceil().max(0.0);
    advance(video.timecode.as_deref()?, skipped as u64, rate)
}

/// The timecode `frames` frames after `text`, such as `01:00:00:00`, or `01:00:00;00` with dropped numbers. `None` if
/// `text` is no timecode.
fn advance(text: &str, frames: u64, rate: Rate) -> Option<String> {
    // 29.97 frames per second are numbered as 30.
    let per_second = u64::from(rate.num).checked_add(u64::from(rate.den) / 2)?.checked_div(rate.den.into())?.max(1);
    let drop = text.contains([';', '.']);
    let mut parts = text.split([':', ';', '.']).map(|part| part.parse::<u64>().ok().filter(|number| *number < 1000));
    let (h, m, s, f) = (parts.next()??, parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || m > 59 || s > 59 || f >= per_second {
        return None;
    }
    let day = Numbering { per_second, dropped: if drop { per_second / 15 } else { 0 } };
    let number = day.count(h, m, s, f) + frames;
    Some(day.text(number, if drop { ';' } else { ':' }))
}

/// How frames are numbered. The first numbers of every minute are dropped, except of every tenth minute.
struct Numbering {
    per_second: u64,
    dropped: u64,
}

impl Numbering {
    fn minute(&self) -> u64 {
        60 * self.per_second - self.dropped
    }

    fn ten_minutes(&self) -> u64 {
        600 * self.per_second - 9 * self.dropped
    }

    /// Frames from midnight to a timecode.
    fn count(&self, h: u64, m: u64, s: u64, f: u64) -> u64 {
        let minutes = 60 * h + m;
        (minutes * 60 + s) * self.per_second + f - self.dropped * (minutes - minutes / 10)
    }

    fn text(&self, number: u64, separator: char) -> String {
        let number = number % (144 * self.ten_minutes());
        let (tens, rest) = (number / self.ten_minutes(), number % self.ten_minutes());
        // The first minute of ten drops nothing.
        let minutes = rest.saturating_sub(self.dropped) / self.minute();
        let number = number + self.dropped * (9 * tens + minutes);
        let (seconds, f) = (number / self.per_second, number % self.per_second);
        let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        format!("{h:02}:{m:02}:{s:02}{separator}{f:02}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PAL: Rate = Rate { num: 25, den: 1 };
    const NTSC: Rate = Rate { num: 30000, den: 1001 };

    #[test]
    fn frames_carry_into_seconds_minutes_and_hours() {
        let after = |text, frames| advance(text, frames, PAL).unwrap();
        assert_eq!(after("10:20:30:05", 0), "10:20:30:05");
        assert_eq!(after("10:59:59:24", 1), "11:00:00:00");
        assert_eq!(after("23:59:59:24", 1), "00:00:00:00");
        assert_eq!(after("01:00:00:00", 25 * 61), "01:01:01:00");
    }

    #[test]
    fn dropped_numbers_are_skipped() {
        let after = |text, frames| advance(text, frames, NTSC).unwrap();
        assert_eq!(after("00:00:59;29", 1), "00:01:00;02");
        assert_eq!(after("00:01:59;29", 1), "00:02:00;02");
        assert_eq!(after("00:09:59;29", 1), "00:10:00;00");
        assert_eq!(after("00:00:00;00", 107_892), "01:00:00;00");
        assert_eq!(after("00:00:59:29", 1), "00:01:00:00");
        let fast = Rate { num: 60000, den: 1001 };
        assert_eq!(advance("00:00:59;59", 1, fast).unwrap(), "00:01:00;04");
    }

    #[test]
    fn other_texts_are_no_timecodes() {
        for text in ["", "1:2:3", "aa:00:00:00", "00:61:00:00", "00:00:00:25", "00:00:00:00:00", "-1:00:00:00"] {
            assert_eq!(advance(text, 0, PAL), None, "{text}");
        }
        assert_eq!(advance("00:00:00:00", 0, Rate { num: u32::MAX, den: 0 }), None);
    }
}
