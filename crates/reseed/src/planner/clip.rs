//! How the encoder or the decoder runs a clip within a memory budget.

use reseed_model::plan::{CachePlan, Tile, TileInput, Tiling, padded_frames, padded_plane};
use reseed_model::planner::{CoderPlan, CoderPlanner};
use reseed_model::{Coder, Config, Stream};
use reseed_ops::{Cost, Device, Hw};

use crate::devices::DeviceHandle;
use crate::error::{Error, Result};
use crate::observer::Warning;
use crate::settings::VaeSettings;

/// Memory is reserved with this margin, for workspace that a plan counts only roughly.
pub const MARGIN: usize = 16 << 20;
/// Plans that are tried while other processes allocate memory.
pub const ATTEMPTS: usize = 5;
/// The smallest plan that is worth trying.
pub const SMALLEST: usize = 64 << 20;
/// Most latent frames of a slice that a plan chooses.
const LONGEST: usize = 2;
/// Tiles of the last resort, in pixels.
const TILES: [usize; 4] = [768, 512, 384, 256];

/// Encoder or decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Frames to latents.
    Encode,
    /// Latents to frames.
    Decode,
}

/// The encoder or the decoder over a clip of known size.
#[derive(Clone, Copy)]
pub struct CoderClip<'a> {
    /// Encoder or decoder.
    pub coder: &'a dyn Coder,
    /// The VAE.
    pub config: &'a Config,
    /// Which of the two.
    pub input: TileInput,
    /// Plane of its input.
    pub plane: Hw,
    /// Frames of its input, or a number that stands for many.
    pub frames: usize,
}

impl<'a> CoderClip<'a> {
    /// Over `frames` frames of `size`, padded as the model needs them, or over their latents.
    pub fn new(
        direction: Direction,
        coder: &'a dyn Coder,
        config: &'a Config,
        size: Hw,
        frames: usize,
    ) -> CoderClip<'a> {
        let (time, factor) = (config.temporal_factor(), config.spatial_factor());
        let (frames, padded) = (padded_frames(frames, time), padded_plane(size, factor));
        let (input, plane, frames) = match direction {
            Direction::Encode => (TileInput::Frames, padded, frames),
            Direction::Decode => {
                (TileInput::Latents, Hw::new(padded.h / factor, padded.w / factor), 1 + (frames - 1) / time)
            }
        };
        CoderClip { coder, config, input, plane, frames }
    }
}

/// How a clip runs.
#[derive(Clone, Debug)]
pub struct ClipPlan {
    /// Slices and caches.
    pub plan: CoderPlan,
    /// The spatial tiles in pixels, if any.
    pub tiling: Option<Tiling>,
    /// The tiles of the plane.
    pub tiles: Option<Vec<Tile>>,
    /// Tiles that run at the same time.
    pub workers: usize,
    factor: usize,
    frames: usize,
    /// Why it is not exact, where nobody chose tiles.
    inexact: Option<Warning>,
}

impl ClipPlan {
    /// Frames of a slice of the input.
    pub fn step(&self) -> usize {
        self.plan.slice * self.factor
    }

    /// Bytes of device memory.
    pub fn bytes(&self) -> usize {
        self.plan.report.arena + MARGIN
    }

    /// The warning of a plan in tiles that nobody chose.
    pub fn warning(&self) -> Option<&Warning> {
        self.inexact.as_ref()
    }

    /// Arithmetic and traffic of the whole clip.
    pub fn cost(&self) -> Cost {
        let Cost { flops, bytes } = self.plan.report.cost;
        Cost { flops: self.of_clip(flops), bytes: self.of_clip(bytes) }
    }

    /// Nanoseconds of the whole clip.
    pub fn time(&self) -> u64 {
        self.of_clip(self.plan.report.time)
    }

    /// The trace ran the first slices of one tile and its last, which stand for all.
    fn of_clip(&self, traced: u64) -> u64 {
        let tiles = self.tiles.as_ref().map_or(1, Vec::len);
        (u128::from(traced) * (self.frames * tiles) as u128 / self.plan.traced_frames.max(1) as u128) as u64
    }

    /// A new stream.
    pub fn stream<'a>(&self, ops: &'a dyn Device, coder: &'a dyn Coder, plane: Hw) -> Stream<'a> {
        Stream::new(ops, coder, plane, &self.plan.cache_plan).tiled(self.tiles.clone(), self.workers)
    }
}

/// Plans that fit at the same time, with slices of one length and their memory reserved.
pub fn reserve(device: &DeviceHandle, settings: &VaeSettings, clips: &[CoderClip]) -> Result<Vec<ClipPlan>> {
    for _ in 0..ATTEMPTS {
        let plans = plan(device, settings, clips)?;
        match device.ops.reserve(plans.iter().map(ClipPlan::bytes).sum()) {
            // Another process allocated the memory: less is free now, and the next plan is smaller.
            Err(reseed_ops::Error::OutOfMemory { .. }) => continue,
            done => done?,
        }
        return Ok(plans);
    }
    Err(contended(device))
}

pub fn contended(device: &DeviceHandle) -> Error {
    Error::Contended { device: device.ops.name(), attempts: ATTEMPTS }
}

