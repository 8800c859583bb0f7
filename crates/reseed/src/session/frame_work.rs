//! The work on finished frames: where it is done, and what that leaves to the networks.

use reseed_media::Info;
use reseed_ops::FrameOps;

use super::Session;
use crate::devices::Devices;
use crate::error::{Kind, Result};
use crate::finish::frame_spec;
use crate::planner::{self, JobPlanner, Loaded, Planned};
use crate::settings::Settings;
use crate::view::View;

/// A device that finishes the frames of a job, if one does.
pub(super) type FrameDevice = Option<Box<dyn FrameOps>>;

impl Session {
    /// Memory of a GPU for the work on finished frames. Networks of the last job leave first where they were planned
    /// beside another amount of it.
    pub(super) fn frame_device(
        &self,
        devices: &Devices,
        settings: &Settings,
        (input, last): (&Info, &mut Vec<Loaded>),
    ) -> Result<FrameDevice> {
        let gpu = devices.vae.gpu.as_ref().filter(|_| self.weights.is_some());
        let Some(gpu) = gpu else { return Ok(None) };
        let view = View::new(settings.geometry(input)?);
        let spec = frame_spec(settings, &view, (input.depth, input.alpha));
        let bytes = spec.as_ref().and_then(|spec| gpu.frame_bytes(spec)).unwrap_or(0);
        last.retain(|last| last.frame_bytes() == bytes);
        Ok(spec.and_then(|spec| gpu.frames(spec)))
    }
}

/// Plans the networks beside the work on frames. Where only the memory of that is missing, the host does it.
pub(super) fn plan(frames: &mut FrameDevice, planners: &mut [JobPlanner], last: Vec<Loaded>) -> Result<Vec<Planned>> {
    let bytes = frames.as_ref().map_or(0, |frames| frames.bytes());
    planners.iter_mut().for_each(|planner| planner.frames = bytes);
    let planned = planner::plan_lanes(planners, last);
    let too_small = match &planned {
        Ok(planned) => planned.first().is_some_and(|(plan, _)| plan.is_inexact()),
        Err(error) => error.kind() == Kind::Memory,
    };
    if frames.is_none() || !too_small {
        return planned;
    }
    *frames = None;
    planners.iter_mut().for_each(|planner| planner.frames = 0);
    planner::plan_lanes(planners, Vec::new())
}
