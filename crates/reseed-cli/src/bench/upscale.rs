//! `reseed bench upscale`: a whole job from memory, without an output.

use std::time::Instant;

use reseed::media::{Frame, Info, Sink, Size, Source};
use reseed::{Batching, Event, Hw, JobPlan, Observer, Report, Settings};
use serde_json::json;

use super::color::frame;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::report::{HostMemory, bytes};
use crate::upscale::{open_session, stages};
use reseed_args::bench::JobBenchArgs;

pub fn run(args: &JobBenchArgs) -> Result<()> {
    let (batch, batches) = (usize::from(args.batch_size), args.batches as usize);
    if batches < 2 {
        return Err(Failure::Usage("--batches: at least two are needed, since the first is not timed".into()));
    }
    let batching = Batching { size: batch, overlap: 0, uniform: false };
    let settings = Settings { batching, detect_shots: false, ..args.job.settings() };
    settings.check()?;
    let session = open_session(&args.job)?;
    let mut film = Film::new(args.from, batch, batch * batches);
    let size = settings.output(film.info())?.size;
    let mut clock = Clock { progress: Progress::new("bench", None, false), batch, done: 0, ends: Vec::new() };
    clock.progress.finish();
    let report = session.upscale(&mut film, Box::new(Nowhere), &settings, &mut clock)?;
    let window = report.plan.as_ref().map_or(1, JobPlan::window);
    let steady = SteadyState::new(&clock.ends, window, batch);
    print(args, &report, size, steady.ok_or(window));
    Ok(())
}

/// The end of a batch, and the seconds of CPU time until then.
type End = (Instant, Option<f64>);

/// Rates of the whole windows after the first. Within a window the rate of finished frames is that of the decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SteadyState {
    fps: f64,
    /// CPU time over time, where the system knows it.
    host_cores: Option<f64>,
}

impl SteadyState {
    fn new(ends: &[End], window: usize, batch: usize) -> Option<SteadyState> {
        let windows = ends.len() / window;
        if windows < 2 {
            return None;
        }
        let ((start, cpu_start), (end, cpu_end)) = (ends[window - 1], ends[windows * window - 1]);
        let seconds = (end - start).as_secs_f64().max(1e-9);
        let host_cores = cpu_start.zip(cpu_end).map(|(start, end)| (end - start) / seconds);
        Some(SteadyState { fps: ((windows - 1) * window * batch) as f64 / seconds, host_cores })
    }
}

