//! Work of the engine on a thread of its own, with the GIL released.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use reseed::media::Frame;
use reseed::{Event, Observer, Phase};

use crate::errors::{Failure, Result, panicked};
use crate::frames::Frames;
use crate::preview::Previews;
use crate::progress::Progress;

/// Longest wait between two looks at signals and the token.
const STEP: Duration = Duration::from_millis(20);
/// How long a cancelled job may take to stop by itself. A device does not stop within a large product; the job then
/// ends in the background, and the call returns.
const GRACE: Duration = Duration::from_millis(700);

/// Cancels a job from another thread.
#[pyclass(module = "reseed", frozen)]
#[derive(Default)]
pub struct CancelToken(Arc<AtomicBool>);

#[pymethods]
impl CancelToken {
    #[new]
    fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Cancels every job that has this token.
    fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether the token was cancelled.
    #[getter]
    fn cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    fn __repr__(&self) -> String {
        format!("CancelToken(cancelled={})", if self.cancelled() { "True" } else { "False" })
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("cannot pickle CancelToken: it belongs to one process"))
    }
}

/// What accompanies a job.
#[derive(Default)]
pub struct Watch<'py> {
    pub progress: Option<Bound<'py, PyAny>>,
    pub cancel: Option<Bound<'py, CancelToken>>,
}

/// From the thread of a job to the one that waits for it.
enum Message<T> {
    Event(Event, Option<Frames>),
    Done(Result<T>),
}

/// Sends events and asks whether to stop.
struct Relay<T> {
    to: Sender<Message<T>>,
    stop: Arc<AtomicBool>,
    phase: Option<Phase>,
    previews: Option<Previews>,
}

impl<T> Observer for Relay<T> {
    fn event(&mut self, event: &Event) {
        // Phases arrive many times a second.
        if let Event::Phase(phase) = event
            && self.phase.replace(*phase) == Some(*phase)
        {
            return;
        }
        // Nobody waits for an abandoned job.
        let preview = match event {
            Event::Frames(_) => self.previews.as_mut().and_then(Previews::take),
            _ => None,
        };
        let _ = self.to.send(Message::Event(event.clone(), preview));
    }

    fn frame(&mut self, frame: &Frame) {
        if let Some(previews) = &mut self.previews {
            previews.show(frame);
        }
    }

    fn watches_frames(&mut self) -> bool {
        self.previews.as_ref().is_some_and(Previews::is_due)
    }

    fn cancelled(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What a job left: its result and its warnings.
pub struct Done<T> {
    pub value: T,
    pub warnings: Vec<String>,
}

/// Runs a job on a thread of its own. The calling thread releases the GIL, handles signals and runs the callback. Where
/// a signal handler, a callback or the token ends the job, the call returns within a second.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    watch: &Watch<'_>,
    job: impl FnOnce(&mut dyn Observer) -> Result<T> + Send + 'static,
) -> Result<Done<T>> {
    check_fork()?;
    let (to, messages) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let previews = watch.progress.is_some().then(Previews::default);
    let mut relay = Relay { to: to.clone(), stop: stop.clone(), phase: None, previews };
    let work = move || {
        let done = panic::catch_unwind(AssertUnwindSafe(|| job(&mut relay)));
        let done = done.unwrap_or_else(|payload| Err(panicked(&*payload)));
        let _ = to.send(Message::Done(done));
    };
    let threads = |error| Failure::Failed(format!("no thread for the job: {error}; end other programs"));
    thread::Builder::new().name("reseed".into()).spawn(work).map_err(threads)?;
    Wait { watch, messages: Mutex::new(messages), stop, progress: Progress::default(), ending: None }.run(py)
}

/// Why a job is ending early, and since when.
struct Ending {
    since: Instant,
    reason: Failure,
    /// Whether the reason is raised even if the job had already finished.
    always: bool,
}

/// The thread that waits for a job.
struct Wait<'a, 'py, T> {
    watch: &'a Watch<'py>,
    messages: Mutex<Receiver<Message<T>>>,
    stop: Arc<AtomicBool>,
    progress: Progress,
    ending: Option<Ending>,
}

impl<T: Send> Wait<'_, '_, T> {
    fn run(mut self, py: Python<'_>) -> Result<Done<T>> {
        loop {
            let messages = &self.messages;
            let next = || messages.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(STEP);
            match py.detach(next) {
                Ok(Message::Event(event, preview)) => self.event(py, event, preview),
                Ok(Message::Done(done)) => return self.finish(done),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Failed("internal error: the job ended without a result".into()));
                }
            }
            if self.ending.is_none() {
                self.look(py);
            }
            if let Some(ending) = self.ending.take_if(|ending| ending.since.elapsed() > GRACE) {
                return Err(ending.reason);
            }
        }
    }

    /// Looks for signals and at the token.
    fn look(&mut self, py: Python<'_>) {
        if let Err(error) = py.check_signals() {
            self.end(error.into(), true);
        } else if self.watch.cancel.as_ref().is_some_and(|token| token.get().cancelled()) {
            self.end(reseed::Error::Cancelled.into(), false);
        }
    }

    fn end(&mut self, reason: Failure, always: bool) {
        self.stop.store(true, Ordering::Relaxed);
        self.ending = Some(Ending { since: Instant::now(), reason, always });
    }

    fn event(&mut self, py: Python<'_>, event: Event, preview: Option<Frames>) {
        let is_warning = matches!(event, Event::Warning(_));
        let Some(event) = self.progress.add(event, preview) else { return };
        if self.ending.is_some() {
            return;
        }
        let warned = if is_warning { warn(py, &event.message) } else { Ok(()) };
        let called = match &self.watch.progress {
            Some(progress) => warned.and_then(|()| progress.call1((event,)).map(drop)),
            None => warned,
        };
        if let Err(error) = called {
            self.end(error.into(), true);
        }
    }

    fn finish(self, done: Result<T>) -> Result<Done<T>> {
        match (self.ending, done) {
            (Some(Ending { reason, always: true, .. }), _) => Err(reason),
            (_, done) => Ok(Done { value: done?, warnings: self.progress.warnings }),
        }
    }
}

/// Reports a warning as Python does.
fn warn(py: Python<'_>, message: &Option<String>) -> PyResult<()> {
    let category = py.import("reseed._errors")?.getattr("ReseedWarning")?;
    py.import("warnings")?.call_method1("warn", (message, category, 3))?;
    Ok(())
}

/// The process whose threads compute.
static PROCESS: OnceLock<u32> = OnceLock::new();

/// An error in a child of a process that has used the engine: a fork has no threads but the one that forked.
fn check_fork() -> Result<()> {
    match *PROCESS.get_or_init(std::process::id) == std::process::id() {
        true => Ok(()),
        false => Err(Failure::Failed(
            "this process was forked from one that has used reseed, whose threads it does not have; \
             open sessions after the fork only, or start processes with multiprocessing's \"spawn\" method"
                .into(),
        )),
    }
}
