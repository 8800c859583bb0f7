//! Presentation times of frames, as integers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::frame::{Mark, Rate};

/// The finest clock. ffmpeg joins segments in microseconds and would merge the ticks of finer clocks.
const MAX_TICKS: u64 = 480_000;
/// The clock for sources whose own clock is too coarse or too fine.
const FALLBACK_TICKS: u64 = 90_000;

/// A clock in which the source's timestamps and the length of a frame are integers, if possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Ticks per second.
    pub per_second: u32,
    /// Ticks per frame at a constant rate.
    pub frame: u32,
}

impl Clock {
    /// The clock for frames at `rate` whose times are multiples of `1 / ticks` seconds.
    pub fn new(rate: Rate, ticks: u64) -> Clock {
        let (num, den) = (u64::from(rate.num.max(1)), u64::from(rate.den.max(1)));
        let common = num / greatest_common_divisor(num, den);
        let least = common / greatest_common_divisor(common, ticks) * ticks;
        let (per_second, frame) = match least {
            1..=MAX_TICKS => (least, least * den / num),
            _ => {
                let ticks = if (1000..=MAX_TICKS).contains(&ticks) { ticks } else { FALLBACK_TICKS };
                (ticks, ((ticks * den + num / 2) / num).max(1))
            }
        };
        Clock { per_second: per_second as u32, frame: frame.min(u64::from(u32::MAX)) as u32 }
    }

    /// Frames per second, rounded to this clock.
    pub fn rate(self) -> Rate {
        Rate { num: self.per_second, den: self.frame }
    }

