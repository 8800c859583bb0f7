//! What a run prints at its end: figures, and where the time went.

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reseed_ops::{Ceiling, Cost, Record};
use serde_json::{Value, json};

use reseed::memory;

static STDOUT_IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Where pictures go to stdout, results go to stderr from here on.
pub fn make_way_for(output: &Path) {
    STDOUT_IS_TAKEN.store(output == Path::new("-"), Ordering::SeqCst);
}

/// A line of results. A reader who has gone away is no reason to stop a run or to panic.
pub fn line(what: Arguments) {
    let _ = match STDOUT_IS_TAKEN.load(Ordering::SeqCst) {
        true => writeln!(std::io::stderr(), "{what}"),
        false => writeln!(std::io::stdout(), "{what}"),
    };
}

/// A line that a user should see whatever becomes of the run.
pub fn warn(what: &str) {
    let _ = writeln!(std::io::stderr(), "warning: {what}");
}

/// 1536 as 1.5 KiB.
pub fn bytes(count: usize) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (0..units.len() - 1).take_while(|&p| count >> (10 * (p + 1)) > 0).count();
    match power {
        0 => format!("{count} B"),
        _ => format!("{:.2} {}", count as f64 / (1u64 << (10 * power)) as f64, units[power]),
    }
}

/// Memory of a run: what was resident when the weights were in, and the most behind that.
pub struct MemoryWatch {
    weights: Option<usize>,
}

impl MemoryWatch {
    /// Call when the weights are loaded.
    pub fn start() -> MemoryWatch {
        memory::forget_peak();
        MemoryWatch { weights: memory::resident() }
    }

    /// Most bytes since then beyond what the weights took.
    pub fn above_weights(&self) -> Option<usize> {
        Some(memory::peak()?.saturating_sub(self.weights?))
    }

    /// One line of text.
    pub fn line(&self) -> String {
        match (memory::peak(), self.above_weights()) {
            (Some(peak), Some(above)) => {
                format!("peak memory {}, {} of it above the weights", bytes(peak), bytes(above))
            }
            _ => "peak memory unknown on this system".into(),
        }
    }

    /// The same for JSON.
    pub fn json(&self) -> Value {
        json!({"peak_bytes": memory::peak(), "peak_above_weights_bytes": self.above_weights()})
    }
}

/// Time per op family, then per stage and op, longest first, and what part that is of what the device can do.
pub fn profile(records: &[Record], ceiling: &Ceiling, as_json: bool) {
    if as_json {
        for r in records {
            let (flops, bytes) = (r.cost.flops, r.cost.bytes);
            let seconds = r.time.as_secs_f64();
            say!(
                "{}",
                json!({"event": "profile", "stage": r.stage, "op": r.op, "calls": r.calls, "seconds": seconds,
                       "flops": flops, "bytes": bytes, "gflops_per_second": rate(flops, r.time),
                       "of_ceiling": ceiling.share(r.cost, r.time)})
            );
        }
        return;
    }
    let mut families: BTreeMap<&str, (usize, Duration, Cost)> = BTreeMap::new();
    for r in records {
        let family = families.entry(r.op).or_default();
        family.0 += r.calls;
        family.1 += r.time;
        family.2 += r.cost;
    }
    let mut families: Vec<_> = families.into_iter().collect();
    families.sort_by_key(|(_, (_, time, _))| std::cmp::Reverse(*time));
    let total: Duration = records.iter().map(|r| r.time).sum();
    let Ceiling { flops, bytes } = *ceiling;
    say!(
        "measured ceilings: {:.2} TFLOP/s in a matrix product, {:.0} GB/s in a sum of vectors",
        flops / 1e12,
        bytes / 1e9
    );
    say!(
        "{:<38} {:>6} {:>10} {:>6} {:>10} {:>9} {:>8} {:>9}",
        "op",
        "calls",
        "ms",
        "%",
        "GFLOP",
        "GFLOP/s",
        "GB/s",
        "% ceiling"
    );
    for (op, (calls, time, cost)) in families {
        row(op, calls, time, cost, total, ceiling);
    }
    say!("");
    for r in records {
        row(&format!("{} {}", r.stage, r.op), r.calls, r.time, r.cost, total, ceiling);
    }
}

fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / 1e9 / time.as_secs_f64().max(1e-9)
}

fn row(name: &str, calls: usize, time: Duration, cost: Cost, total: Duration, ceiling: &Ceiling) {
    say!(
        "{name:<38} {calls:>6} {:>10.1} {:>6.1} {:>10.2} {:>9.1} {:>8.1} {:>9.0}",
        time.as_secs_f64() * 1e3,
        100.0 * time.as_secs_f64() / total.as_secs_f64().max(1e-9),
        cost.flops as f64 / 1e9,
        rate(cost.flops, time),
        rate(cost.bytes, time),
        100.0 * ceiling.share(cost, time),
    );
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_read_like_a_file_manager() {
        assert_eq!([0, 1023, 1536, 5 << 30].map(bytes), ["0 B", "1023 B", "1.50 KiB", "5.00 GiB"]);
    }
}
