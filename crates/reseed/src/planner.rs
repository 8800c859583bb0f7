//! Where the networks of a job are, and when.
//!
//! VAE and transformer take turns on one arena. Where all weights fit beside it, they stay on the device. Where they do
//! not, there are two ways, and the planner takes the faster one by the speed model. *Resident*: the VAE stays and gets
//! the memory in which it is fastest, where that fits; as many layers of the transformer as then fit stay too, and the
//! others are streamed from host memory while the device computes. *Offloaded*: all weights are in host memory, and
//! each network is prefetched for its turn over a window of batches and has the whole budget.

pub mod clip;
mod loaded;
mod replanner;

use reseed_model::dit::{Config, DitRequirements, DitWorkload, LayerPlacement};
use reseed_model::plan::{TileInput, padded_frames};
use reseed_model::{Coder, Vae};
use reseed_ops::{Cost, Hw, Thw, TraceReport};

use crate::devices::Devices;
use crate::error::{Error, Kind, Result};
use crate::memory;
use crate::models::weights::Weights;
use crate::networks::NetworkResidency;
use crate::observer::Warning;
use crate::run_plan::{RunPlan, VaePlan};
use crate::settings::VaeSettings;
use crate::size::Geometry;
use clip::{ClipPlan, CoderClip, MARGIN};
pub use loaded::{Loaded, Planned, load_lanes, plan_lanes};
pub use replanner::BudgetReplanner;

/// Most batches of a window: the work that a killed job loses and the delay of the first frames grow with it.
const WIDEST: usize = 64;
/// Bytes of host memory for the waiting batches of a window.
const WAITING: usize = 1 << 30;
/// A window is wide enough when prefetching weights takes this part of its time.
const PREFETCHING: u64 = 50;

/// The networks, devices and sizes of a job.
pub struct JobPlanner<'a> {
    /// The model.
    pub weights: &'a Weights,
    /// Its devices.
    pub devices: &'a Devices,
    /// What the user chose for the VAE.
    pub vae: VaeSettings,
    /// The sizes.
    pub geometry: Geometry,
    /// Frames of a batch.
    pub batch: usize,
    /// The work on finished frames, for which memory is allocated already.
    pub frames: FrameMemory,
}

/// Memory of the first device for the work on finished frames.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FrameMemory {
    /// Bytes that the work needs there.
    pub bytes: usize,
    /// Whether the device does the work. Otherwise the host does it, and nothing is allocated.
    pub on_device: bool,
}

/// How the networks run within a budget.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// The transformer.
    step: DitRequirements,
    /// Encoder and decoder over a batch.
    coders: Vec<ClipPlan>,
}

impl Schedule {
    /// Bytes of the arena that all networks use in turn.
    fn bytes(&self) -> usize {
        self.coders.iter().map(ClipPlan::bytes).max().unwrap_or(0).max(self.step.arena + MARGIN)
    }

    /// Nanoseconds of a batch when the weights of its networks are on the device.
    fn batch(&self) -> u64 {
        self.step.time + self.coders.iter().map(ClipPlan::time).sum::<u64>()
    }

    /// Nanoseconds to prefetch the weights of a window, as if nothing hid them.
    fn prefetching(&self) -> u64 {
        self.step.prefetch_time + self.coders.iter().map(|coder| coder.plan.prefetch_time).sum::<u64>()
    }

    fn is_inexact(&self) -> bool {
        self.coders.iter().any(|coder| coder.warning().is_some())
    }

    /// Layers that are prefetched for a window.
    fn prefetched_layers(&self, residency: NetworkResidency) -> usize {
        if residency == NetworkResidency::Host { self.step.resident } else { 0 }
    }

    fn vae_plan(&self) -> VaePlan {
        let [encode, decode] = &self.coders[..] else { unreachable!("a VAE has an encoder and a decoder") };
        VaePlan {
            slice: encode.plan.slice,
            encode: encode.plan.cache_plan.clone(),
            decode: decode.plan.cache_plan.clone(),
            encode_tiling: encode.tiling,
            decode_tiling: decode.tiling,
            workers: 1,
        }
    }
}

/// What the planner decided for a job: slices, tiles, and the place of weights and layers.
#[derive(Clone, Debug)]
pub struct JobPlan {
    residency: NetworkResidency,
    schedule: Schedule,
    window: usize,
    weights: usize,
    host: usize,
}

impl JobPlan {
    /// Layers of the transformer.
    pub fn layers(&self) -> usize {
        self.schedule.step.layers
    }

