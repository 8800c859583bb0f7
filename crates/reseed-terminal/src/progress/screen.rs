//! Where progress goes: a live line on a terminal, now and then a line in a log, events on request.

use std::time::{Duration, Instant};

use crate::console;

/// Time between two live lines.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One line that is replaced.
    Terminal,
    /// Lines in a log.
    Log,
    /// Events on standard output.
    Json,
    /// Nothing.
    Silent,
}

/// Where lines go.
pub struct Screen {
    pub mode: Mode,
    start: Instant,
    shown: Option<Instant>,
    log: LogLines,
}

impl Screen {
    pub fn new(json: bool) -> Screen {
        let mode = match json {
            true => Mode::Json,
            false if console::is_quiet() => Mode::Silent,
            false if console::is_live() => Mode::Terminal,
            false => Mode::Log,
        };
        Screen { mode, start: Instant::now(), shown: None, log: LogLines::default() }
    }

    /// Whether it is time for another live line or event.
    pub fn is_due(&self) -> bool {
        self.shown.is_none_or(|at| at.elapsed() >= PAUSE)
    }

    /// An event was printed.
    pub fn printed(&mut self) {
        self.shown = Some(Instant::now());
    }

    /// Whether it is time for a line of work that is done to this part of 1.
    pub fn wants_line(&mut self, part: Option<f64>) -> bool {
        match self.mode {
            Mode::Terminal => self.is_due(),
            Mode::Log => self.log.is_due(part, self.start.elapsed()),
            Mode::Json | Mode::Silent => false,
        }
    }

    /// Shows a line.
    pub fn show(&mut self, line: &str) {
        self.printed();
        match self.mode {
            Mode::Terminal => console::live(line),
            _ => console::remark(&line),
        }
    }
}

/// Clears the live line.
impl Drop for Screen {
    fn drop(&mut self) {
        if self.mode == Mode::Terminal {
            console::clear();
        }
    }
}

/// When a log gets a line: every tenth of the work, and at least every half minute.
#[derive(Default)]
struct LogLines {
    tenths: usize,
    last: Duration,
}

impl LogLines {
    /// A run that is over in this time needs no lines but its result.
    const SHORT: Duration = Duration::from_secs(2);
    const LONGEST: Duration = Duration::from_secs(30);

    /// Whether a line is due after `elapsed`, with this part of 1 done.
    fn is_due(&mut self, part: Option<f64>, elapsed: Duration) -> bool {
        let tenths = part.map_or(0, |part| (10.0 * part + 1e-9) as usize);
        // The end of the work is the result's to report.
        let another = tenths > self.tenths && tenths < 10 && elapsed >= LogLines::SHORT;
        let due = another || elapsed.saturating_sub(self.last) >= LogLines::LONGEST;
        if due {
            (self.tenths, self.last) = (tenths, elapsed);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which lines are due of work that is asked about every second.
    fn lines(seconds: u64, part: impl Fn(u64) -> Option<f64>) -> Vec<u64> {
        let mut log = LogLines::default();
        (0..=seconds).filter(|&second| log.is_due(part(second), Duration::from_secs(second))).collect()
    }

    #[test]
    fn a_log_gets_a_line_every_tenth_or_half_minute() {
        assert_eq!(lines(100, |second| Some(second as f64 / 100.0)), [10, 20, 30, 40, 50, 60, 70, 80, 90]);
        assert_eq!(lines(100, |_| None), [30, 60, 90]);
        assert_eq!(lines(600, |second| Some(second as f64 / 600.0)).len(), 20);
        // Short runs are silent, and work that comes in pieces skips tenths.
        assert!(lines(1, |second| Some(second as f64)).is_empty());
        assert_eq!(lines(9, |second| Some((second / 3) as f64 / 3.0)), [3, 6]);
    }
}
