//! What of a whole job's networks is on the device, and when.
//!
//! Autoencoder and transformer take turns on one piece of memory. Where all weights find place beside it, they stay. Where
//! they do not, there are two ways, and the one that takes less time by the plan's clock is chosen. *Together*: the
//! autoencoder stays and is given the room that it computes fastest in, where that is there; as many of the transformer's
//! layers as then fit stay too, and the others come from the host's memory behind the arithmetic. *Apart*: all weights wait
//! in the host's memory, and each network comes for its turn over a window of batches and has the whole budget.

mod fit;

use reseed::{Geometry, NetworkResidency, Networks, Settings, memory};
use reseed_model::dit::{Config, DitRequirements, DitWorkload, LayerPlacement};
use reseed_model::plan::{TileInput, padded_frames};
use reseed_model::{Coder, Vae};
use reseed_ops::{Cost, Hw, Thw, TraceReport};

use crate::args::PlanArgs;
use crate::budget::{self, Clip, Planned, SPARE};
use crate::engine::{self, Device};
use crate::failure::{Failure, Result};
use crate::model::Weights;
use crate::report::bytes;
pub use fit::BudgetReplanner;

/// Most batches of a window: what is lost of a job that is killed, and how late its first frames come, grow with it.
const WIDEST: usize = 64;
/// Bytes of the host's memory that the batches of a window may wait in.
const WAITING: usize = 1 << 30;
/// A window is wide enough when bringing weights for it takes this part of its time.
const BRINGING: u64 = 50;

/// Networks, devices and sizes of a job.
pub struct JobPlanner<'a> {
    pub weights: &'a Weights,
    /// The autoencoder's, or the decoder's alone.
    pub device: &'a Device,
    /// The transformer's.
    pub transformer: &'a Device,
    pub plan: PlanArgs,
    pub geometry: Geometry,
    /// Frames of a batch.
    pub batch: usize,
}

/// How the networks run within some room.
pub struct Schedule {
    /// The transformer.
    pub step: DitRequirements,
    /// Encoder and decoder over a batch.
    pub halves: Vec<Planned>,
}

impl Schedule {
    /// Bytes of the memory that all take turns on.
    pub fn bytes(&self) -> usize {
        self.halves.iter().map(Planned::bytes).max().unwrap_or(0).max(self.step.arena + SPARE)
    }

    /// Arithmetic and traffic of a batch.
    pub fn cost(&self) -> Cost {
        let mut cost = self.step.cost;
        self.halves.iter().for_each(|half| cost += half.cost());
        cost
    }

    /// Nanoseconds of a batch once its networks' weights are there.
    fn batch(&self) -> u64 {
        self.step.time + self.halves.iter().map(Planned::time).sum::<u64>()
    }

    /// Nanoseconds until weights are there that come for a window, as if none of that were hidden.
    fn bringing(&self) -> u64 {
        self.step.prefetch_time + self.halves.iter().map(|half| half.plan.prefetch_time).sum::<u64>()
    }

    fn is_inexact(&self) -> bool {
        self.halves.iter().any(Planned::is_inexact)
    }
}

/// Networks on their devices, and the job that they were brought for.
pub struct Loaded {
    pub networks: Networks,
    pub choice: JobPlan,
    geometry: Geometry,
    batch: usize,
}

/// How the networks of a job share its device.
pub struct JobPlan {
    pub between: NetworkResidency,
    pub turns: Schedule,
    /// Batches of a window.
    pub window: usize,
    /// Bytes of weights that stay on the device.
    pub kept: usize,
    /// Bytes of weights in the host's memory.
    pub hosted: usize,
}

impl JobPlan {
    /// Nanoseconds of a batch by the plan's clock, with its share of what comes for its window.
    pub fn time(&self) -> u64 {
        self.turns.batch() + self.turns.bringing() / self.window as u64
    }

    /// Whether the networks leave the device between their turns.
    pub fn is_apart(&self) -> bool {
        self.between == NetworkResidency::Host
    }

