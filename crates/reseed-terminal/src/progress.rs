//! The progress of a run: a live line on a terminal, a line now and then in a log, JSON events on request.

mod meter;
mod screen;

use std::time::{Duration, Instant};

use reseed::internals::memory;
use reseed::media::Size;
use reseed::{Eta, Event, Observer, Phase, Session};
use serde_json::{Value, json};

use crate::console;
use crate::report::{bytes, clock, merged};
use crate::shutdown;
use crate::warning;
pub use meter::Meter;
use screen::{Mode, Screen};

/// The place of a job among those of a folder, counted from one.
#[derive(Clone, Copy)]
pub struct Place {
    /// Its number.
    pub number: usize,
    /// The number of all jobs.
    pub count: usize,
}

impl Place {
    /// `[2/5] ` before a line, nothing where there is one job.
    pub fn prefix(place: Option<Place>) -> String {
        place.map_or(String::new(), |Place { number, count }| format!("[{number}/{count}] "))
    }
}

/// Counts frames and shows events.
pub struct Progress<'a> {
    command: &'static str,
    place: Option<Place>,
    /// Of input and output.
    sizes: Option<[Size; 2]>,
    /// What the networks are doing, where it is known.
    step: Option<&'static str>,
    total: Option<usize>,
    /// Frames of an earlier run.
    before: usize,
    done: usize,
    start: Instant,
    eta: Eta,
    /// Whether batches tell when a piece of work is done.
    has_batches: bool,
    /// Whether a part of the input could not be read.
    damaged: bool,
    /// For its GPU memory.
    session: Option<&'a Session>,
    screen: Screen,
}

impl Observer for Progress<'_> {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Started { frames, done } => self.started(*frames, *done),
            Event::Phase(phase) => self.step(phase),
            Event::Frames(frames) => self.advance(*frames),
            Event::Batch { batches } => self.batch(*batches),
            Event::Saved { frames } => shutdown::set_kept(*frames),
            Event::Replanned { device, bytes: count } => console::warn(
                "replanned",
                &format_args!("{device}: another process allocated memory: continuing with {}", bytes(*count)),
            ),
            Event::Fields(what) => {
                console::note(what);
                console::event(|| json!({"event": "fields", "message": what}));
            }
            Event::Warning(warning) => {
                self.damaged |= warning::is_damage(warning);
                warning::show(warning);
            }
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
        Progress {
            command,
            place: None,
            sizes: None,
            step: None,
            total,
            before: 0,
            done: 0,
            start: Instant::now(),
            eta: Eta::default(),
            has_batches: false,
            damaged: false,
            session: None,
            screen: Screen::new(json),
        }
    }

    /// With the GPU memory of a session, whose jobs report batches.
    pub fn of_session(self, session: &'a Session) -> Progress<'a> {
        Progress { session: Some(session), has_batches: true, ..self }
    }

    /// Of a job with these sizes of input and output, at its place in a folder.
    pub fn of_job(self, sizes: [Size; 2], place: Option<Place>) -> Progress<'a> {
        Progress { sizes: Some(sizes), place, ..self }
    }

    /// `frames` more are done.
    pub fn advance(&mut self, frames: usize) {
        self.done += frames;
        if !self.has_batches {
            self.eta.update(self.done, self.elapsed());
        }
        self.print("progress", json!({"step": self.step}));
        self.refresh();
    }

    fn started(&mut self, frames: Option<usize>, done: usize) {
        (self.total, self.before, self.done, self.start) = (frames, done, 0, Instant::now());
        self.eta = Eta::default();
        shutdown::set_kept(done);
        if let Some([from, to]) = self.sizes {
            let sizes = json!({"input_width": from.w, "input_height": from.h, "width": to.w, "height": to.h});
            self.print("start", sizes);
        }
    }

    fn batch(&mut self, batches: usize) {
        self.eta.update(self.done, self.elapsed());
        self.print("batch", json!({"batch": batches}));
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

    /// Whether a part of the input could not be read.
    pub fn saw_damage(&self) -> bool {
        self.damaged
    }

    /// Clears the line.
    pub fn finish(&mut self) {
        self.screen.mode = Mode::Silent;
        console::clear();
    }

    fn refresh(&mut self) {
        if self.screen.wants_line(self.part()) {
            let line = self.line();
            self.screen.show(&line);
        }
    }

    /// The finished part of 1.
    fn part(&self) -> Option<f64> {
        self.total.map(|total| (self.before + self.done) as f64 / total.max(1) as f64)
    }

    fn gpu_bytes(&self) -> Option<usize> {
        self.session.and_then(Session::gpu_bytes)
    }

    fn eta(&self) -> Option<f64> {
        self.eta.seconds(self.total?.saturating_sub(self.before), self.elapsed())
    }

    fn line(&self) -> String {
        let place = Place::prefix(self.place);
        let percent = self.part().map_or(String::new(), |part| format!(" {:.0}%", (100.0 * part).floor()));
        let step = self.step.map_or(String::new(), |step| format!(" ({step})"));
        let of = self.total.map_or(String::new(), |total| format!("/{total}"));
        let rate = if self.done > 0 { format!(", {:.2} fps", self.fps()) } else { String::new() };
        let eta = self.eta().map_or(String::new(), |seconds| format!(", {} left", clock(seconds)));
        let memory = memory::resident().map_or(String::new(), |count| format!(", {}", bytes(count)));
        let gpu = self.gpu_bytes().map_or(String::new(), |count| format!(", GPU {}", bytes(count)));
        let frame = self.before + self.done;
        format!("{place}{}{percent}{step} frame {frame}{of}{rate}{eta}{memory}{gpu}", self.command)
    }

    /// An event with the state of the run and these fields.
    fn print(&self, event: &str, more: Value) {
        if self.screen.mode != Mode::Json {
            return;
        }
        let state = json!({
            "event": event, "phase": self.command, "frame": self.before + self.done, "frames": self.total,
            "percent": self.part().map(|part| 100.0 * part), "fps": self.fps(), "eta_seconds": self.eta(),
            "memory_bytes": memory::resident(), "gpu_bytes": self.gpu_bytes(),
        });
        let place = self.place.map_or(json!({}), |place| json!({"job": place.number, "jobs": place.count}));
        say!("{}", merged(merged(state, more), place));
    }
}
