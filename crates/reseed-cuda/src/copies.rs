//! How long copies take, and how long kernels wait for them.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use reseed_ops::{CopyTime, Result};

use crate::driver::Driver;
use crate::stream::{Event, Stream};

/// From one event to another.
type Span = (Arc<Event>, Arc<Event>);

/// Times of copies between host and GPU that overlap with kernels.
#[derive(Default)]
pub struct Copies {
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    copied: Vec<(Stream, Span)>,
    waited: Vec<Span>,
    /// Times are relative to this event.
    first: Option<Arc<Event>>,
    busy: Union,
    seconds: CopyTime,
}

/// Total length of the union of spans, which arrive nearly in the order of their starts.
#[derive(Default)]
struct Union {
    /// Spans that later ones may still precede.
    spans: Vec<Range<f64>>,
    /// Latest end of the spans already counted.
    reached: Option<f64>,
    seconds: f64,
}

impl Copies {
    /// Queues a copy on `stream` and records how long it takes; returns its end.
    pub fn run(&self, driver: &Arc<Driver>, stream: Stream, queue: impl FnOnce() -> Result<()>) -> Result<Arc<Event>> {
        let start = Event::record(driver, stream)?;
        queue()?;
        let end = Event::record(driver, stream)?;
        self.add(|log| log.copied.push((stream, (start, end.clone()))))?;
        Ok(end)
    }

    /// Makes kernels wait for a copy, and records how long they do.
    pub fn block_kernels(&self, driver: &Arc<Driver>, copy: &Event) -> Result<()> {
        if copy.is_reached() {
            return Ok(());
        }
        let start = Event::record(driver, Stream::Compute)?;
        copy.block(Stream::Compute)?;
        let end = Event::record(driver, Stream::Compute)?;
        self.add(|log| log.waited.push((start, end)))
    }

    fn add(&self, span: impl FnOnce(&mut Log)) -> Result<()> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        span(&mut log);
        log.settle(false)
    }

    /// Waits for all copies and returns the times since the last call.
    pub fn take(&self) -> Result<CopyTime> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.settle(true)?;
        let Log { busy, seconds, .. } = std::mem::take(&mut *log);
        Ok(CopyTime { copying: busy.total(), ..seconds })
    }
}

impl Log {
    /// Adds up spans that have ended, so that few events are alive; with `all`, waits for the rest.
    fn settle(&mut self, all: bool) -> Result<()> {
        let done = |(_, end): &Span| all || end.is_reached();
        let count = self.copied.iter().take_while(|(_, span)| done(span)).count();
        for (stream, (start, end)) in self.copied.drain(..count) {
            let seconds = between(&start, &end)?;
            match stream {
                Stream::Upload => self.seconds.inward += seconds,
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

/// Seconds from one event to another, once that is reached.
fn between(start: &Event, end: &Event) -> Result<f64> {
    end.wait()?;
    start.seconds_to(end)
}

impl Union {
    /// Spans kept before the first of them are counted: more than copies that can be pending.
    const KEPT: usize = 4096;

    fn push(&mut self, span: Range<f64>) {
        self.spans.push(span);
        if self.spans.len() >= 2 * Union::KEPT {
            self.count(Union::KEPT);
        }
    }

    /// Counts the first `count` spans.
    fn count(&mut self, count: usize) {
        self.spans.sort_by(|a, b| a.start.total_cmp(&b.start));
        for span in self.spans.drain(..count) {
            let from = self.reached.map_or(span.start, |reached| span.start.max(reached));
            self.seconds += (span.end - from).max(0.0);
            self.reached = Some(from.max(span.end));
        }
    }

    fn total(mut self) -> f64 {
        self.count(self.spans.len());
        self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_copies_are_counted_once() {
        let covered = |spans: Vec<Range<f64>>| {
            let mut union = Union::default();
            spans.into_iter().for_each(|span| union.push(span));
            union.total()
        };
        assert_eq!(covered(vec![]), 0.0);
        assert_eq!(covered(vec![4.0..6.0, -1.0..2.0, 1.0..3.0, 1.5..2.5, 6.0..7.0]), 7.0);
        // Two streams one copy apart, in more spans than are kept.
        let streams = |i: u32| [f64::from(i) + 1.0..f64::from(i) + 2.0, f64::from(i)..f64::from(i) + 0.5];
        assert_eq!(covered((0..20_000).flat_map(streams).collect()), 20_000.5);
    }
}