/// Replaces a plan by one with the same slices and less memory, and reserves that; `None` where there is no such plan.
/// The device holds no tensor.
pub fn shrink(
    device: &DeviceHandle,
    settings: &VaeSettings,
    clip: &CoderClip,
    plan: &mut ClipPlan,
) -> Option<CachePlan> {
    while plan.plan.report.arena > SMALLEST {
        let room = (device.room)().ok()??.min(plan.plan.report.arena / 8 * 7);
        let smaller = fitting(device, settings, clip, Some(plan.plan.slice), room).ok()?;
        if smaller.tiles.is_some() != plan.tiles.is_some() {
            return None;
        }
        *plan = smaller;
        if device.ops.reserve(plan.bytes()).is_ok() {
            tracing::info!(bytes = plan.bytes(), "continuing with less memory");
            return Some(plan.plan.cache_plan.clone());
        }
    }
    None
}

/// Plans that fit at the same time, with slices of one length.
pub fn plan(device: &DeviceHandle, settings: &VaeSettings, clips: &[CoderClip]) -> Result<Vec<ClipPlan>> {
    let room = (device.room)()?.map_or(usize::MAX, |room| room / clips.len());
    plan_within(device, settings, clips, room)
}

/// Plans of at most `room` bytes each, with slices of one length.
pub fn plan_within(
    device: &DeviceHandle,
    settings: &VaeSettings,
    clips: &[CoderClip],
    room: usize,
) -> Result<Vec<ClipPlan>> {
    let slice = settings.slice.or(device.slice);
    let each =
        |slice| clips.iter().map(|clip| fitting(device, settings, clip, slice, room)).collect::<Result<Vec<_>>>();
    let plans = each(slice)?;
    let shortest = plans.iter().map(|plan| plan.plan.slice).min();
    match plans.iter().all(|plan| Some(plan.plan.slice) == shortest) {
        true => Ok(plans),
        false => each(shortest),
    }
}

/// The plan of one clip within `room` bytes, in tiles where no exact plan fits.
fn fitting(
    device: &DeviceHandle,
    settings: &VaeSettings,
    clip: &CoderClip,
    slice: Option<usize>,
    room: usize,
) -> Result<ClipPlan> {
    let tiling = settings.checked_tiling(clip.config.spatial_factor())?;
    let tensors = room.saturating_sub(MARGIN);
    let fits = |plan: &ClipPlan| plan.plan.report.arena <= tensors || room == usize::MAX;
    let exact = clip_plan(device, clip, tiling, slice, tensors)?;
    if fits(&exact) {
        return Ok(exact);
    }
    let needed = exact.bytes();
    for side in TILES.into_iter().filter(|_| tiling.is_none()) {
        let tiling = Tiling { tile: Hw::new(side, side), overlap: Hw::new(side / 8, side / 8) };
        let tiled = clip_plan(device, clip, Some(tiling), slice, tensors)?;
        if tiled.tiles.is_some() && fits(&tiled) {
            let inexact = Some(Warning::InexactTiles { available: room, needed, tile: tiling.tile });
            return Ok(ClipPlan { inexact, ..tiled });
        }
    }
    Err(Error::OverBudget { device: device.ops.name(), what: "tensors", available: room, needed })
}

fn clip_plan(
    device: &DeviceHandle,
    clip: &CoderClip,
    tiling: Option<Tiling>,
    slice: Option<usize>,
    room: usize,
) -> Result<ClipPlan> {
    let CoderClip { coder, config, input, plane, frames } = *clip;
    let tiles = tiling.and_then(|tiling| tiling.tiles(input, plane, config.spatial_factor()));
    let workers = workers(device.lanes, &tiles, input);
    let factor = if input == TileInput::Frames { config.temporal_factor() } else { 1 };
    let area = |tile: &Tile| Hw::new(tile.rows.len(), tile.columns.len());
    let plane = tiles.iter().flatten().map(area).max_by_key(|area| area.count()).unwrap_or(plane);
    let job = CoderPlanner { coder, temporal_factor: factor, plane, frames };
    let canvas = tiles.as_ref().map_or(0, |_| canvas(device, clip, slice.unwrap_or(LONGEST) * factor));
    let tensors = room.saturating_sub(canvas);
    let mut plan = job.plan(&*device.trace, slice, tensors)?;
    let others = tiles.as_ref().map_or(0, |tiles| tiles.len() - 1) * plan.resident_bytes;
    if plan.report.arena + others <= tensors {
        plan.report.arena += others;
    } else if others > 0 {
        plan = job.plan_fully_offloaded(&*device.trace, slice, tensors)?;
    }
    plan.report.arena += canvas;
    Ok(ClipPlan { plan, tiling, tiles, workers, factor, frames, inexact: None })
}

/// Bytes of the frames on which the tiles of a slice of so many frames are blended.
fn canvas(device: &DeviceHandle, clip: &CoderClip, frames: usize) -> usize {
    let (coder, out) = (clip.coder, clip.coder.plane_out(clip.plane));
    let values = coder.frames_out(clip.frames.min(frames + 1), true) * out.count() * coder.channels_out();
    values * device.ops.dtype().bytes()
}

/// Tiles that run at the same time. Only tiles of at most 128 pixels per side leave a device idle between layers (5% on
/// two cores); larger ones would only take more memory.
fn workers(lanes: usize, tiles: &Option<Vec<Tile>>, input: TileInput) -> usize {
    let small = if input == TileInput::Frames { 128 * 128 } else { 16 * 16 };
    match tiles.as_deref() {
        Some(tiles @ [first, ..]) if first.rows.len() * first.columns.len() <= small => lanes.min(tiles.len()),
        _ => 1,
    }
}
