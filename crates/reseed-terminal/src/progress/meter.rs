//! The progress of a download or of a file that is read.

use std::time::Instant;

use serde_json::json;

use super::screen::{Mode, Screen};
use crate::report::{bytes, clock};

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
        let rate = have.saturating_sub(before) as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        let eta = (rate > 0.0).then(|| self.total.saturating_sub(have) as f64 / rate);
        let part = have as f64 / self.total.max(1) as f64;
        if self.screen.mode == Mode::Json && (self.screen.is_due() || have >= self.total) {
            self.screen.printed();
            say!(
                "{}",
                json!({"event": "progress", "file": self.name, "bytes": have, "total_bytes": self.total,
                       "percent": 100.0 * part, "bytes_per_second": rate, "eta_seconds": eta})
            );
        }
        if self.screen.wants_line(Some(part)) {
            let left = eta.map_or(String::new(), |seconds| format!(", {} left", clock(seconds)));
            let [have, total, rate] = [have as usize, self.total as usize, rate as usize].map(bytes);
            let percent = (100.0 * part).floor();
            self.screen.show(&format!("{} {percent:.0}%, {have} of {total}, {rate}/s{left}", self.name));
        }
    }
}
