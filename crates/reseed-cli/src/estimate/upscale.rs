//! `reseed estimate upscale`: what a whole job would need.

use reseed::media::video::Options;
use reseed::{Error, Estimate, Settings};
use serde_json::json;

use crate::args::batching;
use crate::args::estimate::UpscaleEstimateArgs;
use crate::failure::{Failure, Result};
use crate::report::bytes;

pub fn run(args: &UpscaleEstimateArgs) -> Result<()> {
    let source = reseed::media::open(&args.input).map_err(Failure::input)?;
    let mut info = source.info().clone();
    info.frames = args.frames.map(|frames| frames as usize).or(info.frames);
    if info.frames.is_none() {
        let path = args.input.display();
        return Err(Failure::Usage(format!("{path}: {}", Failure::from(Error::FrameCountUnknown))));
    }
    let settings = Settings { batching: batching(args.batch_size, args.overlap, false), ..args.job.settings() };
    settings.check()?;
    settings.output(&info)?;
    let session = crate::upscale::open_session(&args.job)?;
    print(args, &session.estimate(&info, &settings)?);
    Ok(())
}

fn print(args: &UpscaleEstimateArgs, estimate: &Estimate) {
    let Estimate { frames, batches, seconds, device_bytes, host_bytes, flops, based_on, plan, .. } = estimate;
    let disk = estimate.disk(&Options { codec: args.codec, crf: args.crf, ..Options::default() });
    let (layers, resident, host_weights) = (plan.layers(), plan.resident_layers(), plan.host_bytes());
    if args.job.compute.json {
        let [step, waits] = plan.step_seconds();
        say!(
            "{}",
            json!({"event": "estimate", "command": "upscale", "frames": frames, "batches": batches,
                   "seconds": seconds, "fps": estimate.fps(), "based_on": based_on, "device_bytes": device_bytes,
                   "host_bytes": host_bytes, "output_bytes": disk.output, "work_bytes": disk.work,
                   "weights_bytes": plan.weights_bytes(), "host_weights_bytes": host_weights, "flops": flops,
                   "layers": layers, "resident_layers": resident, "slice_latents": plan.slice(),
                   "networks_offloaded": plan.networks_offloaded(), "window": plan.window(),
                   "step_seconds": step, "step_waits_seconds": waits})
        );
        return;
    }
    say!("{frames} frames, {batches} batches of {}", args.batch_size);
    say!("time        about {seconds:.0} s, {:.2} fps in the networks", estimate.fps());
    say!("based on    {based_on}");
    if *device_bytes > 0 {
        say!("GPU         {} at most", bytes(*device_bytes));
    }
    say!("host        {} at most", bytes(*host_bytes));
    let (output, work) = (bytes(disk.output as usize), bytes(disk.work as usize));
    say!("disk        about {output}, and {work} of work files during the job");
    say!("arithmetic  {:.3} TFLOP", *flops as f64 / 1e12);
    let placement = match (plan.networks_offloaded(), resident < layers) {
        (true, _) => format!(" in windows of {} batches, {} offloaded", plan.window(), bytes(host_weights)),
        (false, true) => format!(", {} streamed from host memory", bytes(host_weights)),
        (false, false) => String::new(),
    };
    let slice = plan.slice();
    say!("plan        {resident} of {layers} layers on the device{placement}; slices of {slice} latent frames");
}
