//! The time that is left of a job.

use std::collections::VecDeque;
use std::time::Duration;

/// Rates that are remembered: as many as a window has batches. Within a window the networks run one after the other,
/// so that the average rate falls while no frame is finished and recovers at the window's end.
const RATES: usize = 64;

/// Estimates the time that is left when a piece of work is done, and counts down until the next one is.
///
/// ```
/// use std::time::Duration;
///
/// let mut eta = reseed::Eta::default();
/// eta.update(5, Duration::from_secs(4));
/// assert_eq!(eta.seconds(10, Duration::from_secs(4)), Some(4.0));
/// ```
#[derive(Debug, Default)]
pub struct Eta {
    /// Average rates at the ends of the last pieces, in frames per second.
    rates: VecDeque<f64>,
    /// The last piece: when it was done, all frames so far, and the frames of the piece.
    at: Duration,
    done: usize,
    piece: usize,
}

impl Eta {
    /// `done` frames are finished after `elapsed`.
    pub fn update(&mut self, done: usize, elapsed: Duration) {
        if done <= self.done {
            return;
        }
        self.rates.push_back(done as f64 / elapsed.as_secs_f64().max(1e-9));
        if self.rates.len() > RATES {
            self.rates.pop_front();
        }
        (self.at, self.piece, self.done) = (elapsed, done - self.done, done);
    }

    /// Seconds until `total` frames are finished; unknown before the first piece is done. The time falls to that of
    /// the pieces after the next one and stays there: it never climbs while a piece is computed.
    pub fn seconds(&self, total: usize, elapsed: Duration) -> Option<f64> {
        let rate = self.rates.iter().copied().reduce(f64::max)?;
        let left = total.saturating_sub(self.done);
        let least = left.saturating_sub(self.piece) as f64 / rate;
        Some((left as f64 / rate - elapsed.saturating_sub(self.at).as_secs_f64()).max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// All shown times of a job whose batches of five frames end at these seconds.
    fn shown(ends: &[f64]) -> Vec<f64> {
        let (mut eta, mut shown, mut now) = (Eta::default(), Vec::new(), 0.0);
        for (i, end) in ends.iter().enumerate() {
            while now < *end {
                shown.extend(eta.seconds(5 * ends.len(), after(now)));
                now += 0.25;
            }
            eta.update(5 * (i + 1), after(*end));
        }
        shown
    }

    #[test]
    fn the_time_never_climbs_between_batches_of_one_length() {
        let ends: Vec<f64> = (1..=20).map(|i| 4.0 * f64::from(i)).collect();
        let shown = shown(&ends);
        assert!(shown.windows(2).all(|pair| pair[1] <= pair[0] + 1e-9), "{shown:?}");
        assert!((shown[0] - 76.0).abs() < 1e-9 && (shown[shown.len() - 1] - 0.25).abs() < 1e-9, "{shown:?}");
    }

    #[test]
    fn the_time_never_climbs_between_windows() {
        // Windows of eight batches that are finished in the last fifth of the window's time.
        let ends: Vec<f64> = (0..32).map(|i| 40.0 * f64::from(i / 8) + 32.0 + f64::from(i % 8 + 1)).collect();
        let shown = shown(&ends);
        assert!(shown.windows(2).all(|pair| pair[1] <= pair[0] + 1e-9), "{shown:?}");
    }

    #[test]
    fn a_machine_that_slows_down_is_noticed() {
        let mut eta = Eta::default();
        assert_eq!(eta.seconds(10, after(1.0)), None);
        (1..=100).for_each(|i| eta.update(i, after(i as f64)));
        (1..=300).for_each(|i| eta.update(100 + i, after(100.0 + 9.0 * i as f64)));
        assert!(eta.seconds(800, after(2800.0)).is_some_and(|seconds| seconds > 2000.0));
    }
}
