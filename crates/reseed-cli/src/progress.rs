//! How far a run has come: a live line on a terminal, JSON lines on request, nothing otherwise.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reseed::memory;
use reseed_cuda::CudaOps;
use serde_json::{Value, json};

use crate::report::bytes;

/// NetworkResidency two lines on a terminal.
const PAUSE: Duration = Duration::from_millis(100);

enum Mode {
    Terminal,
    Json,
    Silent,
}

/// Where lines go.
struct Screen {
    mode: Mode,
    shown: Option<Instant>,
}

impl Screen {
    fn new(json: bool) -> Screen {
        let mode = match json {
            true => Mode::Json,
            false if std::io::stderr().is_terminal() => Mode::Terminal,
            false => Mode::Silent,
        };
        Screen { mode, shown: None }
    }

    /// Whether the last line was long enough ago for another.
    fn due(&self) -> bool {
        self.shown.is_none_or(|at| at.elapsed() >= PAUSE)
    }

    /// A line instead of the last one.
    fn show(&mut self, line: &str) {
        self.shown = Some(Instant::now());
        eprint!("\r\x1b[K{line}");
        let _ = std::io::stderr().flush();
    }
}

/// Clears the line.
impl Drop for Screen {
    fn drop(&mut self) {
        if matches!(self.mode, Mode::Terminal) && self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

/// Counts frames.
pub struct Progress {
    phase: &'static str,
    /// What is being done within the phase, where that is known.
    step: Option<&'static str>,
    total: Option<usize>,
    /// Frames that were done before this run.
    before: usize,
    done: usize,
    start: Instant,
    card: Option<Arc<CudaOps>>,
    screen: Screen,
}

impl Progress {
    /// Starts counting towards `total` frames, where that is known.
    pub fn new(phase: &'static str, total: Option<usize>, json: bool) -> Progress {
        let (start, screen) = (Instant::now(), Screen::new(json));
        Progress { phase, step: None, total, before: 0, done: 0, start, card: None, screen }
    }

    /// With so many frames done before.
    pub fn going_on_from(self, frames: usize) -> Progress {
        Progress { before: frames, ..self }
    }

    /// With the memory of a card shown beside the host's.
    pub fn on(self, card: Option<Arc<CudaOps>>) -> Progress {
        Progress { card, ..self }
    }

    /// `frames` more are done.
    pub fn advance(&mut self, frames: usize) {
        self.done += frames;
        if matches!(self.screen.mode, Mode::Json) {
            say!("{}", self.json());
        }
        self.refresh();
    }

    /// What is being done now.
    pub fn step(&mut self, step: &'static str) {
        self.step = Some(step);
        self.refresh();
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
        self.screen = Screen { mode: Mode::Silent, shown: None };
    }

    fn refresh(&mut self) {
        if matches!(self.screen.mode, Mode::Terminal) && self.screen.due() {
            let line = self.line();
            self.screen.show(&line);
        }
    }

    fn eta(&self) -> Option<f64> {
        let left = self.total?.saturating_sub(self.before + self.done);
        (self.done > 0).then(|| left as f64 / self.fps())
    }

    fn line(&self) -> String {
        let step = self.step.map_or(String::new(), |step| format!(" ({step})"));
        let of = self.total.map_or(String::new(), |total| format!("/{total}"));
        let eta = self.eta().map_or(String::new(), |seconds| format!(", {} left", clock(seconds)));
        let memory = memory::resident().map_or(String::new(), |count| format!(", {}", bytes(count)));
        let card = self.card.as_ref().map_or(String::new(), |card| format!(", card {}", bytes(card.peak_bytes())));
        let frame = self.before + self.done;
        format!("{}{step} frame {frame}{of}, {:.2} fps{eta}{memory}{card}", self.phase, self.fps())
    }

    fn json(&self) -> Value {
        json!({
            "event": "progress", "phase": self.phase, "step": self.step, "frame": self.before + self.done,
            "frames": self.total, "fps": self.fps(), "eta_seconds": self.eta(),
            "memory_bytes": memory::resident(), "card_bytes": self.card.as_ref().map(|card| card.peak_bytes()),
        })
    }
}

/// Counts the bytes of a file.
pub struct Meter<'a> {
    name: &'a str,
    total: u64,
    /// Bytes that were there when it started, which nobody waited for.
    before: Option<u64>,
    start: Instant,
    screen: Screen,
}

impl<'a> Meter<'a> {
    /// Starts counting towards `total`.
    pub fn new(name: &'a str, total: u64, json: bool) -> Meter<'a> {
        Meter { name, total, before: None, start: Instant::now(), screen: Screen::new(json) }
    }

    /// So many bytes are there.
    pub fn at(&mut self, have: u64) {
        let before = *self.before.get_or_insert(have);
        if !self.screen.due() && have < self.total {
            return;
        }
        let rate = have.saturating_sub(before) as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        let eta = (rate > 0.0).then(|| self.total.saturating_sub(have) as f64 / rate);
        match self.screen.mode {
            Mode::Silent => {}
            Mode::Json => {
                self.screen.shown = Some(Instant::now());
                say!(
                    "{}",
                    json!({"event": "progress", "file": self.name, "bytes": have, "total_bytes": self.total,
                           "bytes_per_second": rate, "eta_seconds": eta})
                );
            }
            Mode::Terminal => {
                let left = eta.map_or(String::new(), |seconds| format!(", {} left", clock(seconds)));
                let [have, total, rate] = [have as usize, self.total as usize, rate as usize].map(bytes);
                self.screen.show(&format!("{} {have} of {total}, {rate}/s{left}", self.name));
            }
        }
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