    /// Layers that are on the device during the transformer's turn; the others are streamed from host memory.
    pub fn resident_layers(&self) -> usize {
        self.schedule.step.resident
    }

    /// Batches that one network computes before the next one takes its turn.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Whether the networks leave the device between their turns.
    pub fn networks_offloaded(&self) -> bool {
        self.residency == NetworkResidency::Host
    }

    /// Latent frames per slice of the VAE.
    pub fn slice(&self) -> usize {
        self.schedule.coders[0].plan.slice
    }

    /// Whether spatial tiles make the result approximate although nobody chose them.
    pub fn is_inexact(&self) -> bool {
        self.schedule.is_inexact()
    }

    /// Bytes of weights that stay on the device.
    pub fn weights_bytes(&self) -> usize {
        self.weights
    }

    /// Bytes of weights in host memory.
    pub fn host_bytes(&self) -> usize {
        self.host
    }

    /// Bytes of the arena that the networks use in turn.
    pub fn arena_bytes(&self) -> usize {
        self.schedule.bytes()
    }

    /// Estimated seconds of a batch, with its share of the prefetching for its window.
    pub fn batch_seconds(&self) -> f64 {
        self.time() as f64 / 1e9
    }

    /// Estimated seconds of the transformer's step, and of its waits for layers.
    pub fn step_seconds(&self) -> [f64; 2] {
        [self.schedule.step.time, self.schedule.step.waited].map(|nanoseconds| nanoseconds as f64 / 1e9)
    }

    /// Arithmetic and traffic of a batch.
    pub(crate) fn cost(&self) -> Cost {
        let mut cost = self.schedule.step.cost;
        self.schedule.coders.iter().for_each(|coder| cost += coder.cost());
        cost
    }

    /// The part that the pipeline sees.
    pub(crate) fn run_plan(&self) -> RunPlan {
        let layers = self.schedule.prefetched_layers(self.residency);
        RunPlan { vae: self.schedule.vae_plan(), window: self.window, layers }
    }

    /// Why the plan is approximate.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.schedule.coders.iter().filter_map(ClipPlan::warning)
    }

    fn time(&self) -> u64 {
        self.schedule.batch() + self.schedule.prefetching() / self.window as u64
    }

    /// Whether it is the one to take of two. A fiftieth of the time is not worth a window.
    fn is_better_than(&self, other: &JobPlan) -> bool {
        match (self.is_inexact(), other.is_inexact()) {
            (false, true) => true,
            (true, false) => false,
            _ => self.time() < other.time() - other.time() / 50,
        }
    }
}

