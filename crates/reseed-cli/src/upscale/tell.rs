//! What a job says at its end.

use reseed::Report;
use reseed_media::Info;
use reseed_ops::CopyTime;
use serde_json::json;

use super::once::{Job, Ready};
use crate::outline::JobPlan;
use crate::report::{MemoryWatch, bytes};

impl Job<'_> {
    pub fn tell(&self, report: &Report, info: &Info, watch: &MemoryWatch, ready: &Ready) {
        let (device, choice) = (ready.device(), ready.choice());
        let step = choice.map(|choice| &choice.turns.step);
        let card = device.card.as_ref().map(|card| card.peak_bytes());
        let (seconds, device) = (report.times.total.as_secs_f64(), &device.ops);
        if self.args.compute.json {
            let times = phases(report).into_iter().map(|(name, seconds)| (name.replace('-', "_"), json!(seconds)));
            let mut done = json!({
                "event": "done", "command": self.name, "device": device.name(), "dtype": device.precision().to_string(),
                "frames": report.frames, "batches": report.batches, "shots": report.shots,
                "width": info.size.w, "height": info.size.h, "seconds": seconds, "fps": report.fps(),
                "phases": times.collect::<serde_json::Map<_, _>>(), "output": self.output.to_string_lossy(),
                "layers": step.map(|step| step.layers), "resident_layers": step.map(|step| step.resident),
                "card_peak_bytes": card, "window": choice.map(|choice| choice.window),
                "swapped": choice.map(JobPlan::is_apart), "networks_kept": ready.kept,
                "hosted_bytes": choice.map(|choice| choice.hosted),
                "streaming_seconds": report.streaming.copying, "streaming_hidden": report.streaming.hidden(),
            });
            done.as_object_mut().expect("an object").extend(watch.json().as_object().expect("an object").clone());
            say!("{done}");
            return;
        }
        let Report { frames, batches, shots, .. } = report;
        let (frames, batches, shots) = (counted(*frames, "frame"), counted(*batches, "batch"), counted(*shots, "shot"));
        say!("{}: {frames} of {}, {batches}, {shots}", self.output.display(), info.size);
        for (name, seconds) in phases(report) {
            say!("{name:<13} {seconds:>9.2} s");
        }
        say!("{:<13} {seconds:>9.2} s, {:.2} fps on {}", "total", report.fps(), device.name());
        say!("{}", watch.line());
        if let Some(peak) = card {
            say!("card: {} of its memory", bytes(peak));
        }
        if let Some(choice) = choice {
            tell_choice(choice, report.streaming);
        }
    }
}

/// What did not stay on the card, and what that cost.
fn tell_choice(choice: &JobPlan, copies: CopyTime) {
    let (layers, resident, hosted) = (choice.turns.step.layers, choice.turns.step.resident, bytes(choice.hosted));
    let windows = format!("in windows of {}", counted(choice.window, "batch"));
    let what = match (choice.is_apart(), resident == layers) {
        (false, true) => return,
        (false, false) => {
            format!("{resident} of {layers} layers stayed on the card, {hosted} of others came anew for every batch")
        }
        (true, true) => format!("the networks took turns on the card {windows}, {hosted} in the host's memory"),
        (true, false) => format!(
            "the networks took turns on the card {windows}, {hosted} in the host's memory; {} of {layers} layers came \
             anew for every batch",
            layers - resident
        ),
    };
    say!("{what}: {:.2} s of copies during steps, {:.0}% hidden", copies.copying, 100.0 * copies.hidden());
}

/// 1 batch, 2 batches.
fn counted(count: usize, word: &str) -> String {
    let ending = if count == 1 {
        ""
    } else if word.ends_with("ch") {
        "es"
    } else {
        "s"
    };
    format!("{count} {word}{ending}")
}

/// Stages in their order. They overlap, so that they may add up to more than the total.
pub fn phases(report: &Report) -> [(&'static str, f64); 7] {
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
