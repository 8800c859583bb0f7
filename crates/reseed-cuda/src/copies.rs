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
    busy: Busy,
    seconds: CopyTime,
}

/// Seconds that lie in at least one of some spans, which come nearly in the order in which they start.
#[derive(Default)]
struct Busy {
    /// Spans that others may still come before.
    spans: Vec<Range<f64>>,
    /// Where all others end.
    reached: Option<f64>,
    seconds: f64,
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
        Ok(CopyTime { copying: busy.all(), ..seconds })
    }
}

impl Log {
    /// Adds up what is done, so that few events are held; waits for the rest where `all` is asked for.
    fn settle(&mut self, all: bool) -> Result<()> {
        let done = |(_, end): &Span| all || end.passed();
        let count = self.copied.iter().take_while(|(_, span)| done(span)).count();
        for (lane, (start, end)) in self.copied.drain(..count) {
            let seconds = between(&start, &end)?;
            match lane {
                Lane::In => self.seconds.inward += seconds,
                _ => self.seconds.outward += seconds,
            }
            let from = self.first.get_or_insert_with(|| start.clone()).seconds_to(&start)?;
            self.busy.push(from..from + seconds);
        }
        let count = self.waited.iter().take_while(|span| done(span)).count();
        for (start, end) in self.waited.drain(..count) {
            self.seconds.waiting += between(&start, &end)?;
        }
        Ok(())
    }
}

/// Seconds from one moment to another, once that has passed.
fn between(start: &Event, end: &Event) -> Result<f64> {
    end.wait()?;
    start.seconds_to(end)
}

impl Busy {
    /// Spans that are waited for before the first of them are added up: more than copies that can be under way.
    const WAIT: usize = 4096;

    fn push(&mut self, span: Range<f64>) {
        self.spans.push(span);
        if self.spans.len() >= 2 * Busy::WAIT {
            self.add_up(Busy::WAIT);
        }
    }

    /// Adds up the first `count` spans.
    fn add_up(&mut self, count: usize) {
        self.spans.sort_by(|a, b| a.start.total_cmp(&b.start));
        for span in self.spans.drain(..count) {
            let from = self.reached.map_or(span.start, |reached| span.start.max(reached));
            self.seconds += (span.end - from).max(0.0);
            self.reached = Some(from.max(span.end));
        }
    }

    fn all(mut self) -> f64 {
        self.add_up(self.spans.len());
        self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_copies_cover_is_counted_once() {
        let covered = |spans: Vec<Range<f64>>| {
            let mut busy = Busy::default();
            spans.into_iter().for_each(|span| busy.push(span));
            busy.all()
        };
        assert_eq!(covered(vec![]), 0.0);
        assert_eq!(covered(vec![4.0..6.0, -1.0..2.0, 1.0..3.0, 1.5..2.5, 6.0..7.0]), 7.0);
        // Two lanes a copy apart, in more spans than are kept.
        let lanes = |i: u32| [f64::from(i) + 1.0..f64::from(i) + 2.0, f64::from(i)..f64::from(i) + 0.5];
        assert_eq!(covered((0..20_000).flat_map(lanes).collect()), 20_000.5);
    }
}
