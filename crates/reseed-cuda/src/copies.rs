//! How long copies take, and how much of that kernels wait for them.

use std::sync::{Arc, Mutex, PoisonError};

use reseed_ops::{CopyTime, Result};

use crate::driver::Driver;
use crate::event::{Event, Lane};

/// From one moment to another.
type Span = (Arc<Event>, Arc<Event>);

/// Copies between host and card that ran beside kernels.
#[derive(Default)]
pub struct Copies {
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    copied: Vec<Span>,
    waited: Vec<Span>,
    seconds: CopyTime,
}

impl Copies {
    /// Queues a copy on `lane` and remembers how long it takes; returns its end.
    pub fn run(&self, driver: &Arc<Driver>, lane: Lane, queue: impl FnOnce() -> Result<()>) -> Result<Arc<Event>> {
        let start = Event::record(driver, lane)?;
        queue()?;
        let end = Event::record(driver, lane)?;
        self.add(|log| &mut log.copied, (start, end.clone()))?;
        Ok(end)
    }

    /// Makes kernels wait for a copy, and remembers for how long.
    pub fn hold(&self, driver: &Arc<Driver>, copy: &Event) -> Result<()> {
        if copy.passed() {
            return Ok(());
        }
        let start = Event::record(driver, Lane::Compute)?;
        copy.hold(Lane::Compute)?;
        self.add(|log| &mut log.waited, (start, Event::record(driver, Lane::Compute)?))
    }

    fn add(&self, list: impl Fn(&mut Log) -> &mut Vec<Span>, span: Span) -> Result<()> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        list(&mut log).push(span);
        log.settle(false)
    }

    /// All since the last call, once it is done.
    pub fn take(&self) -> Result<CopyTime> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.settle(true)?;
        Ok(std::mem::take(&mut log.seconds))
    }
}

impl Log {
    /// Adds up what is done, so that the lists stay short; waits for the rest where `all` is asked for.
    fn settle(&mut self, all: bool) -> Result<()> {
        let done = |list: &mut Vec<Span>| -> Result<f64> {
            let mut seconds = 0.0;
            let count = if all { list.len() } else { list.iter().take_while(|(_, end)| end.passed()).count() };
            for (start, end) in list.drain(..count) {
                end.wait()?;
                seconds += start.seconds_to(&end)?;
            }
            Ok(seconds)
        };
        self.seconds.copying += done(&mut self.copied)?;
        self.seconds.waiting += done(&mut self.waited)?;
        Ok(())
    }
}
