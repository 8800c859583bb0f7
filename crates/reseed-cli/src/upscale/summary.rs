//! What a job prints at its end.

use reseed::{JobPlan, Report};
use serde_json::json;

use super::Done;
use crate::console;
use crate::failure::Result;
use crate::report::{self, HostMemory, bytes, counted, merged};

impl Done<'_> {
    pub fn summarize(&self, report: &Report) -> Result<()> {
        if let Some(profile) = &report.profile {
            report::profile(profile, self.args.compute.json);
        }
        match self.args.compute.json {
            true => self.json(report),
            false if console::is_quiet() => Ok(()),
            false => self.text(report),
        }
    }

    fn json(&self, report: &Report) -> Result<()> {
        let Done { name, output, before, info, session, .. } = self;
        let times = stages(report).into_iter().map(|(name, seconds)| (name.replace('-', "_"), json!(seconds)));
        let plan = report.plan.as_ref();
        let done = json!({
            "event": "done", "command": name, "device": session.device()?, "dtype": session.precision()?.to_string(),
            "frames": report.frames, "batches": report.batches, "shots": report.shots,
            "input_width": before.w, "input_height": before.h,
            "width": info.size.w, "height": info.size.h, "seconds": report.times.total.as_secs_f64(),
            "fps": report.fps(), "phases": times.collect::<serde_json::Map<_, _>>(),
            "output": output.to_string_lossy(), "layers": plan.map(JobPlan::layers),
            "resident_layers": plan.map(JobPlan::resident_layers), "gpu_peak_bytes": report.gpu_peak,
            "window": plan.map(JobPlan::window), "networks_offloaded": plan.map(JobPlan::networks_offloaded),
            "networks_kept": report.networks_reused, "host_weights_bytes": plan.map(JobPlan::host_bytes),
            "streaming_seconds": report.streaming.copying, "streaming_hidden": report.streaming.hidden(),
        });
        say!("{}", merged(done, host_memory(report).json()));
        Ok(())
    }

    fn text(&self, report: &Report) -> Result<()> {
        let Done { output, info, session, .. } = self;
        let (frames, batches) = (counted(report.frames, "frame"), counted(report.batches, "batch"));
        say!("{}: {frames} of {}, {batches}, {}", output.display(), info.size, counted(report.shots, "shot"));
        for (name, seconds) in stages(report) {
            say!("{name:<13} {seconds:>9.2} s");
        }
        let seconds = report.times.total.as_secs_f64();
        say!("{:<13} {seconds:>9.2} s, {:.2} fps on {}", "total", report.fps(), session.device()?);
        say!("{}", host_memory(report).line());
        if let Some(peak) = report.gpu_peak {
            say!("peak GPU memory {}", bytes(peak));
        }
        if let Some(line) = report.plan.as_ref().and_then(|plan| offloading(plan, report)) {
            say!("{line}");
        }
        Ok(())
    }
}

fn host_memory(report: &Report) -> HostMemory {
    HostMemory::new(report.peak_memory, report.peak_above_weights)
}

/// What was streamed or offloaded, and the time of copies; nothing where all weights stayed on the device.
fn offloading(plan: &JobPlan, report: &Report) -> Option<String> {
    let (layers, host) = (plan.layers(), bytes(plan.host_bytes()));
    let streamed = match layers - plan.resident_layers() {
        0 => None,
        all if all == layers => Some(format!("all {layers} layers streamed from host memory")),
        some => Some(format!("{some} of {layers} layers streamed from host memory")),
    };
    let offloaded = plan
        .networks_offloaded()
        .then(|| format!("networks offloaded between turns over windows of {}", counted(plan.window(), "batch")));
    let what: Vec<String> = [offloaded, streamed].into_iter().flatten().collect();
    let copies = report.streaming;
    (!what.is_empty()).then(|| {
        let what = what.join("; ");
        let hidden = 100.0 * copies.hidden();
        format!("{what}: {host} in host memory, {:.2} s of copies during steps, {hidden:.0}% hidden", copies.copying)
    })
}

/// Stages in order. They overlap, so that their sum may exceed the total.
pub fn stages(report: &Report) -> [(&'static str, f64); 7] {
    let times = &report.times;
    [
        ("read", times.read),
        ("resize", times.resize),
        ("encode", times.encode),
        ("upscale", times.upscale),
        ("decode", times.decode),
        ("post-process", times.post_process),
        ("write", times.write),
    ]
    .map(|(name, time)| (name, time.as_secs_f64()))
}
