//! What a run prints at its end: figures, and where the time went.

use std::collections::BTreeMap;
use std::fmt::{Arguments, Display};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reseed::Profile;
use reseed::internals::memory::{self, Watch};
use reseed::internals::ops::{Ceiling, Cost};
use serde_json::{Value, json};

static STDOUT_IS_TAKEN: AtomicBool = AtomicBool::new(false);
static QUIET: AtomicBool = AtomicBool::new(false);

/// Where frames go to standard output, results go to standard error from here on.
pub fn make_way_for(output: &Path) {
    STDOUT_IS_TAKEN.store(output == Path::new("-"), Ordering::SeqCst);
}

/// Whether notes, warnings, progress and summaries are left out.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::SeqCst);
}

pub fn is_quiet() -> bool {
    QUIET.load(Ordering::SeqCst)
}

/// A line of results. A reader who has closed the pipe is no reason to stop a run.
pub fn line(what: Arguments) {
    let _ = match STDOUT_IS_TAKEN.load(Ordering::SeqCst) {
        true => writeln!(std::io::stderr(), "{what}"),
        false => writeln!(std::io::stdout(), "{what}"),
    };
}

/// A warning on standard error.
pub fn warn(what: &dyn Display) {
    if !is_quiet() {
        let _ = writeln!(std::io::stderr(), "warning: {what}");
    }
}

/// A note on standard error.
pub fn note(what: &str) {
    if !is_quiet() {
        let _ = writeln!(std::io::stderr(), "reseed: {what}");
    }
}

/// 1536 as 1.50 KiB.
pub fn bytes(count: usize) -> String {
    reseed::internals::Bytes(count).to_string()
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
    pub fn new(peak: Option<usize>, above: Option<usize>) -> HostMemory {
        HostMemory { peak, above }
    }

    /// Since `watch` started.
    pub fn since(watch: &Watch) -> HostMemory {
        HostMemory { peak: memory::peak(), above: watch.peak_above() }
    }

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
    say!("GFLOP/s are effective (arithmetic of the direct algorithm) and executed (compared with the ceiling)");
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
