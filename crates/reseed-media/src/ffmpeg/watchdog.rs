//! Kills child processes that show no sign of life while this process waits for them.

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::process::Running;

/// The environment variable with the seconds without a sign of life after which a child is killed.
const VARIABLE: &str = "RESEED_FFMPEG_TIMEOUT";
/// The default of `VARIABLE`. It exceeds the time that a disk needs to spin up.
const IDLE: f64 = 60.0;
/// The longest wait for a child that only computes, as a multiple of the limit.
const BUSY: u32 = 30;
/// Time between two looks at the children. Limits are counted in ticks, so that the time during which this process is
/// stopped or suspended does not count.
const TICK: Duration = Duration::from_millis(250);

/// The children, and whether the thread that watches them runs.
struct Registry {
    children: Vec<Weak<Running>>,
    watched: bool,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { children: Vec::new(), watched: false });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches a child for as long as it is alive.
pub(super) fn add(child: &Arc<Running>) {
    let mut registry = registry();
    registry.children.push(Arc::downgrade(child));
    if !registry.watched {
        registry.watched = true;
        thread::spawn(watch);
    }
}

/// Kills all children, for a process that exits without dropping them.
pub(super) fn kill_all() {
    let children: Vec<_> = registry().children.iter().filter_map(Weak::upgrade).collect();
    children.iter().for_each(|child| child.kill(None));
}

/// The wait for one child, as seen so far.
#[derive(Default)]
struct Wait {
    number: u64,
    /// The counters at the last tick.
    life: u64,
    /// Ticks in total, and since the counters changed.
    ticks: u32,
    idle: u32,
}

/// Looks at all children until there are none.
fn watch() {
    let mut waits: HashMap<u32, Wait> = HashMap::new();
    loop {
        thread::sleep(TICK);
        let children: Vec<Arc<Running>> = {
            let mut registry = registry();
            registry.children.retain(|child| child.strong_count() > 0);
            if registry.children.is_empty() {
                registry.watched = false;
                return;
            }
            registry.children.iter().filter_map(Weak::upgrade).collect()
        };
        waits.retain(|pid, _| children.iter().any(|child| child.pid() == *pid));
        for child in &children {
            look(child, waits.entry(child.pid()).or_default());
        }
    }
}

fn look(child: &Running, wait: &mut Wait) {
    let Some(number) = child.current_wait() else { return };
    if wait.number != number {
        *wait = Wait { number, ..Wait::default() };
        return;
    }
    wait.ticks += 1;
    wait.idle += 1;
    let life = child.signs_of_life();
    if life != Some(wait.life) {
        // Where the system counts nothing, only the long limit applies.
        (wait.life, wait.idle) = (life.unwrap_or(0), 0);
    }
    let limit = limit();
    let seconds = |ticks: u32| TICK.as_secs_f64() * f64::from(ticks);
    if wait.idle > limit {
        child.kill(Some(format!("it did nothing for {:.0} s and was stopped", seconds(wait.idle))));
    } else if wait.ticks / BUSY > limit {
        child.kill(Some(format!("it had no result after {:.0} s and was stopped", seconds(wait.ticks))));
    }
}

/// Ticks without a sign of life after which a child is killed.
fn limit() -> u32 {
    static LIMIT: OnceLock<u32> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let given = env::var(VARIABLE).ok().and_then(|text| text.parse::<f64>().ok());
        let seconds = given.filter(|seconds| *seconds > 0.0).unwrap_or(IDLE);
        (seconds / TICK.as_secs_f64()).ceil() as u32
    })
}
