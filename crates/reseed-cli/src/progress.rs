//! The progress of a run: a live line on a terminal, JSON lines on request, nothing otherwise.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use reseed::internals::memory;
use reseed::{Event, Observer, Phase, Session};
use serde_json::{Value, json};

use crate::report::{self, bytes};
use crate::shutdown;

/// Time between two lines on a terminal.
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
            false if std::io::stderr().is_terminal() && !report::is_quiet() => Mode::Terminal,
            false => Mode::Silent,
        };
        Screen { mode, shown: None }
    }

    /// Whether it is time for another line.
    fn due(&self) -> bool {
        self.shown.is_none_or(|at| at.elapsed() >= PAUSE)
    }

    /// Replaces the line.
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

/// Counts frames and shows events.
pub struct Progress<'a> {
    command: &'static str,
    /// What the networks are doing, where it is known.
    step: Option<&'static str>,
    total: Option<usize>,
    /// Frames of an earlier run.
    before: usize,
    done: usize,
    start: Instant,
    /// For its GPU memory.
    session: Option<&'a Session>,
    screen: Screen,
}

impl Observer for Progress<'_> {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Started { frames, done } => {
                (self.total, self.before, self.start) = (*frames, *done, Instant::now());
                shutdown::set_kept(*done);
            }
            Event::Phase(phase) => self.step(phase),
            Event::Frames(frames) => self.advance(*frames),
            Event::Saved { frames } => shutdown::set_kept(*frames),
            Event::Replanned { device, bytes: count } => {
                report::warn(&format!("{device}: another process allocated memory: continuing with {}", bytes(*count)));
            }
            Event::Warning(warning) => report::warn(warning),
            _ => {}
        }
    }

    fn cancelled(&mut self) -> bool {
        shutdown::is_cancelled()
    }
}

impl<'a> Progress<'a> {
    /// Starts counting towards `total` frames, where that is known.
    pub fn new(command: &'static str, total: Option<usize>, json: bool) -> Progress<'a> {
        let (start, screen) = (Instant::now(), Screen::new(json));
        Progress { command, step: None, total, before: 0, done: 0, start, session: None, screen }
    }

    /// With the GPU memory of a session.
    pub fn of_session(self, session: &'a Session) -> Progress<'a> {
        Progress { session: Some(session), ..self }
    }

    /// `frames` more are done.
    pub fn advance(&mut self, frames: usize) {
        self.done += frames;
        if matches!(self.screen.mode, Mode::Json) {
            say!("{}", self.json());
        }
        self.refresh();
    }

    fn step(&mut self, phase: &Phase) {
        self.step = Some(match phase {
            Phase::Wait => "reading",
            Phase::Encode => "encoding",
            Phase::Upscale => "restoring",
            Phase::Decode => "decoding",
        });
        self.refresh();
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Frames per second so far.
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

    fn gpu_bytes(&self) -> Option<usize> {
        self.session.and_then(Session::gpu_bytes)
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
        let gpu = self.gpu_bytes().map_or(String::new(), |count| format!(", GPU {}", bytes(count)));
        let frame = self.before + self.done;
        format!("{}{step} frame {frame}{of}, {:.2} fps{eta}{memory}{gpu}", self.command, self.fps())
    }

    fn json(&self) -> Value {
        json!({
            "event": "progress", "phase": self.command, "step": self.step, "frame": self.before + self.done,
            "frames": self.total, "fps": self.fps(), "eta_seconds": self.eta(),
            "memory_bytes": memory::resident(), "gpu_bytes": self.gpu_bytes(),
        })
    }
}

/// Counts the bytes of a file.
pub struct Meter<'a> {
    name: &'a str,
    total: u64,
    /// Bytes that existed at the start.
    before: Option<u64>,
    start: Instant,
    screen: Screen,
}

impl<'a> Meter<'a> {
    /// Starts counting towards `total`.
    pub fn new(name: &'a str, total: u64, json: bool) -> Meter<'a> {
        Meter { name, total, before: None, start: Instant::now(), screen: Screen::new(json) }
    }

    /// So many bytes are done.
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