/// Seconds of CPU time of this process so far; Linux only.
fn cpu_seconds() -> Option<f64> {
    cpu_time(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// The seconds in user and kernel mode of a line as `/proc` has it.
fn cpu_time(stat: &str) -> Option<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    // The name of the program is in parentheses and may contain spaces.
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    let times = fields.skip(11).take(2).map(|ticks| ticks.parse::<f64>().ok());
    times.sum::<Option<f64>>().map(|ticks| ticks / TICKS_PER_SECOND)
}

/// Prints the figures: `steady` is those after the first window, or the length of a window where there is no other.
fn print(args: &JobBenchArgs, report: &Report, size: Size, steady: std::result::Result<SteadyState, usize>) {
    let (stages, hidden, plan) = (stages(report), report.streaming.hidden(), report.plan.as_ref());
    if args.job.compute.json {
        let times = stages.into_iter().map(|(name, seconds)| (name.replace('-', "_"), json!(seconds)));
        say!(
            "{}",
            json!({"event": "bench", "command": "upscale", "size": size.to_string(), "frames": report.frames,
                   "batch": args.batch_size, "fps": steady.ok().map(|steady| steady.fps),
                   "fps_with_start": report.fps(), "host_cores": steady.ok().and_then(|steady| steady.host_cores),
                   "phases": times.collect::<serde_json::Map<_, _>>(), "gpu_peak_bytes": report.gpu_peak,
                   "layers": plan.map(JobPlan::layers), "resident_layers": plan.map(JobPlan::resident_layers),
                   "networks_offloaded": plan.map(JobPlan::networks_offloaded), "window": plan.map(JobPlan::window),
                   "streaming_seconds": report.streaming.copying, "streaming_hidden": hidden})
        );
        return;
    }
    let (batch, frames, overall) = (args.batch_size, report.frames, report.fps());
    let what = format!("{frames} frames to {size} in batches of {batch}");
    match steady {
        Ok(SteadyState { fps, host_cores }) => {
            say!("{what}: {fps:.1} fps steady state ({overall:.1} including the first window)");
            if let Some(cores) = host_cores {
                say!("host: {cores:.2} busy cores in the steady state");
            }
        }
        Err(window) => {
            say!("{what}: {overall:.1} fps overall");
            say!(
                "no steady-state rate: {} batches hold no whole window of {window} after the first; use --batches {}",
                args.batches,
                2 * window
            );
        }
    }
    stages.iter().for_each(|(name, seconds)| say!("{name:<13} {:>9.1} ms per frame", 1e3 * seconds / frames as f64));
    say!("{}", HostMemory::new(report.peak_memory, report.peak_above_weights).line());
    if let Some((peak, plan)) = report.gpu_peak.zip(plan) {
        let (resident, layers, copying) = (plan.resident_layers(), plan.layers(), report.streaming.copying);
        let windows = match plan.networks_offloaded() {
            true => format!(", networks offloaded between windows of {} batches", plan.window()),
            false => String::new(),
        };
        say!("GPU: {} of memory; {resident} of {layers} layers resident{windows}", bytes(peak));
        say!("copies during steps: {copying:.2} s, {:.0}% hidden", 100.0 * hidden);
    }
}

/// A batch of frames, over and over.
struct Film {
    info: Info,
    frames: Vec<Frame>,
    next: usize,
    count: usize,
}

impl Film {
    fn new(Hw { h, w }: Hw, batch: usize, count: usize) -> Film {
        let size = Size { h, w };
        let info = Info { size, frames: Some(count), ..reseed::media::sample().info().clone() };
        Film { info, frames: (0..batch).map(|i| frame(size, i)).collect(), next: 0, count }
    }
}

impl Source for Film {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> reseed::media::Result<Option<Frame>> {
        self.next += 1;
        Ok((self.next <= self.count).then(|| self.frames[(self.next - 1) % self.frames.len()].clone()))
    }
}

/// Drops frames.
struct Nowhere;

impl Sink for Nowhere {
    fn write(&mut self, _: &Frame) -> reseed::media::Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> reseed::media::Result<()> {
        Ok(())
    }
}

/// Remembers when each batch was done.
struct Clock {
    /// Shows warnings.
    progress: Progress<'static>,
    batch: usize,
    done: usize,
    ends: Vec<End>,
}

impl Observer for Clock {
    fn event(&mut self, event: &Event) {
        if let Event::Frames(frames) = event {
            self.done += frames;
            if self.done >= (self.ends.len() + 1) * self.batch {
                self.ends.push((Instant::now(), cpu_seconds()));
            }
            return;
        }
        self.progress.event(event);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_rate_needs_a_whole_window_after_the_first() {
        let start = Instant::now();
        let end = |s: &u64| (start + Duration::from_secs(*s), Some(1.5 * *s as f64));
        let steady =
            |seconds: &[u64], window| SteadyState::new(&seconds.iter().map(end).collect::<Vec<_>>(), window, 5);
        let host_cores = Some(1.5);
        assert_eq!(steady(&[3, 4, 5], 1), Some(SteadyState { fps: 5.0, host_cores }));
        assert_eq!(steady(&[8, 9, 10, 11, 12], 4), None);
        assert_eq!(steady(&[8, 9, 10, 18, 19, 20, 28], 3), Some(SteadyState { fps: 1.5, host_cores }));
    }

    #[test]
    fn cpu_time_is_that_of_user_and_kernel() {
        let stat = "4711 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 125 7 7 20 0 9 0 1";
        assert_eq!(cpu_time(stat), Some(3.75));
        assert_eq!(cpu_time("no line of a process"), None);
    }
}
