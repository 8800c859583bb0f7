//! The work on frames before and after the networks: where it is done, and what that leaves to the networks.

use reseed_media::Info;
use reseed_ops::{FrameLoader, FrameOps};

use super::Session;
use crate::devices::Devices;
use crate::error::{Kind, Result};
use crate::finish::frame_spec;
use crate::planner::{self, FrameMemory, JobPlanner, Loaded, Planned};
use crate::settings::Settings;
use crate::view::View;

/// Who resizes and finishes the frames of a job: a device, or else the host.
#[derive(Default)]
pub(super) struct FrameWork {
    device: Option<Box<dyn FrameOps>>,
    /// Those of the lanes that resize frames for their networks.
    loaders: Vec<Option<Box<dyn FrameLoader>>>,
    /// Bytes that the work needs on a device.
    bytes: usize,
}

impl Session {
    /// Memory of GPUs for the work on frames; the GPU of the first lane finishes them. Networks of the last job leave
    /// first unless that job needed as much. If it then had no room for this work beside its networks, neither has this
    /// one.
    pub(super) fn frame_work(
        &self,
        lanes: &[&Devices],
        settings: &Settings,
        (input, last): (&Info, &mut Vec<Loaded>),
    ) -> Result<FrameWork> {
        let on_cpu = lanes.iter().all(|devices| devices.vae.gpu.is_none() && devices.encoder().gpu.is_none());
        if self.weights.is_none() || on_cpu {
            return Ok(FrameWork::default());
        }
        let view = View::new(settings.geometry(input)?);
        let own = self.low_band()?;
        let spec = frame_spec(settings, own.of_job(settings.strength), &view, (input.depth, input.alpha));
        let Some(spec) = spec else { return Ok(FrameWork::default()) };
        let loader = |devices: &&Devices| devices.encoder().gpu.as_ref()?.loader(&spec);
        let unchecked = self.options.check.is_none();
        let loaders = if unchecked { lanes.iter().map(loader).collect() } else { Vec::new() };
        let Some(gpu) = &lanes[0].vae.gpu else { return Ok(FrameWork { loaders, ..FrameWork::default() }) };
        let spec = gpu.fitted(spec);
        let bytes = spec.as_ref().map_or(0, |spec| gpu.frame_bytes(spec));
        last.retain(|last| last.frame_memory().bytes == bytes);
        let had_room = last.first().is_none_or(|last| last.frame_memory().on_device);
        let device = spec.filter(|_| had_room).and_then(|spec| gpu.frames(spec));
        Ok(FrameWork { device, loaders, bytes })
    }
}

impl FrameWork {
    /// Plans the networks beside the work on frames. Where only the memory of that is missing, the host does it.
    pub fn plan(&mut self, planners: &mut [JobPlanner], last: Vec<Loaded>) -> Result<Vec<Planned>> {
        let planned = self.plan_beside(planners, last);
        let too_small = match &planned {
            Ok(planned) => planned.first().is_some_and(|(plan, _)| plan.is_inexact()),
            Err(error) => error.kind() == Kind::Memory,
        };
        if self.device.is_none() || !too_small {
            return planned;
        }
        self.device = None;
        self.plan_beside(planners, Vec::new())
    }

    fn plan_beside(&self, planners: &mut [JobPlanner], last: Vec<Loaded>) -> Result<Vec<Planned>> {
        let frames = FrameMemory { bytes: self.bytes, on_device: self.device.is_some() };
        planners.iter_mut().for_each(|planner| planner.frames = frames);
        planner::plan_lanes(planners, last)
    }

    /// What resizes frames for the networks of a lane, if its device does.
    pub fn loader(&self, lane: usize) -> Option<&dyn FrameLoader> {
        self.loaders.get(lane)?.as_deref()
    }

    /// The device that finishes the frames, if one does.
    pub fn device(&self) -> Option<&dyn FrameOps> {
        self.device.as_deref()
    }
}
