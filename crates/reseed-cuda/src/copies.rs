//! How long copies take, and how much of that kernels wait for them.

use std::ops::Range;
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
    copied: Vec<(Lane, Span)>,
    waited: Vec<Span>,
    /// What moments are counted from.
    first: Option<Arc<Event>>,
    /// From when to when each copy ran.
    busy: Vec<Range<f64>>,
    seconds: CopyTime,
}

impl Copies {
    /// Queues a copy on `lane` and remembers how long it takes; returns its end.
    pub fn run(&self, driver: &Arc<Driver>, lane: Lane, queue: impl FnOnce() -> Result<()>) -> Result<Arc<Event>> {
        let start = Event::record(driver, lane)?;
        queue()?;
        let end = Event::record(driver, lane)?;
        self.add(|log| log.copied.push((lane, (start, end.clone()))))?;
        Ok(end)
    }

    /// Makes kernels wait for a copy, and remembers for how long.
    pub fn hold(&self, driver: &Arc<Driver>, copy: &Event) -> Result<()> {
        if copy.passed() {
            return Ok(());
        }
        let start = Event::record(driver, Lane::Compute)?;
        copy.hold(Lane::Compute)?;
        let end = Event::record(driver, Lane::Compute)?;
        self.add(|log| log.waited.push((start, end)))
    }

    fn add(&self, span: impl FnOnce(&mut Log)) -> Result<()> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        span(&mut log);
        log.settle(false)
    }

    /// All since the last call, once it is done.
    pub fn take(&self) -> Result<CopyTime> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.settle(true)?;
        let Log { busy, seconds, .. } = std::mem::take(&mut *log);
        Ok(CopyTime { copying: covered(busy), ..seconds })
    }
}

impl Log {
    /// Adds up what is done, so that few events are held; waits for the rest where `all` is asked for.
    fn settle(&mut self, all: bool) -> Result<()> {
        let done = |(_, end): &Span| all || end.passed();
        let count = self.copied.iter().take_while(|(_, span)| done(span)).count();
        for (lane, (start, end)) in self.copied.drain(..count) {
            let seconds = seconds(&start, &end)?;
            let direction = match lane == Lane::In {
                true => &mut self.seconds.inward,
                false => &mut self.seconds.outward,
            };
            *direction += seconds;
            let from = self.first.get_or_insert_with(|| start.clone()).seconds_to(&start)?;
            self.busy.push(from..from + seconds);
        }
        let count = self.waited.iter().take_while(|span| done(span)).count();
        for (start, end) in self.waited.drain(..count) {
            self.seconds.waiting += seconds(&start, &end)?;
        }
        Ok(())
    }
}

/// Seconds from one moment to another, once that has passed.
fn seconds(start: &Event, end: &Event) -> Result<f64> {
    end.wait()?;
    start.seconds_to(end)
}

/// Seconds that lie in at least one of these spans.
fn covered(mut spans: Vec<Range<f64>>) -> f64 {
    spans.sort_by(|a, b| a.start.total_cmp(&b.start));
    let mut reached = f64::NEG_INFINITY;
    let mut seconds = 0.0;
    for span in spans {
        seconds += (span.end - span.start.max(reached)).max(0.0);
        reached = reached.max(span.end);
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_copies_cover_is_counted_once() {
        assert_eq!(covered(vec![]), 0.0);
        assert_eq!(covered(vec![4.0..6.0, -1.0..2.0, 1.0..3.0, 1.5..2.5, 6.0..7.0]), 7.0);
    }
}