    /// Converts ticks to microseconds.
    pub fn micros(self, ticks: i64) -> i64 {
        rescale(ticks, 1_000_000, self.per_second.into())
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The latest time in seconds that counts as a time; a damaged file may hold any timestamp.
const MAX_SECONDS: i128 = 1_000_000_000;

/// `value * num / den`, rounded to nearest and limited to the range of the type.
fn rescale(value: i64, num: i64, den: i64) -> i64 {
    let (value, num, den) = (i128::from(value), i128::from(num), i128::from(den.max(1)));
    let doubled = value.saturating_mul(num).saturating_mul(2).saturating_add(den);
    doubled.div_euclid(2 * den).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// The presentation time of each frame read so far, in ticks of a clock. The source appends to it, the sink reads it.
/// Clones share one timeline.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    clock: Clock,
    /// The time base of the source's timestamps: seconds per tick.
    base: Rate,
    frames: Arc<Mutex<Frames>>,
}

/// The frames of this run, and the marks that an earlier run saved.
#[derive(Debug, Default)]
struct Frames {
    times: Vec<i64>,
    marks: Vec<Mark>,
    earlier: Arc<Vec<Mark>>,
}

/// Two timelines are equal if they share their frames.
impl PartialEq for Timeline {
    fn eq(&self, other: &Timeline) -> bool {
        Arc::ptr_eq(&self.frames, &other.frames)
    }
}

impl Eq for Timeline {}

impl Timeline {
    /// An empty timeline for frames at about `rate` with timestamps in units of `base` seconds.
    pub fn new(rate: Rate, base: Rate) -> Timeline {
        let base = Rate { num: base.num.max(1), den: base.den.max(1) };
        Timeline { clock: Clock::new(rate, (base.den / base.num).into()), base, frames: Arc::default() }
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Appends a frame. Times increase strictly, so that no frame replaces another.
    pub fn push(&self, mark: Mark) {
        let mut frames = self.lock();
        let Frames { times, marks, .. } = &mut *frames;
        let timestamp = mark.timestamp.filter(|timestamp| self.is_plausible(*timestamp));
        let (first, last, index) = (times.first().copied(), times.last().copied(), times.len() as i64);
        let time = match (timestamp, first, last) {
            (Some(timestamp), Some(first), Some(last)) => {
                self.snap(timestamp, self.after(first, index)).max(last.saturating_add(1))
            }
            (Some(timestamp), ..) => self.ticks(timestamp),
            (None, _, Some(last)) => self.after(last, 1),
            (None, ..) => 0,
        };
        times.push(time);
        marks.push(mark);
    }

    /// The time of `frames` frames after `time` at the clock's rate.
    fn after(&self, time: i64, frames: i64) -> i64 {
        time.saturating_add(frames.saturating_mul(self.clock.frame.into()))
    }

    fn is_plausible(&self, timestamp: i64) -> bool {
        let scaled = i128::from(timestamp).saturating_mul(self.base.num.into());
        scaled.abs() <= MAX_SECONDS * i128::from(self.base.den)
    }

    /// The marks of frame `from` and all later frames.
    pub fn marks(&self, from: usize) -> Vec<Mark> {
        self.lock().marks.get(from..).unwrap_or_default().to_vec()
    }

    /// The marks of an earlier run.
    pub fn earlier_marks(&self) -> Arc<Vec<Mark>> {
        self.lock().earlier.clone()
    }

    /// Sets the marks of an earlier run.
    pub fn set_earlier_marks(&self, marks: Vec<Mark>) {
        self.lock().earlier = Arc::new(marks);
    }

    /// Whether a frame has a timestamp at or after an end.
    pub fn is_beyond(&self, mark: Mark, end: Option<Duration>) -> bool {
        mark.timestamp.zip(end).is_some_and(|(timestamp, end)| self.is_at_or_after(timestamp, end))
    }

    fn is_at_or_after(&self, timestamp: i64, time: Duration) -> bool {
        let micros = i128::try_from(time.as_micros()).unwrap_or(i128::MAX);
        let scaled = i128::from(timestamp).saturating_mul(self.base.num.into()).saturating_mul(1_000_000);
        scaled >= micros.saturating_mul(self.base.den.into())
    }

    /// Converts a timestamp to seconds.
    pub fn seconds(&self, timestamp: i64) -> f64 {
        timestamp as f64 * f64::from(self.base.num) / f64::from(self.base.den)
    }

    /// The time of a timestamp in ticks; exactly `regular` if the timestamp is `regular` rounded to the time base.
    fn snap(&self, timestamp: i64, regular: i64) -> i64 {
        let Clock { per_second, .. } = self.clock;
        let rounded = rescale(regular, self.base.den.into(), i64::from(per_second) * i64::from(self.base.num));
        if rounded == timestamp { regular } else { self.ticks(timestamp) }
    }

    fn ticks(&self, timestamp: i64) -> i64 {
        let ticks = i64::from(self.clock.per_second) * i64::from(self.base.num);
        rescale(timestamp, ticks, self.base.den.into())
    }

    /// The time of frame `index`. Before the first and after the last known frame, times continue at the clock's rate.
    pub fn time(&self, index: i64) -> i64 {
        let frames = self.lock();
        let times = &frames.times;
        match (times.first(), times.last()) {
            (Some(first), _) if index < 0 => self.after(*first, index),
            (_, Some(last)) => {
                let known = times.get(index as usize).copied();
                known.unwrap_or_else(|| self.after(*last, index.saturating_sub(times.len() as i64 - 1)))
            }
            _ => self.after(0, index),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NTSC_FILM: Rate = Rate { num: 24000, den: 1001 };

    fn mark(timestamp: Option<i64>) -> Mark {
        Mark { timestamp, digest: 0 }
    }

    #[test]
    fn a_clock_represents_frames_and_timestamps_exactly() {
        let clock = |num, den, ticks| Clock::new(Rate { num, den }, ticks);
        assert_eq!(clock(24000, 1001, 1000), Clock { per_second: 24000, frame: 1001 });
        assert_eq!(clock(25, 1, 12800), Clock { per_second: 12800, frame: 512 });
        assert_eq!(clock(30000, 1001, 90000), Clock { per_second: 90000, frame: 3003 });
        assert_eq!(clock(50, 2, 1), Clock { per_second: 25, frame: 1 });
    }

    #[test]
    fn an_average_rate_is_rounded_to_the_clock_of_the_timestamps() {
        let clock = Clock::new(Rate { num: 1_499_873, den: 50_000 }, 90000);
        assert_eq!(clock, Clock { per_second: 90000, frame: 3000 });
        assert_eq!(Clock::new(Rate { num: 30, den: 1 }, 1_000_000_000).per_second, 90000);
    }

    /// Milliseconds that are rounded frame times snap to the exact times; other timestamps are kept.
    #[test]
    fn rounded_timestamps_snap_to_exact_times() {
        let timeline = Timeline::new(NTSC_FILM, Rate { num: 1, den: 1000 });
        for ms in [0, 42, 83, 125, 170, 209] {
            timeline.push(mark(Some(ms)));
        }
        let times: Vec<i64> = (0..6).map(|i| timeline.time(i)).collect();
        assert_eq!(times, [0, 1001, 2002, 3003, 170 * 24, 5005]);
        assert_eq!((timeline.time(-2), timeline.time(7)), (-2002, 7007));
    }

    /// A damaged file may hold any timestamp. Such a frame follows the one before it.
    #[test]
    fn implausible_timestamps_are_ignored() {
        let timeline = Timeline::new(Rate { num: 25, den: 1 }, Rate { num: 1, den: 1000 });
        let stamps = [i64::MAX, 0, 40, i64::MAX - 1, i64::MIN, -i64::MAX, 200];
        stamps.into_iter().for_each(|timestamp| timeline.push(mark(Some(timestamp))));
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|i| timeline.time(i)), [0, 1, 40, 80, 120, 160, 200]);
        assert_eq!(timeline.time(i64::MAX), i64::MAX);
        assert_eq!(timeline.time(i64::MIN), i64::MIN);
    }

    #[test]
    fn any_clock_and_any_timestamp_are_accepted() {
        let sides = [0, 1, 2, 1001, 90_000, u32::MAX - 1, u32::MAX];
        let stamps = [0, 1, -1, 1 << 40, i64::MAX, i64::MIN, 1004];
        let rates = sides.iter().flat_map(|num| sides.map(|den| Rate { num: *num, den }));
        for (rate, base) in rates.clone().flat_map(|rate| rates.clone().map(move |base| (rate, base))) {
            let timeline = Timeline::new(rate, base);
            stamps.into_iter().for_each(|timestamp| timeline.push(mark(Some(timestamp))));
            let times: Vec<i64> = (-32..20).map(|i| timeline.time(i)).collect();
            assert!(times.is_sorted(), "{rate} in {base}: {times:?}");
            assert!(times.iter().map(|time| timeline.clock().micros(*time)).is_sorted(), "{rate} in {base}");
        }
    }

    #[test]
    fn times_increase_strictly() {
        let timeline = Timeline::new(Rate { num: 25, den: 1 }, Rate { num: 1, den: 1000 });
        [Some(100), Some(100), None, Some(20)].into_iter().for_each(|timestamp| timeline.push(mark(timestamp)));
        assert_eq!([0, 1, 2, 3].map(|i| timeline.time(i)), [100, 101, 141, 142]);
    }
}
