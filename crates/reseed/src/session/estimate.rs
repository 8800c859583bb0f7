//! What a job would need.

use std::collections::BTreeSet;

use reseed_media::video::Options;
use reseed_media::{Disk, Info, Size, disk};
use reseed_ops::Cost;

use super::{IDENTITY, Session};
use crate::batch::Batching;
use crate::devices::{ComputeOptions, Devices};
use crate::error::{Error, Result};
use crate::lanes::WINDOWS_AHEAD;
use crate::memory;
use crate::models;
use crate::models::weights::Weights;
use crate::planner::JobPlan;
use crate::settings::Settings;

/// Batches whose frames may wait in the work folder: the one that is written, and the next.
const WAITING: usize = 2;

/// What a job would need, from the plan that it would run.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Size of the input.
    pub input_size: Size,
    /// Size of the output.
    pub output_size: Size,
    /// Frames of the input.
    pub frames: usize,
    /// Batches, without the cuts of shots.
    pub batches: usize,
    /// Devices that take the batches in turn.
    pub devices: usize,
    /// Time in the networks. GPUs compute at the same time; lanes of one device do not make it faster.
    pub seconds: f64,
    /// Bytes of GPU memory of each device, with the driver's own; zero on the CPU.
    pub device_bytes: usize,
    /// Bytes of host memory.
    pub host_bytes: usize,
    /// Floating-point operations of the whole job.
    pub flops: u64,
    /// The rates that the time is based on, in words.
    pub based_on: String,
    /// The plan.
    pub plan: JobPlan,
    output: Info,
    batching: Batching,
    /// Pixels of a frame as the networks see it.
    pixels: usize,
}

impl Estimate {
    /// Frames per second in the networks.
    pub fn fps(&self) -> f64 {
        self.frames as f64 / self.seconds
    }

    /// The output and the work files of a job that writes a video with these options.
    pub fn disk(&self, options: &Options) -> Disk {
        let (batch, shared) = (self.batching.size, self.batching.shared());
        let disk = disk(&self.output, options, self.frames, batch);
        // Stored frames and frames that later batches may still change are floats.
        let stored = (WAITING * batch + 2 * shared).min(self.frames) * 3 * size_of::<f32>() * self.pixels;
        Disk { work: disk.work + stored as u64, ..disk }
    }
}

/// What a job in shards would need on machines with the devices of the estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterEstimate {
    /// Shards of the job.
    pub shards: usize,
    /// Time of all machines together, in seconds.
    pub machine_seconds: f64,
    /// Time until the last shard is done, in seconds.
    pub seconds: f64,
    /// Bytes of stored segments.
    pub storage: u64,
}

impl Estimate {
    /// The same job in shards of so many segments, on machines that each compute one shard at a time.
    pub fn on_machines(&self, machines: usize, segments: usize, options: &Options) -> ClusterEstimate {
        let shard_frames = segments.max(1) * reseed_media::segments::FRAMES;
        let shards = self.frames.div_ceil(shard_frames);
        // Batches at both ends of a shard are computed by its neighbours too.
        let repeated = (shards - 1) * self.batching.size;
        let per_frame = self.seconds / self.frames as f64;
        let longest = shard_frames.min(self.frames) + self.batching.size * usize::from(shards > 1);
        ClusterEstimate {
            shards,
            machine_seconds: (self.frames + repeated) as f64 * per_frame,
            seconds: shards.div_ceil(machines.max(1)) as f64 * longest as f64 * per_frame,
            storage: self.disk(options).output,
        }
    }
}

impl Session {
    /// What a job on an input like this would need. Computes nothing but a short measurement of the CPU.
    pub fn estimate(&self, input: &Info, settings: &Settings) -> Result<Estimate> {
        let frames = input.frames.ok_or(Error::FrameCountUnknown)?;
        let settings = self.resolved(settings)?;
        let devices = self.first_lane()?;
        // The plans of later jobs must not depend on a measurement.
        let measured = match &devices.vae.gpu {
            Some(_) => None,
            None => {
                let mixed = self.weights.as_ref().is_some_and(Weights::decodes_in_f32);
                let options = ComputeOptions {
                    device: self.devices[0].clone(),
                    profile: false,
                    check: None,
                    ..self.options.clone()
                };
                Some(Devices::open(&options, mixed)?.with_measured_speed()?)
            }
        };
        let devices = measured.as_ref().unwrap_or(&devices);
        let known = || models::all().iter().map(|model| model.name).collect();
        let missing = || Error::UnknownModel { name: IDENTITY.into(), known: known() };
        let mut planner = self.planner(devices, &settings, input)?.ok_or_else(missing)?;
        // Allocated while the networks are planned, as in a job.
        let mut frame_work = self.frame_work(&[devices], &settings, (input, &mut Vec::new()))?;
        let planned = frame_work.plan(std::slice::from_mut(&mut planner), Vec::new())?;
        let (plan, _) = planned.into_iter().next().expect("a plan for every planner");
        let (batching, geometry) = (settings.batching, &planner.geometry);
        let step = batching.size - batching.shared();
        let batches = frames.saturating_sub(batching.shared()).div_ceil(step).max(1);
        let host_frames = memory::of_frames(batching, geometry, plan.slice(), plan.window());
        let networks = plan.weights_bytes() + plan.arena_bytes();
        let (lanes, distinct) = (self.devices.len(), self.devices.iter().collect::<BTreeSet<_>>().len());
        let batch_bytes = batching.size * 3 * size_of::<f32>() * geometry.padded.pixels();
        let waiting = (lanes - 1) * WINDOWS_AHEAD * plan.window() * batch_bytes;
        let (device_bytes, host_bytes) = match &devices.vae.gpu {
            Some(gpu) => (gpu.peak_bytes() + lanes / distinct * networks, lanes * plan.host_bytes() + host_frames),
            None => (0, lanes * networks + host_frames),
        };
        // All batches, as if each were full.
        let Cost { flops, .. } = plan.cost();
        Ok(Estimate {
            input_size: geometry.input,
            output_size: geometry.output,
            frames,
            batches,
            devices: lanes,
            seconds: batches.div_ceil(distinct) as f64 * plan.batch_seconds(),
            device_bytes,
            host_bytes: host_bytes + waiting,
            flops: batches as u64 * flops,
            based_on: devices.vae.speed(),
            output: settings.output(input)?,
            batching,
            pixels: geometry.padded.pixels(),
            plan,
        })
    }
}
