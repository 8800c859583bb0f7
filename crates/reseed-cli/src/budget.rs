//! How a clip runs within the memory there is.

use reseed_model::plan::{CachePlan, Tile, TileInput, Tiling, padded_frames, padded_plane};
use reseed_model::planner::{CoderPlan, CoderPlanner};
use reseed_model::{Coder, Config, Stream};
use reseed_ops::{Cost, Error, Hw};

use crate::args::{Direction, PlanArgs};
use crate::engine::{self, Device};
use crate::failure::{Failure, Result};
use crate::report::{bytes, warn};

/// What the plan takes is taken with this much to spare, for workspace that the plan counts only roughly.
pub const SPARE: usize = 16 << 20;
/// How often a plan is made anew when someone else takes the memory in the meantime.
pub const TRIES: usize = 5;
/// Nothing that cannot have so much is worth going on with.
pub const SMALLEST: usize = 64 << 20;
/// Most latent frames of a slice that a plan chooses.
const LONGEST: usize = 2;
/// Tiles of the last resort, in pixels.
const TILES: [usize; 4] = [768, 512, 384, 256];

/// One half of the VAE over a clip: what is known of the clip before it runs.
#[derive(Clone, Copy)]
pub struct Clip<'a> {
    pub half: &'a dyn Coder,
    pub config: &'a Config,
    pub cut: TileInput,
    /// Plane of the half's input.
    pub plane: Hw,
    /// Frames of the half's input, or some number of them that stands for many.
    pub frames: usize,
}

impl<'a> Clip<'a> {
    /// A half over `pictures` pictures of `size` or as many and as large as the model wants, or over their latents.
    pub fn of(direction: Direction, half: &'a dyn Coder, config: &'a Config, size: Hw, pictures: usize) -> Clip<'a> {
        let (time, factor) = (config.temporal_factor(), config.spatial_factor());
        let (pictures, padded) = (padded_frames(pictures, time), padded_plane(size, factor));
        let (cut, plane, frames) = match direction {
            Direction::Encode => (TileInput::Frames, padded, pictures),
            Direction::Decode => {
                (TileInput::Latents, Hw::new(padded.h / factor, padded.w / factor), 1 + (pictures - 1) / time)
            }
        };
        Clip { half, config, cut, plane, frames }
    }
}

/// How it runs.
pub struct Planned {
    pub plan: CoderPlan,
    pub tiling: Option<Tiling>,
    pub tiles: Option<Vec<Tile>>,
    pub workers: usize,
    factor: usize,
    frames: usize,
    /// Why it is not exact, where nobody asked for tiles.
    inexact: Option<String>,
}

impl Planned {
    /// Frames of a slice of the half's input.
    pub fn step(&self) -> usize {
        self.plan.slice * self.factor
    }

    /// Bytes that it takes of the device.
    pub fn bytes(&self) -> usize {
        self.plan.report.arena + SPARE
    }

    /// Whether tiles were the only way.
    pub fn is_inexact(&self) -> bool {
        self.inexact.is_some()
    }

