//! What a whole job would need, for `reseed estimate upscale` and `--dry-run`.

use std::path::Path;

use reseed::media::Info;
use reseed::media::video::Options;
use reseed::{ClusterEstimate, Estimate, Session, Settings};
use serde_json::json;

use crate::failure::Result;
use crate::progress::Place;
use crate::report::{self, bytes, counted};

/// A job that is not run.
pub struct Plan<'a> {
    pub input: &'a Path,
    pub info: &'a Info,
    pub settings: &'a Settings,
    pub video: &'a Options,
    pub json: bool,
    pub place: Option<Place>,
    /// The number of machines of a job in shards, and the segments of a shard.
    pub machines: Option<(usize, usize)>,
}

impl Plan<'_> {
    /// Prints the sizes, and what the job would need where its length is known.
    pub fn print<'s>(&self, session: impl FnOnce() -> Result<&'s Session>) -> Result<()> {
        let output = self.settings.output(self.info)?;
        let estimate = match self.info.frames {
            Some(_) => Some(session()?.estimate(self.info, self.settings)?),
            None => None,
        };
        if self.json {
            self.print_json(&output, estimate.as_ref());
            return Ok(());
        }
        let place = Place::prefix(self.place);
        say!("{place}{}", report::sizes(self.input, self.info.size, output.size, self.info.frames));
        match &estimate {
            Some(estimate) => self.print_text(estimate),
            None => say!("frame count unknown: no estimate of time, memory and disk space"),
        }
        Ok(())
    }

    fn print_json(&self, output: &Info, estimate: Option<&Estimate>) {
        let (from, to) = (self.info.size, output.size);
        let job = json!({
            "event": "estimate", "command": "upscale", "input": self.input.to_string_lossy(),
            "input_width": from.w, "input_height": from.h, "width": to.w, "height": to.h, "frames": self.info.frames,
        });
        let needs = estimate.map_or(json!({}), |estimate| {
            let (plan, disk) = (&estimate.plan, estimate.disk(self.video));
            let [step, waits] = plan.step_seconds();
            json!({
                "batches": estimate.batches, "devices": estimate.devices,
                "seconds": estimate.seconds, "fps": estimate.fps(), "based_on": estimate.based_on,
                "device_bytes": estimate.device_bytes,
                "host_bytes": estimate.host_bytes, "output_bytes": disk.output, "work_bytes": disk.work,
                "weights_bytes": plan.weights_bytes(), "host_weights_bytes": plan.host_bytes(),
                "flops": estimate.flops, "layers": plan.layers(), "resident_layers": plan.resident_layers(),
                "slice_latents": plan.slice(), "networks_offloaded": plan.networks_offloaded(),
                "window": plan.window(), "step_seconds": step, "step_waits_seconds": waits,
            })
        });
        let cluster = estimate.and_then(|estimate| self.cluster(estimate)).map_or(json!({}), |(machines, cluster)| {
            json!({
                "machines": machines, "shards": cluster.shards, "machine_seconds": cluster.machine_seconds,
                "cluster_seconds": cluster.seconds, "storage_bytes": cluster.storage,
            })
        });
        say!("{}", report::merged(report::merged(job, needs), cluster));
    }

    /// The same job in shards, where that was asked for.
    fn cluster(&self, estimate: &Estimate) -> Option<(usize, ClusterEstimate)> {
        let (machines, segments) = self.machines?;
        Some((machines, estimate.on_machines(machines, segments, self.video)))
    }

    fn print_text(&self, estimate: &Estimate) {
        let (plan, disk) = (&estimate.plan, estimate.disk(self.video));
        let (seconds, fps) = (estimate.seconds, estimate.fps());
        say!("batches     {} of {}", estimate.batches, counted(self.settings.batching.size, "frame"));
        say!("time        about {}, {fps:.2} fps in the networks", report::duration(seconds));
        if estimate.devices > 1 {
            say!("devices     {} that take batches in turn", estimate.devices);
        }
        if let Some((machines, cluster)) = self.cluster(estimate) {
            let (all, last) = (report::duration(cluster.machine_seconds), report::duration(cluster.seconds));
            let (shards, machines) = (counted(cluster.shards, "shard"), counted(machines, "machine"));
            let storage = bytes(cluster.storage as usize);
            say!("cluster     {shards}, {all} in all, about {last} on {machines}; {storage} of stored segments");
        }
        say!("based on    {}", estimate.based_on);
        if estimate.device_bytes > 0 {
            say!("GPU         {} at most", bytes(estimate.device_bytes));
        }
        say!("host        {} at most", bytes(estimate.host_bytes));
        let (output, work) = (bytes(disk.output as usize), bytes(disk.work as usize));
        say!("disk        about {output}, and {work} of work files during the job");
        say!("arithmetic  {:.3} TFLOP", estimate.flops as f64 / 1e12);
        let (layers, resident, host_weights) = (plan.layers(), plan.resident_layers(), plan.host_bytes());
        let placement = match (plan.networks_offloaded(), resident < layers) {
            (true, _) => format!(" in windows of {} batches, {} offloaded", plan.window(), bytes(host_weights)),
            (false, true) => format!(", {} streamed from host memory", bytes(host_weights)),
            (false, false) => String::new(),
        };
        let slice = plan.slice();
        say!("plan        {resident} of {layers} layers on the device{placement}; slices of {slice} latent frames");
    }
}
