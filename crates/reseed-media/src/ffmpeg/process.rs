//! A child process that cannot hang its parent, outlive it or flood it.
//!
//! Each child is the leader of a process group. One thread of this process watches all children that are waited for,
//! and kills the group of a child that shows no sign of life.

use std::io;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::group::Group;
use super::messages::{self, Messages};
use super::watchdog;
use crate::error::{Error, Result};

/// How long a pipe may stay open after the process that was started has exited.
const LINGER: Duration = Duration::from_secs(2);
/// How long a killed process may take to disappear. One that a broken file system blocks may stay forever.
const DEATH: Duration = Duration::from_secs(2);
/// The longest pause between two questions whether a process has exited.
const PAUSE: Duration = Duration::from_millis(20);

/// A running child process. A thread reads its messages, so that it never blocks on them. Its group is killed on drop.
pub(super) struct Process {
    pub child: Child,
    running: Arc<Running>,
    status: Option<ExitStatus>,
    /// Receives the messages when the process closes its standard error.
    log: Option<Receiver<Messages>>,
    messages: Option<Messages>,
}

/// A process as other threads see it.
pub(super) struct Running {
    pid: u32,
    group: Group,
    state: Mutex<State>,
    /// Threads of this process that wait for the child.
    waits: AtomicUsize,
    /// The number of waits so far.
    wait: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Whether the exit status was read. The process number may then belong to another process.
    reaped: bool,
    /// Why this process killed the child.
    reason: Option<String>,
}

impl Running {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A number that changes when the child computes, reads or writes; `None` where the system does not tell.
    pub fn signs_of_life(&self) -> Option<u64> {
        self.group.signs_of_life()
    }

    /// The number of the current wait, or `None` if nobody waits for the child.
    pub fn current_wait(&self) -> Option<u64> {
        (self.waits.load(Ordering::SeqCst) > 0).then(|| self.wait.load(Ordering::SeqCst))
    }

    /// Declares that a thread waits for the process until the guard is dropped.
    pub fn waiting(self: &Arc<Self>) -> Waiting {
        self.wait.fetch_add(1, Ordering::SeqCst);
        self.waits.fetch_add(1, Ordering::SeqCst);
        Waiting(self.clone())
    }

    /// Kills the group of the child, if the child was not waited for yet.
    pub fn kill(&self, reason: Option<String>) {
        let mut state = self.state();
        if !state.reaped {
            state.reason = state.reason.take().or(reason);
            self.group.kill();
        }
    }
}

/// Marks a time during which this process depends on the child. The watchdog kills a child that shows no sign of life
/// meanwhile.
pub(super) struct Waiting(Arc<Running>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The exit status of a child and its messages.
pub(super) struct Exit {
    status: ExitStatus,
    messages: Messages,
    /// Why this process killed the child.
    reason: Option<String>,
}

impl Process {
    /// Starts a command. `on_line` returns whether it consumed a line of standard error; other lines are messages.
    pub fn start(mut command: Command, on_line: impl FnMut(&str) -> bool + Send + 'static) -> Result<Process> {
        let mut child =
            command.spawn().map_err(|cause| Error::Spawn { program: command.get_program().into(), cause })?;
        let (waits, wait) = (AtomicUsize::new(0), AtomicU64::new(0));
        let (pid, group) = (child.id(), Group::of(&child));
        let running = Arc::new(Running { pid, group, state: Mutex::default(), waits, wait });
        watchdog::add(&running);
        let log = child.stderr.take().map(|stderr| {
            let (sender, log) = channel();
            let flooded = running.clone();
            let on_flood = move || flooded.kill(Some("it printed messages without end and was stopped".to_owned()));
            // The receiver is gone if the process was dropped.
            thread::spawn(move || drop(sender.send(messages::read(stderr, on_line, on_flood))));
            log
        });
        Ok(Process { child, running, status: None, log, messages: None })
    }

    /// The same, with a thread that reads standard output.
    pub fn start_reading<T: Send + 'static>(
        mut command: Command,
        read: impl FnOnce(ChildStdout) -> T + Send + 'static,
    ) -> Result<(Process, Receiver<T>)> {
        command.stdout(Stdio::piped());
        let mut process = Process::start(command, |_| false)?;
        let (sender, result) = channel();
        if let Some(stdout) = process.child.stdout.take() {
            thread::spawn(move || drop(sender.send(read(stdout))));
        }
        Ok((process, result))
    }

    /// Declares that this thread waits for the process until the guard is dropped.
    pub fn waiting(&self) -> Waiting {
        self.running.waiting()
    }

    /// The process for other threads.
    pub fn running(&self) -> Arc<Running> {
        self.running.clone()
    }

    /// Whether the process has exited.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.try_wait(), Ok(None))
    }

    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let mut state = self.running.state();
            self.status = self.child.try_wait()?;
            state.reaped = self.status.is_some();
        }
        Ok(self.status)
    }

    /// Waits until the process exits.
    pub fn wait(mut self) -> io::Result<Exit> {
        drop(self.child.stdin.take());
        self.exit()
    }

    /// Waits until the process exits, and returns why it failed.
    pub fn reason(&mut self) -> Option<String> {
        self.exit().ok()?.check().err()
    }

    fn exit(&mut self) -> io::Result<Exit> {
        let _waiting = self.waiting();
        let mut pause = Duration::from_millis(1);
        let status = loop {
            if let Some(status) = self.try_wait()? {
                break status;
            }
            self.await_messages(pause);
            pause = (2 * pause).min(PAUSE);
        };
        self.await_messages(LINGER);
        if self.messages.is_none() && self.log.is_some() {
            // A process that the child started keeps the pipe open.
            self.running.group.kill();
            self.await_messages(LINGER);
        }
        let reason = self.running.state().reason.clone();
        Ok(Exit { status, messages: self.messages.take().unwrap_or_default(), reason })
    }

    /// Waits for the end of standard error, which tells that the process has ended.
    fn await_messages(&mut self, limit: Duration) {
        match &self.log {
            Some(log) if self.messages.is_none() => match log.recv_timeout(limit) {
                Ok(messages) => self.messages = Some(messages),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.log = None,
            },
            _ if self.status.is_none() => thread::sleep(limit),
            _ => {}
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.running.kill(None);
            let start = Instant::now();
            while matches!(self.try_wait(), Ok(None)) && start.elapsed() < DEATH {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Exit {
    /// The outcome of a process that writes a file: `Ok` if it succeeded and reported no failed write, otherwise its
    /// first message or its exit status.
    pub fn check(self) -> std::result::Result<(), String> {
        let Exit { status, messages, reason } = self;
        match (reason, status.success()) {
            (Some(reason), _) => Err(reason),
            (None, true) => messages.write_error.map_or(Ok(()), Err),
            (None, false) => Err(messages.first.unwrap_or_else(|| describe(status))),
        }
    }

    /// The outcome of a process that reads a file: `Ok` if it succeeded, otherwise its last message or its exit
    /// status.
    pub fn check_read(self) -> std::result::Result<(), String> {
        let Exit { status, messages, reason } = self;
        match (reason, status.success()) {
            (Some(reason), _) => Err(reason),
            (None, true) => Ok(()),
            (None, false) => Err(messages.last.unwrap_or_else(|| describe(status))),
        }
    }
}

fn describe(status: ExitStatus) -> String {
    format!("it ended with {status}")
}
