//! What a run prints at its end: figures, and where the time went.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use reseed::Profile;
use reseed::internals::memory::{self, Watch};
use reseed::internals::ops::{Ceiling, Cost};
use reseed::media::Size;
use serde_json::{Value, json};

/// 1536 as 1.50 KiB.
pub fn bytes(count: usize) -> String {
    reseed::internals::Bytes(count).to_string()
}

/// 1 batch, 2 batches.
pub fn counted(count: usize, word: &str) -> String {
    let ending = if count == 1 {
        ""
    } else if word.ends_with("ch") {
        "es"
    } else {
        "s"
    };
    format!("{count} {word}{ending}")
}

/// The first line of a job: its input, and the sizes before and after.
pub fn sizes(input: &Path, from: Size, to: Size, frames: Option<usize>) -> String {
    let frames = frames.map_or(String::new(), |frames| format!(", {}", counted(frames, "frame")));
    format!("{}: {from} -> {to}{frames}", input.display())
}

/// A time that is estimated: 75 as 1:15, short ones in seconds.
pub fn duration(seconds: f64) -> String {
    if seconds < 60.0 { format!("{seconds:.0} s") } else { clock(seconds) }
}

/// 75 as 1:15, 3675 as 1:01:15.
pub fn clock(seconds: f64) -> String {
    let s = seconds.round() as u64;
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        hours => format!("{hours}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

/// A JSON object with the fields of another.
pub fn merged(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

/// Host memory of a run: the peak, and the part above the weights.
#[derive(Clone, Copy)]
pub struct HostMemory {
    peak: Option<usize>,
    above: Option<usize>,
}

impl HostMemory {
    /// These figures, where the system tells them.
    pub fn new(peak: Option<usize>, above: Option<usize>) -> HostMemory {
        HostMemory { peak, above }
    }

    /// Since `watch` started.
    pub fn since(watch: &Watch) -> HostMemory {
        HostMemory { peak: memory::peak(), above: watch.peak_above() }
    }

    /// The part above the weights.
    pub fn above_weights(&self) -> Option<usize> {
        self.above
    }

    /// One line of text.
    pub fn line(&self) -> String {
        match (self.peak, self.above) {
            (Some(peak), Some(above)) => {
                format!("peak memory {}, {} of it above the weights", bytes(peak), bytes(above))
            }
            _ => "peak memory unknown on this system".into(),
        }
    }

    /// The same as JSON.
    pub fn json(&self) -> Value {
        json!({"peak_bytes": self.peak, "peak_above_weights_bytes": self.above})
    }
}

/// Time per op, then per stage and op, longest first, and the fraction of the device's peak rates.
pub fn profile(Profile { records, ceiling }: &Profile, as_json: bool) {
    if as_json {
        for r in records {
            let (flops, bytes) = (r.cost.flops, r.cost.bytes);
            let seconds = r.time.as_secs_f64();
            say!(
                "{}",
                json!({"event": "profile", "stage": r.stage, "op": r.op, "calls": r.calls, "seconds": seconds,
                       "flops": flops, "executed_flops": r.executed, "bytes": bytes,
                       "effective_gflops_per_second": rate(flops, r.time),
                       "executed_gflops_per_second": rate(r.executed, r.time),
                       "of_ceiling": ceiling.share(Cost { flops: r.executed, bytes }, r.time)})
            );
        }
        return;
    }
    let mut families: BTreeMap<&str, (usize, Duration, Cost, u64)> = BTreeMap::new();
    for r in records {
        let family = families.entry(r.op).or_default();
        family.0 += r.calls;
        family.1 += r.time;
        family.2 += r.cost;
        family.3 += r.executed;
    }
    let mut families: Vec<_> = families.into_iter().collect();
    families.sort_by_key(|(_, (_, time, ..))| std::cmp::Reverse(*time));
    let total: Duration = records.iter().map(|r| r.time).sum();
    let Ceiling { flops, bytes } = *ceiling;
    say!(
        "measured ceilings: {:.2} TFLOP/s in a matrix product, {:.0} GB/s in a sum of vectors",
        flops / 1e12,
        bytes / 1e9
    );
    say!(
        "GFLOP/s are effective (arithmetic of the direct algorithm) and executed (compared with the ceiling; 8-bit \
         products count half)"
    );
    say!(
        "{:<38} {:>6} {:>10} {:>6} {:>10} {:>9} {:>9} {:>8} {:>9}",
        "op",
        "calls",
        "ms",
        "%",
        "GFLOP",
        "effective",
        "executed",
        "GB/s",
        "% ceiling"
    );
    for (op, (calls, time, cost, executed)) in families {
        row(op, calls, time, (cost, executed), total, ceiling);
    }
    say!("");
    for r in records {
        row(&format!("{} {}", r.stage, r.op), r.calls, r.time, (r.cost, r.executed), total, ceiling);
    }
}

fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / 1e9 / time.as_secs_f64().max(1e-9)
}

fn row(name: &str, calls: usize, time: Duration, (cost, executed): (Cost, u64), total: Duration, ceiling: &Ceiling) {
    say!(
        "{name:<38} {calls:>6} {:>10.1} {:>6.1} {:>10.2} {:>9.1} {:>9.1} {:>8.1} {:>9.0}",
        time.as_secs_f64() * 1e3,
        100.0 * time.as_secs_f64() / total.as_secs_f64().max(1e-9),
        cost.flops as f64 / 1e9,
        rate(cost.flops, time),
        rate(executed, time),
        rate(cost.bytes, time),
        100.0 * ceiling.share(Cost { flops: executed, bytes: cost.bytes }, time),
    );
}

#[cfg(test)]
mod tests {
    use super::clock;

    #[test]
    fn times_read_like_a_clock() {
        assert_eq!([0.0, 59.6, 75.0, 3675.0].map(clock), ["0:00", "1:00", "1:15", "1:01:15"]);
    }
}