    /// Whether it is the one to take of two. A fiftieth of the time is not worth a window.
    fn better(&self, other: &JobPlan) -> bool {
        match (self.turns.is_inexact(), other.turns.is_inexact()) {
            (false, true) => true,
            (true, false) => false,
            _ => self.time() < other.time() - other.time() / 50,
        }
    }
}

impl<'a> JobPlanner<'a> {
    /// Both halves of the autoencoder over a batch.
    pub fn clips<'v>(&self, vae: &'v Vae) -> [Clip<'v>; 2] {
        let (config, latent) = (&vae.config, self.latent(vae));
        let frames = padded_frames(self.batch, config.temporal_factor());
        let encode = Clip { half: &vae.encoder, config, cut: TileInput::Frames, plane: self.padded(), frames };
        let plane = Hw::new(latent.h, latent.w);
        let decode = Clip { half: &vae.decoder, config, cut: TileInput::Latents, plane, frames: latent.t };
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

    /// The way that takes the least time in the room there is before anything is loaded.
    pub fn choose(&self) -> Result<JobPlan> {
        let Some(room) = (self.device.room)()? else {
            return self.planned(NetworkResidency::Device(usize::MAX), usize::MAX);
        };
        let together =
            self.staying(room)?.map(|layers| self.planned(NetworkResidency::Device(layers), room)).transpose();
        match together {
            Ok(Some(all)) if all.turns.step.resident == all.turns.step.layers => return Ok(all),
            Err(error) if !matches!(error, Failure::Memory(_)) => return Err(error),
            _ => {}
        }
        match (together, self.planned(NetworkResidency::Host, room)) {
            (Ok(Some(together)), Ok(apart)) if apart.better(&together) => Ok(apart),
            (Ok(Some(together)), _) => Ok(together),
            (_, apart) => apart,
        }
    }

    /// How many layers may stay, with the autoencoder as fast as it can be if that leaves room for any; `None` where not
    /// even the autoencoder may.
    fn staying(&self, room: usize) -> Result<Option<usize>> {
        let (vae, TraceReport { weights: vae_weights, .. }) = self.traced(NetworkResidency::Device(0))?;
        let fastest = budget::plan_within(self.device, &self.plan, &self.clips(&vae), usize::MAX)?;
        let fastest = fastest.iter().map(Planned::bytes).max().unwrap_or(0);
        let fits = |needs: &DitRequirements| {
            let weights = vae_weights + needs.weights;
            weights + roughly(weights) + fastest.max(needs.arena + SPARE) <= room
        };
        let case = self.case(&vae)?;
        if let Some(needs) = case.max_layers(&self.transformer.trace, LayerPlacement::Resident, fits)? {
            return Ok(Some(needs.resident));
        }
        let least = case.requirements(&(self.transformer.trace)(), LayerPlacement::Resident(0))?;
        Ok((vae_weights + least.weights + least.arena + SPARE <= room).then_some(0))
    }

    /// The autoencoder on a device that only counts, and what that counted.
    fn traced(&self, between: NetworkResidency) -> Result<(Vae, TraceReport)> {
        let trace = (self.device.trace)();
        let vae = match between {
            NetworkResidency::Device(_) => Vae::load(&trace, self.weights.vae())?,
            NetworkResidency::Host => Vae::load_offloaded(&trace, self.weights.vae())?,
        };
        Ok((vae, trace.report()))
    }

    /// What is kept where in `room` for everything.
    fn planned(&self, between: NetworkResidency, room: usize) -> Result<JobPlan> {
        let (vae, report) = self.traced(between)?;
        let layers = match between {
            NetworkResidency::Device(layers) => LayerPlacement::Resident(layers),
            NetworkResidency::Host => LayerPlacement::Prefetched(0),
        };
        let kept = report.weights + self.case(&vae)?.requirements(&(self.transformer.trace)(), layers)?.weights;
        let left = if room == usize::MAX { room } else { room.saturating_sub(kept + roughly(kept)) };
        let turns = self.turns(&vae, between, &self.plan, left)?;
        let (window, hosted) = (self.window(&turns), report.hosted + turns.step.host_weights);
        Ok(JobPlan { between, turns, window, kept, hosted })
    }

    /// How the networks run in `room` for all but the weights that stay on the device.
    fn turns(&self, vae: &Vae, between: NetworkResidency, plan: &PlanArgs, room: usize) -> Result<Schedule> {
        let (case, trace) = (self.case(vae)?, &self.transformer.trace);
        let fits = |needs: &DitRequirements| needs.arena + SPARE <= room;
        let step = match between {
            NetworkResidency::Device(layers) => {
                Some(case.requirements(&trace(), LayerPlacement::Resident(layers))?).filter(fits)
            }
            NetworkResidency::Host => case.max_layers(trace, LayerPlacement::Prefetched, fits)?,
        };
        let Some(step) = step else {
            let least = case.requirements(&trace(), LayerPlacement::Prefetched(0))?.arena + SPARE;
            return Err(Failure::Memory(format!(
                "{}: {} for the model, {} needed at the least; raise --max-vram or use smaller pictures or batches",
                self.device.ops.name(),
                bytes(room),
                bytes(least),
            )));
        };
        Ok(Schedule { step, halves: budget::plan_within(self.device, plan, &self.clips(vae), room)? })
    }

    /// The fewest batches over which bringing weights hardly matters, as far as they find place on the host.
    fn window(&self, turns: &Schedule) -> usize {
        let most = (WAITING / memory::of_waiting(self.batch, &self.geometry).max(1)).clamp(1, WIDEST);
        let windows = std::iter::successors(Some(1), |n| Some(2 * n));
        let enough = |n: &usize| turns.bringing() / *n as u64 <= turns.batch() / BRINGING || *n >= most;
        windows.into_iter().find(enough).unwrap_or(1).min(most)
    }

    /// The same behind another job with this model: its networks serve again where it was like this one, and wherever
    /// memory has no limit and every plan leaves them where they are.
    pub fn choose_behind(&self, last: Option<Loaded>) -> Result<(JobPlan, Option<Networks>)> {
        match last {
            Some(last) if (&last.geometry, last.batch) == (&self.geometry, self.batch) => {
                Ok((last.choice, Some(last.networks)))
            }
            Some(last) if (self.device.room)()?.is_none() => Ok((self.choose()?, Some(last.networks))),
            other => {
                drop(other);
                Ok((self.choose()?, None))
            }
        }
    }

    /// The networks as `choice` says, unless they are there already, how they run, and the settings that say so. Where
    /// others take the memory meanwhile, another way is chosen.
    pub fn load(&self, mut choice: JobPlan, mut there: Option<Networks>, settings: &mut Settings) -> Result<Loaded> {
        for _ in 0..budget::TRIES {
            let loaded = match there.take() {
                Some(networks) => self.take_up(networks, choice),
                None => self.bring(choice),
            };
            match loaded {
                Ok((choice, networks)) => {
                    choice.turns.halves.iter().for_each(Planned::tell);
                    fit::write(&choice, settings);
                    return Ok(Loaded { networks, choice, geometry: self.geometry.clone(), batch: self.batch });
                }
                Err(Failure::Memory(_)) => choice = self.choose()?,
                Err(error) => return Err(error),
            }
        }
        Err(budget::taken_away(self.device))
    }

    /// Loads the networks, plans them for the room that is left, and takes that.
    fn bring(&self, choice: JobPlan) -> Result<(JobPlan, Networks)> {
        let halves = [&*engine::encoder(self.device, self.transformer).ops, &*self.device.ops];
        let networks = self.weights.load(halves, &*self.transformer.ops, choice.between)?;
        let Some(room) = (self.device.room)()? else { return Ok((choice, networks)) };
        let turns = self.turns(networks.vae(), choice.between, &self.plan, room)?;
        self.take_up(networks, JobPlan { turns, ..choice })
    }

    /// Takes the room that loaded networks are planned for.
    fn take_up(&self, networks: Networks, choice: JobPlan) -> Result<(JobPlan, Networks)> {
        self.device.ops.reserve(choice.turns.bytes())?;
        Ok((choice, networks))
    }
}

/// A little more, for what is counted only roughly.
fn roughly(weights: usize) -> usize {
    weights / 64
}