impl JobPlanner<'_> {
    /// The fastest plan for the memory that is free before anything is loaded.
    pub fn plan(&self) -> Result<JobPlan> {
        let Some(room) = (self.devices.vae.room)()? else {
            return self.plan_for(NetworkResidency::Device(usize::MAX), usize::MAX);
        };
        let resident =
            self.resident_layers(room)?.map(|layers| self.plan_for(NetworkResidency::Device(layers), room)).transpose();
        match resident {
            Ok(Some(all)) if all.resident_layers() == all.layers() => return Ok(all),
            Err(error) if error.kind() != Kind::Memory => return Err(error),
            _ => {}
        }
        match (resident, self.plan_for(NetworkResidency::Host, room)) {
            (Ok(Some(resident)), Ok(offloaded)) if offloaded.is_better_than(&resident) => Ok(offloaded),
            (Ok(Some(resident)), _) => Ok(resident),
            (_, offloaded) => offloaded,
        }
    }

    /// Layers that can stay, with the VAE as fast as possible if that leaves room for any; `None` where not even the
    /// VAE can stay.
    fn resident_layers(&self, room: usize) -> Result<Option<usize>> {
        let (vae, TraceReport { weights: vae_weights, .. }) = self.traced(NetworkResidency::Device(0))?;
        let fastest = clip::plan_within(&self.devices.vae, &self.vae, &self.clips(&vae), usize::MAX)?;
        let fastest = fastest.iter().map(ClipPlan::bytes).max().unwrap_or(0);
        let fits = |needs: &DitRequirements| {
            let weights = vae_weights + needs.weights;
            weights + fragmentation(weights) + fastest.max(needs.arena + MARGIN) <= room
        };
        let (case, trace) = (self.case(&vae)?, &self.devices.transformer().trace);
        if let Some(needs) = case.max_layers(trace, LayerPlacement::Resident, fits)? {
            return Ok(Some(needs.resident));
        }
        let least = case.requirements(&trace(), LayerPlacement::Resident(0))?;
        Ok((vae_weights + least.weights + least.arena + MARGIN <= room).then_some(0))
    }

    /// The VAE on a tracing device, and its report.
    fn traced(&self, residency: NetworkResidency) -> Result<(Vae, TraceReport)> {
        let trace = (self.devices.vae.trace)();
        let vae = match residency {
            NetworkResidency::Device(_) => Vae::load(&trace, self.weights.vae())?,
            NetworkResidency::Host => Vae::load_offloaded(&trace, self.weights.vae())?,
        };
        Ok((vae, trace.report()))
    }

    /// The plan with this residency and `room` bytes for everything.
    fn plan_for(&self, residency: NetworkResidency, room: usize) -> Result<JobPlan> {
        let (vae, report) = self.traced(residency)?;
        let layers = match residency {
            NetworkResidency::Device(layers) => LayerPlacement::Resident(layers),
            NetworkResidency::Host => LayerPlacement::Prefetched(0),
        };
        let trace = &self.devices.transformer().trace;
        let weights = report.weights + self.case(&vae)?.requirements(&trace(), layers)?.weights;
        let left = if room == usize::MAX { room } else { room.saturating_sub(weights + fragmentation(weights)) };
        let schedule = self.schedule(&vae, residency, &self.vae, left)?;
        let (window, host) = (self.window(&schedule), report.hosted + schedule.step.host_weights);
        let plan = JobPlan { residency, schedule, window, weights, host };
        tracing::debug!(?residency, room, seconds = plan.batch_seconds(), window, "planned");
        Ok(plan)
    }

    /// How the networks run in `room` bytes beside the weights that stay on the device.
    fn schedule(&self, vae: &Vae, residency: NetworkResidency, chosen: &VaeSettings, room: usize) -> Result<Schedule> {
        let (case, trace) = (self.case(vae)?, &self.devices.transformer().trace);
        let fits = |needs: &DitRequirements| needs.arena + MARGIN <= room;
        let step = match residency {
            NetworkResidency::Device(layers) => {
                Some(case.requirements(&trace(), LayerPlacement::Resident(layers))?).filter(fits)
            }
            NetworkResidency::Host => case.max_layers(trace, LayerPlacement::Prefetched, fits)?,
        };
        let device = &self.devices.vae;
        let Some(step) = step else {
            let needed = case.requirements(&trace(), LayerPlacement::Prefetched(0))?.arena + MARGIN;
            let device = device.ops.name();
            return Err(Error::OverBudget { device, what: "the model", available: room, needed });
        };
        Ok(Schedule { step, coders: clip::plan_within(device, chosen, &self.clips(vae), room)? })
    }

    /// The fewest batches over which prefetching weights hardly matters, as far as they fit into host memory.
    fn window(&self, schedule: &Schedule) -> usize {
        let most = (WAITING / memory::of_waiting(self.batch, &self.geometry).max(1)).clamp(1, WIDEST);
        let windows = std::iter::successors(Some(1), |n| Some(2 * n));
        let enough = |n: &usize| schedule.prefetching() / *n as u64 <= schedule.batch() / PREFETCHING || *n >= most;
        windows.into_iter().find(enough).unwrap_or(1).min(most)
    }

    /// Encoder and decoder over a batch.
    fn clips<'v>(&self, vae: &'v Vae) -> [CoderClip<'v>; 2] {
        let (config, latent) = (&vae.config, self.latent(vae));
        let frames = padded_frames(self.batch, config.temporal_factor());
        let encode = CoderClip { coder: &vae.encoder, config, input: TileInput::Frames, plane: self.padded(), frames };
        let plane = Hw::new(latent.h, latent.w);
        let decode = CoderClip { coder: &vae.decoder, config, input: TileInput::Latents, plane, frames: latent.t };
        [encode, decode]
    }

    fn padded(&self) -> Hw {
        Hw::new(self.geometry.padded.h, self.geometry.padded.w)
    }

    /// Extent of a batch's latent.
    fn latent(&self, vae: &Vae) -> Thw {
        let plane = vae.encoder.plane_out(self.padded());
        let frames = padded_frames(self.batch, vae.config.temporal_factor());
        Thw::new(vae.encoder.frames_out(frames, true), plane.h, plane.w)
    }

    fn case(&self, vae: &Vae) -> Result<DitWorkload<'_>> {
        let source = self.weights.dit();
        let text = self.weights.text(Config::detect(source)?.text_width)?;
        Ok(DitWorkload { source, latent: self.latent(vae), text_tokens: text.shape.dims()[0] })
    }
}

/// Memory that allocations of weights lose to alignment.
fn fragmentation(weights: usize) -> usize {
    weights / 64
}
