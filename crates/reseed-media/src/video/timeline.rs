//! When frames are shown, in whole numbers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::frame::Rate;

/// Finer clocks than this could not be told apart where videos are joined, which counts microseconds.
const MOST_TICKS: u64 = 480_000;
/// The clock of last resort.
const COMMON_TICKS: u64 = 90_000;

/// A clock in which both the source's timestamps and the length of a frame are whole numbers, where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Ticks a second.
    pub per_second: u32,
    /// Ticks from a frame to the next, where they come at a constant rate.
    pub frame: u32,
}

impl Clock {
    /// The clock for frames at `rate` whose times are multiples of `1 / ticks` seconds.
    pub fn new(rate: Rate, ticks: u64) -> Clock {
        let (num, den) = (u64::from(rate.num), u64::from(rate.den));
        let common = num / greatest_common_divisor(num, den);
        let least = common / greatest_common_divisor(common, ticks) * ticks;
        let (per_second, frame) = match least {
            1..=MOST_TICKS => (least, least * den / num),
            _ => {
                let ticks = if (1000..=MOST_TICKS).contains(&ticks) { ticks } else { COMMON_TICKS };
                (ticks, ((ticks * den + num / 2) / num).max(1))
            }
        };
        Clock { per_second: per_second as u32, frame: frame.min(u64::from(u32::MAX)) as u32 }
    }

    /// Frames a second, as near as this clock can say.
    pub fn rate(self) -> Rate {
        Rate { num: self.per_second, den: self.frame }
    }

    /// Ticks as microseconds.
    pub fn micros(self, ticks: i64) -> i64 {
        rescale(ticks, 1_000_000, self.per_second.into())
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// `value * num / den`, rounded to nearest.
fn rescale(value: i64, num: i64, den: i64) -> i64 {
    let (value, num, den) = (i128::from(value), i128::from(num), i128::from(den));
    (2 * value * num + den).div_euclid(2 * den) as i64
}

/// When each frame that was read so far is shown, in ticks of a clock. The source adds to it, the sink asks it; clones
/// are the same timeline.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    clock: Clock,
    /// Seconds of a tick of the source's timestamps.
    base: Rate,
    frames: Arc<Mutex<Frames>>,
}

/// What is known of a frame that was read: enough to find it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The source's timestamp.
    pub stamp: Option<i64>,
    /// Of its planes.
    pub digest: u64,
}

/// The frames that were read, and those that an earlier run read.
#[derive(Debug, Default)]
struct Frames {
    times: Vec<i64>,
    marks: Vec<Mark>,
    past: Arc<Vec<Mark>>,
}

/// Timelines are equal when they are the same.
impl PartialEq for Timeline {
    fn eq(&self, other: &Timeline) -> bool {
        Arc::ptr_eq(&self.frames, &other.frames)
    }
}

impl Eq for Timeline {}