    /// Warns where tiles were the only way.
    pub fn tell(&self) {
        self.inexact.iter().for_each(|line| warn(line));
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

    /// The plan ran a tile's first slices and its last, which stand for all.
    fn of_clip(&self, seen: u64) -> u64 {
        let tiles = self.tiles.as_ref().map_or(1, Vec::len);
        (u128::from(seen) * (self.frames * tiles) as u128 / self.plan.traced_frames.max(1) as u128) as u64
    }

    /// A stream that starts.
    pub fn stream<'a>(&self, ops: &'a dyn reseed_ops::Device, half: &'a dyn Coder, plane: Hw) -> Stream<'a> {
        Stream::new(ops, half, plane, &self.plan.cache_plan).tiled(self.tiles.clone(), self.workers)
    }
}

/// Plans that fit at the same time, with slices of one length and their memory taken.
pub fn reserve(device: &Device, args: &PlanArgs, clips: &[Clip]) -> Result<Vec<Planned>> {
    for _ in 0..TRIES {
        let planned = plan(device, args, clips)?;
        match device.ops.reserve(planned.iter().map(Planned::bytes).sum()) {
            // Someone else took the memory: there is less room now, and the next plan is smaller.
            Err(Error::OutOfMemory { .. }) => continue,
            done => done?,
        }
        return Ok(planned);
    }
    Err(taken_away(device))
}

/// Why nothing more is tried.
pub fn taken_away(device: &Device) -> Failure {
    Failure::Memory(format!("{}: its memory is taken away as fast as it is planned for", device.ops.name()))
}

/// A plan with the same slices that takes less than `planned`, which it replaces, its memory taken; nothing where there is
/// none. The device holds no tensor.
pub fn shrink(device: &Device, args: &PlanArgs, clip: &Clip, planned: &mut Planned) -> Option<CachePlan> {
    while planned.plan.report.arena > SMALLEST {
        let room = (device.room)().ok()??.min(planned.plan.report.arena / 8 * 7);
        let smaller = fitting(device, args, clip, Some(planned.plan.slice), room).ok()?;
        if smaller.tiles.is_some() != planned.tiles.is_some() {
            return None;
        }
        *planned = smaller;
        let taken = planned.bytes();
        if device.ops.reserve(taken).is_ok() {
            warn(&format!("{}: less memory than there was: going on with {}", device.ops.name(), bytes(taken)));
            return Some(planned.plan.cache_plan.clone());
        }
    }
    None
}

/// Plans that fit at the same time, with slices of one length.
pub fn plan(device: &Device, args: &PlanArgs, clips: &[Clip]) -> Result<Vec<Planned>> {
    let room = (device.room)()?.map_or(usize::MAX, |room| room / clips.len());
    let planned = plan_within(device, args, clips, room)?;
    planned.iter().for_each(Planned::tell);
    Ok(planned)
}

/// Plans that take at most `room` each, with slices of one length.
pub fn plan_within(device: &Device, args: &PlanArgs, clips: &[Clip], room: usize) -> Result<Vec<Planned>> {
    let slice = args.slice.map(usize::from).or(device.slice);
    let each = |slice| clips.iter().map(|clip| fitting(device, args, clip, slice, room)).collect::<Result<Vec<_>>>();
    let planned = each(slice)?;
    let shortest = planned.iter().map(|p| p.plan.slice).min();
    match planned.iter().all(|p| Some(p.plan.slice) == shortest) {
        true => Ok(planned),
        false => each(shortest),
    }
}

/// The plan of one clip that takes at most `room`; in tiles where nothing exact does.
fn fitting(device: &Device, args: &PlanArgs, clip: &Clip, slice: Option<usize>, room: usize) -> Result<Planned> {
    let tiling = engine::tiling(args, clip.config)?;
    let tensors = room.saturating_sub(SPARE);
    let fits = |planned: &Planned| planned.plan.report.arena <= tensors || room == usize::MAX;
    let exact = planned(device, clip, tiling, slice, tensors)?;
    if fits(&exact) {
        return Ok(exact);
    }
    let short = format!("{} for tensors, {} needed at the least", bytes(room), bytes(exact.plan.report.arena + SPARE));
    for side in TILES.into_iter().filter(|_| tiling.is_none()) {
        let tiling = Tiling { tile: Hw::new(side, side), overlap: Hw::new(side / 8, side / 8) };
        let tiled = planned(device, clip, Some(tiling), slice, tensors)?;
        if tiled.tiles.is_some() && fits(&tiled) {
            let inexact = Some(format!("{short}: running in tiles of {side}x{side}, which is not exact"));
            return Ok(Planned { inexact, ..tiled });
        }
    }
    Err(Failure::Memory(format!("{}: {short}; raise --max-vram or use smaller pictures", device.ops.name())))
}

fn planned(device: &Device, clip: &Clip, tiling: Option<Tiling>, slice: Option<usize>, room: usize) -> Result<Planned> {
    let Clip { half, config, cut, plane, frames } = *clip;
    let tiles = tiling.and_then(|tiling| tiling.tiles(cut, plane, config.spatial_factor()));
    let workers = workers(device.lanes, &tiles, cut);
    let factor = if cut == TileInput::Frames { config.temporal_factor() } else { 1 };
    let area = |tile: &Tile| Hw::new(tile.rows.len(), tile.columns.len());
    let plane = tiles.iter().flatten().map(area).max_by_key(|area| area.count()).unwrap_or(plane);
    let job = CoderPlanner { coder: half, temporal_factor: factor, plane, frames };
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
    Ok(Planned { plan, tiling, tiles, workers, factor, frames, inexact: None })
}

/// Bytes of what tiles of a slice of so many frames are put together on.
fn canvas(device: &Device, clip: &Clip, frames: usize) -> usize {
    let (half, out) = (clip.half, clip.half.plane_out(clip.plane));
    let values = half.frames_out(clip.frames.min(frames + 1), true) * out.count() * half.channels_out();
    values * device.ops.dtype().bytes()
}

/// How many tiles run at the same time. Only tiles of at most 128 pixels a side leave a device idle between their layers
/// (5% on two cores); larger ones would but take more memory.
fn workers(lanes: usize, tiles: &Option<Vec<Tile>>, cut: TileInput) -> usize {
    let small = if cut == TileInput::Frames { 128 * 128 } else { 16 * 16 };
    match tiles.as_deref() {
        Some(tiles @ [first, ..]) if first.rows.len() * first.columns.len() <= small => lanes.min(tiles.len()),
        _ => 1,
    }
}
