//! How far a run has come: a live line on a terminal, JSON lines on request, nothing otherwise.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use reseed_ops::DType;
use serde_json::json;

/// Between two lines on a terminal.
const PAUSE: Duration = Duration::from_millis(100);

enum Mode {
    Terminal,
    Json,
    Silent,
}

/// Counts frames.
pub struct Progress {
    phase: &'static str,
    total: Option<usize>,
    done: usize,
    start: Instant,
    shown: Option<Instant>,
    mode: Mode,
}

impl Progress {
    /// Starts counting towards `total` frames, where that is known.
    pub fn new(phase: &'static str, total: Option<usize>, json: bool) -> Progress {
        let mode = match json {
            true => Mode::Json,
            false if std::io::stderr().is_terminal() => Mode::Terminal,
            false => Mode::Silent,
        };
        Progress { phase, total, done: 0, start: Instant::now(), shown: None, mode }
    }

    /// `frames` more are done.
    pub fn advance(&mut self, frames: usize) {
        self.done += frames;
        match self.mode {
            Mode::Silent => {}
            Mode::Json => say!("{}", self.json()),
            Mode::Terminal if self.shown.is_some_and(|at| at.elapsed() < PAUSE) => {}
            Mode::Terminal => {
                self.shown = Some(Instant::now());
                eprint!("\r\x1b[K{}", self.line());
                let _ = std::io::stderr().flush();
            }
        }
    }

    /// Says that values left a type's range in a slice, once it is clear what is done about it.
    pub fn widened(&mut self, slice: usize, from: DType, to: DType) {
        self.finish();
        match self.mode {
            Mode::Json => say!(
                "{}",
                json!({"event": "widened", "phase": self.phase, "slice": slice, "from": from.to_string(), "to": to.to_string()})
            ),
            _ => eprintln!(
                "reseed: {}: values left the range of {from} in slice {slice}; it ran again in {to}, and so does the rest",
                self.phase
            ),
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Frames a second so far.
    pub fn fps(&self) -> f64 {
        self.done as f64 / self.elapsed().as_secs_f64().max(1e-9)
    }

    /// Clears the line.
    pub fn finish(&mut self) {
        if matches!(self.mode, Mode::Terminal) && self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
    }

    fn eta(&self) -> Option<f64> {
        let left = self.total?.saturating_sub(self.done);
        (self.done > 0).then(|| left as f64 / self.fps())
    }

    fn line(&self) -> String {
        let of = self.total.map_or(String::new(), |total| format!("/{total}"));
        let eta = self.eta().map_or(String::new(), |seconds| format!(", {} left", clock(seconds)));
        format!("{} frame {}{of}, {:.2} fps{eta}", self.phase, self.done, self.fps())
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "event": "progress", "phase": self.phase, "frame": self.done, "frames": self.total,
            "fps": self.fps(), "eta_seconds": self.eta(),
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

/// 75 as 1:15, 3675 as 1:01:15.
fn clock(seconds: f64) -> String {
    let s = seconds.round() as u64;
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        hours => format!("{hours}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::clock;

    #[test]
    fn times_read_like_a_clock() {
        assert_eq!([0.0, 59.6, 75.0, 3675.0].map(clock), ["0:00", "1:00", "1:15", "1:01:15"]);
    }
}