impl Timeline {
    /// An empty timeline for frames at about `rate` with timestamps that count `base` seconds.
    pub fn new(rate: Rate, base: Rate) -> Timeline {
        Timeline { clock: Clock::new(rate, (base.den / base.num.max(1)).into()), base, frames: Arc::default() }
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The next frame. Times always grow, so that no frame is lost to another.
    pub fn push(&self, mark: Mark) {
        let mut frames = self.lock();
        let Frames { times, marks, .. } = &mut *frames;
        let (timestamp, frame) = (mark.stamp, i64::from(self.clock.frame));
        let (first, last, index) = (times.first().copied(), times.last().copied(), times.len() as i64);
        let time = match (timestamp, first, last) {
            (Some(stamp), Some(first), Some(last)) => self.snapped(stamp, first + index * frame).max(last + 1),
            (Some(stamp), ..) => self.ticks(stamp),
            (None, _, Some(last)) => last + frame,
            (None, ..) => 0,
        };
        times.push(time);
        marks.push(mark);
    }

    /// What is known of frame `from` and of those behind it.
    pub fn marks(&self, from: usize) -> Vec<Mark> {
        self.lock().marks.get(from..).unwrap_or_default().to_vec()
    }

    /// What an earlier run knew.
    pub fn past(&self) -> Arc<Vec<Mark>> {
        self.lock().past.clone()
    }

    /// An earlier run knew this.
    pub fn remember(&self, marks: Vec<Mark>) {
        self.lock().past = Arc::new(marks);
    }

    /// Seconds of a timestamp.
    pub fn seconds(&self, stamp: i64) -> f64 {
        stamp as f64 * f64::from(self.base.num) / f64::from(self.base.den)
    }

    /// A timestamp may be the rounded time of a frame at a constant rate; then that time is the true one.
    fn snapped(&self, stamp: i64, regular: i64) -> i64 {
        let Clock { per_second, .. } = self.clock;
        let rounded = rescale(regular, self.base.den.into(), i64::from(per_second) * i64::from(self.base.num));
        if rounded == stamp { regular } else { self.ticks(stamp) }
    }

    fn ticks(&self, stamp: i64) -> i64 {
        let ticks = i64::from(self.clock.per_second) * i64::from(self.base.num);
        rescale(stamp, ticks, self.base.den.into())
    }

    /// When frame `index` is shown. Frames that are not there are thought on at the clock's rate on both sides.
    pub fn time(&self, index: i64) -> i64 {
        let frames = self.lock();
        let (times, frame) = (&frames.times, i64::from(self.clock.frame));
        match (times.first(), times.last()) {
            (Some(first), _) if index < 0 => first + index * frame,
            (_, Some(last)) => {
                times.get(index as usize).copied().unwrap_or_else(|| last + (index - times.len() as i64 + 1) * frame)
            }
            _ => index * frame,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILM: Rate = Rate { num: 24000, den: 1001 };

    fn mark(stamp: Option<i64>) -> Mark {
        Mark { stamp, digest: 0 }
    }

    #[test]
    fn clocks_hold_frames_and_timestamps_exactly() {
        let clock = |num, den, ticks| Clock::new(Rate { num, den }, ticks);
        assert_eq!(clock(24000, 1001, 1000), Clock { per_second: 24000, frame: 1001 });
        assert_eq!(clock(25, 1, 12800), Clock { per_second: 12800, frame: 512 });
        assert_eq!(clock(30000, 1001, 90000), Clock { per_second: 90000, frame: 3003 });
        assert_eq!(clock(50, 2, 1), Clock { per_second: 25, frame: 1 });
    }

    #[test]
    fn a_rate_that_is_only_an_average_bends_to_the_timestamps() {
        let clock = Clock::new(Rate { num: 1_499_873, den: 50_000 }, 90000);
        assert_eq!(clock, Clock { per_second: 90000, frame: 3000 });
        assert_eq!(Clock::new(Rate { num: 30, den: 1 }, 1_000_000_000).per_second, 90000);
    }

    /// Milliseconds that are a film's rounded times become its true times; other times stay what they are.
    #[test]
    fn rounded_times_become_true_ones() {
        let timeline = Timeline::new(FILM, Rate { num: 1, den: 1000 });
        for ms in [0, 42, 83, 125, 170, 209] {
            timeline.push(mark(Some(ms)));
        }
        let times: Vec<i64> = (0..6).map(|i| timeline.time(i)).collect();
        assert_eq!(times, [0, 1001, 2002, 3003, 170 * 24, 5005]);
        assert_eq!((timeline.time(-2), timeline.time(7)), (-2002, 7007));
    }

    #[test]
    fn times_always_grow() {
        let timeline = Timeline::new(Rate { num: 25, den: 1 }, Rate { num: 1, den: 1000 });
        [Some(100), Some(100), None, Some(20)].into_iter().for_each(|stamp| timeline.push(mark(stamp)));
        assert_eq!([0, 1, 2, 3].map(|i| timeline.time(i)), [100, 101, 141, 142]);
    }
}
