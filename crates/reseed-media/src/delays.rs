//! The times of an animation.

use crate::frame::Rate;

/// Delays below this many hundredths of a second are shown as a tenth of a second by all viewers.
const LEAST_HUNDREDTHS: u64 = 2;
const DEFAULT_HUNDREDTHS: u64 = 10;

/// The times of an animation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Animation {
    /// How long each frame is shown.
    pub(crate) delays: Vec<Delay>,
    /// How often the animation is shown; 0 for ever.
    pub(crate) plays: u32,
}

/// A time in seconds as a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delay {
    pub num: u64,
    pub den: u64,
}

impl Delay {
    /// A fraction in lowest terms.
    pub fn new(num: u64, den: u64) -> Delay {
        let divisor = greatest_common_divisor(num, den).max(1);
        Delay { num: num / divisor, den: (den / divisor).max(1) }
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The finest clock that all outputs can use.
const MAX_TICKS: u64 = 480_000;

impl Animation {
    /// Ticks per second in which all delays are integers, or milliseconds.
    fn ticks(&self) -> u64 {
        let common = self.delays.iter().try_fold(1, |common: u64, delay| {
            let least = common / greatest_common_divisor(common, delay.den) * delay.den;
            (least <= MAX_TICKS).then_some(least)
        });
        common.unwrap_or(1000)
    }

    /// The number of each frame's first tick, and that of the end. Sums are rounded, not delays, so that errors do not
    /// add up.
    pub(crate) fn times(&self, ticks: u64) -> Vec<u64> {
        let own = u128::from(self.ticks());
        let mut sum = 0;
        let mut times = vec![0];
        for delay in &self.delays {
            let (num, den) = (u128::from(delay.num), u128::from(delay.den));
            sum += (num * own + den / 2) / den;
            times.push(((sum * u128::from(ticks) + own / 2) / own) as u64);
        }
        times
    }

    /// The delays as whole ticks.
    pub(crate) fn in_ticks(&self, ticks: u64) -> Vec<u64> {
        self.times(ticks).windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// The mean rate.
    pub(crate) fn rate(&self) -> Rate {
        let shown = self.shown();
        let (frames, ticks) = (shown.delays.len() as u64, shown.ticks());
        let total = shown.times(ticks).last().copied().unwrap_or(0).max(1);
        let Delay { num, den } = Delay::new(frames * ticks, total);
        let fits = |value: u64| u32::try_from(value).ok();
        fits(num).zip(fits(den)).map_or(Rate::default(), |(num, den)| Rate { num, den })
    }

    /// The delays that viewers use.
    pub(crate) fn shown(&self) -> Animation {
        let least = |delay: &Delay| match delay.num * 100 < LEAST_HUNDREDTHS * delay.den {
            true => Delay::new(DEFAULT_HUNDREDTHS, 100),
            false => *delay,
        };
        Animation { delays: self.delays.iter().map(least).collect(), plays: self.plays }
    }

    /// The part of the frames in `range`.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Animation {
        Animation { delays: self.delays.get(range).unwrap_or_default().to_vec(), plays: self.plays }
    }

    /// The times as a timeline for videos.
    #[cfg(feature = "ffmpeg")]
    pub(crate) fn timeline(&self) -> crate::video::Timeline {
        let shown = self.shown();
        let ticks = shown.ticks();
        let base = Rate { num: 1, den: ticks as u32 };
        let timeline = crate::video::Timeline::new(self.rate(), base);
        for time in shown.times(ticks) {
            timeline.push(crate::frame::Mark { timestamp: Some(time as i64), digest: 0 });
        }
        timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn animation(delays: &[(u64, u64)]) -> Animation {
        Animation { delays: delays.iter().map(|(num, den)| Delay::new(*num, *den)).collect(), plays: 0 }
    }

    #[test]
    fn rounding_errors_do_not_add_up() {
        let thirds = animation(&[(1, 30); 30]);
        assert_eq!(thirds.in_ticks(100).iter().sum::<u64>(), 100);
        assert_eq!(thirds.times(1000)[3], 100);
        assert_eq!(thirds.rate(), Rate { num: 30, den: 1 });
    }

    #[test]
    fn delays_that_no_viewer_shows_get_the_usual_delay_in_videos() {
        let hasty = animation(&[(0, 100), (1, 100), (2, 100)]);
        assert_eq!(hasty.in_ticks(100), [0, 1, 2]);
        assert_eq!(hasty.shown().in_ticks(100), [10, 10, 2]);
    }
}
