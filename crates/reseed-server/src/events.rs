//! Events for clients: the last ones are kept, so that a client that was cut off misses nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::sync::watch;

/// Events that are kept.
const KEPT: usize = 2048;

/// Something that happened.
#[derive(Clone, Debug)]
pub struct ServerEvent {
    /// Counts events since the start of the server.
    pub number: u64,
    /// job, removed or model.
    pub kind: &'static str,
    /// What happened, in JSON.
    pub data: Arc<str>,
}

/// Collects events.
pub struct EventHub {
    /// Differs between starts of the server, so that numbers of an earlier start are not taken for this one's.
    epoch: u64,
    events: Mutex<VecDeque<ServerEvent>>,
    last: watch::Sender<u64>,
}

/// The events after a number.
pub enum Since {
    /// These.
    Events(Vec<ServerEvent>),
    /// Some of them are gone. This is the number of the last one.
    Gap(u64),
}

impl EventHub {
    /// A hub without events.
    pub fn new() -> EventHub {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        EventHub { epoch, events: Mutex::default(), last: watch::channel(0).0 }
    }

    /// Adds an event.
    pub fn send(&self, kind: &'static str, data: &Value) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let number = events.back().map_or(0, |event| event.number) + 1;
        events.push_back(ServerEvent { number, kind, data: data.to_string().into() });
        if events.len() > KEPT {
            events.pop_front();
        }
        drop(events);
        self.last.send_replace(number);
    }

    /// The events after one.
    pub fn since(&self, number: u64) -> Since {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let last = events.back().map_or(0, |event| event.number);
        let first = events.front().map_or(1, |event| event.number);
        if number > last || number + 1 < first {
            return Since::Gap(last);
        }
        Since::Events(events.iter().filter(|event| event.number > number).cloned().collect())
    }

    /// The number of the last event.
    pub fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// Changes with every event.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// The id of an event for clients.
    pub fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.epoch)
    }

    /// The number of an event by its id; `None` for one of an earlier start.
    pub fn number(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.split_once('-')?;
        if epoch.parse() == Ok(self.epoch) { number.parse().ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_replayed_and_gaps_are_noticed() {
        let hub = EventHub::new();
        assert!(matches!(hub.since(0), Since::Events(events) if events.is_empty()));
        (0..KEPT + 10).for_each(|i| hub.send("job", &json!(i)));
        let last = hub.last();
        assert_eq!(last, KEPT as u64 + 10);
        assert!(matches!(hub.since(last - 2), Since::Events(events) if events.len() == 2));
        assert!(matches!(hub.since(10), Since::Events(events) if events.len() == KEPT));
        assert!(matches!(hub.since(9), Since::Gap(number) if number == last));
        assert!(matches!(hub.since(last + 1), Since::Gap(_)));
        assert_eq!(hub.number(&hub.id(7)), Some(7));
        assert!(hub.number("1-7").is_none() && hub.number("x").is_none());
    }
}
