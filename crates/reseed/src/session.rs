//! A model on its devices, from one job to the next.

#[cfg(feature = "cuda")]
mod arrays;
mod builder;
mod clip_estimate;
mod coder;
mod estimate;
mod extend;
mod frame_work;
mod frames;
mod residency;
mod roundtrip;
mod tensor_clip;
mod tensor_file;
mod vae;
#[cfg(feature = "cuda")]
mod vae_on_gpu;

use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reseed_media::{Info, Sink, Source};
use reseed_ops::{Device, DeviceResult, Precision, ProfileOps};

use crate::batch_store::BatchStore;
use crate::checkpoint::{Checkpoint, Recorder};
use crate::color::Color;
use crate::devices::{self, ComputeOptions, Devices, Gpu};
use crate::error::Result;
use crate::fallback::{Fallback, VaeFallback};
use crate::low_band::ModelLowBand;
use crate::memory;
use crate::models::weights::{Parts, Weights};
use crate::observer::{Event, Observer, Warning};
use crate::part::ClipInput;
use crate::planner::{self, BudgetReplanner, FrameMemory, JobPlanner, Loaded};
use crate::report::{Profile, Report};
use crate::run_plan::Replanner;
use crate::settings::Settings;
use crate::step::{Model, Step};
use crate::upscaler::{Lane, Upscaler};
pub use builder::{Budget, Builder};
pub use clip_estimate::ClipEstimate;
pub use coder::load_coder;
pub use estimate::{ClusterEstimate, Estimate};
use frame_work::FrameWork;
pub(crate) use frames::FrameCollector;
pub use residency::Held;
pub use roundtrip::Roundtrip;
pub use tensor_clip::TensorClip;
pub use vae::{EncodedClip, Vae};
#[cfg(feature = "cuda")]
pub use vae_on_gpu::{DeviceFrames, DeviceLatent};

/// The model without networks: frames are resized and keep their content.
pub(crate) const IDENTITY: &str = "identity";

/// A model on its devices. Loaded networks are used again by later jobs. Jobs of one session run one after the other.
///
/// ```
/// use reseed::{Session, Settings, Target};
///
/// let session = Session::builder().model("formula:tiny").device("cpu").threads(1).open()?;
/// let mut clip = reseed::media::sample();
/// let settings = Settings { target: Target::Scale(1.5), ..Settings::default() };
///
/// let estimate = session.estimate(clip.info(), &settings)?;
/// assert_eq!(estimate.batches, 2);
///
/// # let folder = temp_dir::TempDir::new()?;
/// # let output = folder.path().join("large.y4m");
/// let sink = reseed::media::create(&output, &settings.output(clip.info())?)?;
/// let report = session.upscale(&mut *clip, sink, &settings, &mut ())?;
/// assert_eq!(report.frames, 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session {
    model: String,
    /// The names of the devices; not empty.
    devices: Vec<String>,
    options: ComputeOptions,
    /// None for a model without networks.
    weights: Option<Weights>,
    state: Mutex<State>,
    /// For their memory; outside of the state, which a running job locks.
    gpus: Mutex<Vec<Gpu>>,
    held: Mutex<Held>,
}

/// What jobs leave to the next.
#[derive(Default)]
struct State {
    /// The networks of each lane, dropped before their devices.
    loaded: Vec<Loaded>,
    lanes: Lanes,
}

/// The devices of a session: one or more that compute in the same way.
type Lanes = Vec<Arc<Devices>>;

impl Session {
    /// Settings of a session, all with defaults: the embedded model on the GPU where there is one, else on the CPU.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn open(model: String, parts: &Parts, devices: Vec<String>, options: ComputeOptions) -> Result<Session> {
        let weights = if model == IDENTITY { None } else { Some(Weights::open_with(&model, parts)?) };
        let (state, gpus, held) = (Mutex::default(), Mutex::default(), Mutex::default());
        let session = Session { model, devices, options, weights, state, gpus, held };
        session.lanes(&mut session.lock())?;
        Ok(session)
    }

    /// The name of the model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The device of the VAE, in words, and how many there are.
    pub fn device(&self) -> Result<String> {
        let name = self.first_lane()?.vae.ops.name();
        Ok(if self.devices.len() > 1 { format!("{} x {name}", self.devices.len()) } else { name })
    }

    /// The type of the VAE's activations.
    pub fn precision(&self) -> Result<Precision> {
        Ok(self.first_lane()?.vae.ops.precision())
    }

    /// Most bytes of GPU memory that were allocated at once on a device, with the driver's own.
    pub fn gpu_bytes(&self) -> Option<usize> {
        self.gpus.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Gpu::peak_bytes).max()
    }

    /// Remarks of the devices.
    pub fn warnings(&self) -> Result<Vec<Warning>> {
        Ok(self.first_lane()?.vae.warnings.iter().cloned().map(Warning::Device).collect())
    }

    /// Restores and upscales every frame of `source` into `sink`, which is finished after the last one. After an error
    /// the sink is dropped unfinished, which removes its files.
    pub fn upscale(
        &self,
        source: &mut dyn Source,
        sink: Box<dyn Sink>,
        settings: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<Report> {
        self.execute(source, settings, &mut Plain(Some(sink)), observer)
    }

    /// The low band that the model asks for, and its range limit.
    pub(crate) fn low_band(&self) -> Result<ModelLowBand> {
        self.weights.as_ref().map_or(Ok(ModelLowBand::NONE), Weights::low_band)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first_lane(&self) -> Result<Arc<Devices>> {
        Ok(self.lanes(&mut self.lock())?.swap_remove(0))
    }

    /// The devices, which are opened where they are not open.
    fn lanes(&self, state: &mut State) -> Result<Lanes> {
        if !state.lanes.is_empty() {
            return Ok(state.lanes.clone());
        }
        let gpus = || self.gpus.lock().unwrap_or_else(PoisonError::into_inner);
        gpus().clear();
        let mixed = self.weights.as_ref().is_some_and(Weights::decodes_in_f32);
        let lanes: Lanes =
            devices::open_lanes(&self.devices, &self.options, mixed)?.into_iter().map(Arc::new).collect();
        gpus().extend(lanes.iter().filter_map(|devices| devices.vae.gpu.clone()));
        state.lanes = lanes.clone();
        Ok(lanes)
    }

    /// The settings with what the model asks for where nothing was chosen. A low band already gives the result the
    /// colours of the input.
    pub(crate) fn resolved(&self, settings: &Settings) -> Result<Settings> {
        settings.check()?;
        settings.noise.open()?;
        let own = self.low_band()?;
        let color = settings.color.unwrap_or(if own.is_some() { Color::None } else { Color::default() });
        let batching = settings.batching_with(self.weights.is_some());
        Ok(Settings { color: Some(color), batching, ..settings.clone() })
    }

    fn planner<'a>(
        &'a self,
        devices: &'a Devices,
        settings: &Settings,
        input: &Info,
    ) -> Result<Option<JobPlanner<'a>>> {
        let Some(weights) = &self.weights else { return Ok(None) };
        let (vae, geometry, batch) = (settings.vae, settings.geometry(input)?, settings.batching.size);
        Ok(Some(JobPlanner { weights, devices, vae, geometry, batch, frames: FrameMemory::default() }))
    }

    /// What computes the batches whose values leave the range of f16, unless a type was chosen.
    fn fallbacks<'a>(&self, planners: &[JobPlanner<'a>]) -> Result<Vec<Option<VaeFallback<'a>>>> {
        let fallback = |planner: &JobPlanner<'a>| {
            let ops = match self.options.dtype {
                Some(_) => None,
                None => planner.devices.with_wider_range(&self.options)?,
            };
            Ok(ops.map(|ops| VaeFallback::new(ops, planner.weights.vae())))
        };
        planners.iter().map(fallback).collect()
    }

    /// What results depend on beside the settings.
    fn environment(&self, devices: &Devices) -> Environment {
        let values = vec![
            ("device", devices.vae.class.clone()),
            ("dtype", devices.vae.ops.precision().to_string()),
            ("transformer dtype", devices.transformer().ops.precision().to_string()),
            ("precision", devices.vae.ops.math_mode().to_string()),
            ("tuning", self.options.tune.to_string()),
            ("version", env!("CARGO_PKG_VERSION").into()),
        ];
        let files = self.weights.iter().flat_map(Weights::files).map(|(name, path)| (name, path.into())).collect();
        let embedded = self.weights.as_ref().map(Weights::embedded).unwrap_or_default();
        Environment { model: self.model.clone(), values, files, embedded }
    }

    /// Runs a job. Errors that are quickly found are found before the networks are loaded.
    pub(crate) fn execute(
        &self,
        source: &mut dyn Source,
        settings: &Settings,
        output: &mut dyn Output,
        observer: &mut dyn Observer,
    ) -> Result<Report> {
        self.execute_with(ClipInput::Whole(source), settings, output, (observer, None))
    }

    /// The same on a whole clip or a part of one, and with another step in place of the transformer.
    pub(crate) fn execute_with(
        &self,
        source: ClipInput,
        settings: &Settings,
        output: &mut dyn Output,
        (observer, step): (&mut dyn Observer, Option<&dyn Step>),
    ) -> Result<Report> {
        let (settings, mut state) = (self.resolved(settings)?, self.lock());
        let info = settings.output(source.info())?;
        let lanes = self.lanes(&mut state)?;
        let geometry = settings.geometry(source.info())?;
        if geometry.shrinks() {
            let warning = Warning::Shrinks { from: geometry.input, to: geometry.output };
            observer.event(&Event::Warning(warning));
        }
        let planners = lanes.iter().filter_map(|devices| self.planner(devices, &settings, source.info()).transpose());
        let mut planners: Vec<JobPlanner> = planners.collect::<Result<_>>()?;
        self.set_held(Held::default());
        let each: Vec<&Devices> = lanes.iter().map(|devices| &**devices).collect();
        let mut frames = self.frame_work(&each, &settings, (source.info(), &mut state.loaded))?;
        let planned = frames.plan(&mut planners, std::mem::take(&mut state.loaded))?;
        let sink = output.open(&info, &self.environment(&lanes[0]))?;
        let networks_reused = planned.first().is_some_and(|(_, networks)| networks.is_some());
        let pinned = output.is_pinned();
        let loaded = planner::load_lanes(&planners, planned, pinned)?;
        let plan = loaded.first().map(|loaded| loaded.plan.clone());
        let warnings = plan.iter().flat_map(|plan| plan.warnings().cloned());
        warnings.for_each(|warning| observer.event(&Event::Warning(warning)));
        let run_plan = plan.as_ref().map(|plan| plan.run_plan()).unwrap_or_default();
        let from = output.start(&format!("{:?}", run_plan.vae), &info)?;
        self.set_held(Held::of(&lanes, plan.as_ref()));
        observer.event(&Event::Started { frames: source.frames(), done: from.frames });

        let weights = memory::Watch::start();
        let devices = lanes.iter().map(|devices| [&*devices.vae.ops, &*devices.transformer().ops]);
        let profilers: Vec<_> = match self.options.profile {
            true => devices.clone().map(|ops| ops.map(ProfileOps::new)).collect(),
            false => Vec::new(),
        };
        let profiled = profilers.iter().map(|[vae, dit]| [vae as &dyn Device, dit]);
        let ops: Vec<_> = if profilers.is_empty() { devices.collect() } else { profiled.collect() };
        let fallbacks = self.fallbacks(&planners)?;
        let own = self.low_band()?;
        let low_band = own.of_job(settings.strength);
        let (planners, fallbacks, frames) = (&planners[..], &fallbacks[..], &frames);
        let run = Run { lanes: &lanes, planners, loaded: &loaded, fallbacks, frames, ops, step, pinned };
        let report = run.pipeline(settings, |upscaler| {
            let Watch { mut recorder, store, places } = output.watch();
            let recorder = recorder.as_mut().map(|recorder| &mut **recorder as &mut dyn Recorder);
            let upscaler = upscaler.storing(store).finishing_on(frames.device()).finishing_to(places);
            upscaler.with_low_band(low_band).resume(from, source, sink, (observer, recorder))
        });
        self.keep(&mut state, loaded, &report);
        let report = report?;
        let records: Result<Vec<_>, _> = profilers.iter().flatten().map(ProfileOps::records).collect();
        let records = records?.concat();
        let profile = lanes[0].vae.ceiling.map(|ceiling| Profile { records, ceiling });
        let (peak_above_weights, gpu_peak) = (weights.peak_above(), self.gpu_bytes());
        Ok(Report { peak_above_weights, gpu_peak, networks_reused, plan, profile, ..report })
    }
}

/// A job whose networks are loaded. Each list has one entry per lane; those of networks are empty without networks.
struct Run<'a> {
    lanes: &'a [Arc<Devices>],
    planners: &'a [JobPlanner<'a>],
    loaded: &'a [Loaded],
    fallbacks: &'a [Option<VaeFallback<'a>>],
    frames: &'a FrameWork,
    /// The devices of the VAE and of the transformer, or wrappers of them.
    ops: Vec<[&'a dyn Device; 2]>,
    /// In place of the transformer.
    step: Option<&'a dyn Step>,
    /// Whether the plan never changes.
    pinned: bool,
}

impl Run<'_> {
    /// Builds the pipeline and gives it to `run`.
    fn pipeline(&self, settings: Settings, run: impl FnOnce(Upscaler) -> Result<Report>) -> Result<Report> {
        let transformers: Vec<_> =
            self.loaded.iter().zip(&self.ops).map(|(loaded, [_, ops])| loaded.networks.transformer(*ops)).collect();
        let replanners: Vec<_> = self.planners.iter().zip(self.loaded).map(replanner).collect();
        let lane = |i: usize| {
            let (devices, Loaded { networks, plan, .. }) = (&self.lanes[i], &self.loaded[i]);
            let [ops, dit_ops] = self.ops[i];
            let encoder_ops = if ptr::eq(devices.encoder(), &devices.vae) { ops } else { dit_ops };
            let step = self.step.unwrap_or(&transformers[i]);
            let replanner =
                replanners[i].as_ref().filter(|_| !self.pinned).map(|replanner| replanner as &dyn Replanner);
            let fallback = self.fallbacks[i].as_ref().map(|fallback| fallback as &dyn Fallback);
            let (model, plan) = (Model { vae: networks.vae(), step }, plan.run_plan());
            let loader = self.frames.loader(i);
            Lane { ops, encoder_ops, loader, model, plan, replanner, fallback }
        };
        run(Upscaler::on((0..self.loaded.len()).map(lane).collect(), settings))
    }
}

/// Plans again where a GPU has less memory than planned.
fn replanner<'a>((planner, loaded): (&'a JobPlanner, &'a Loaded)) -> Option<BudgetReplanner<'a>> {
    planner.devices.vae.gpu.as_ref().map(|_| BudgetReplanner::new(planner, loaded.networks.vae(), &loaded.plan))
}

/// What the results of a session depend on beside the settings.
pub(crate) struct Environment {
    pub model: String,
    pub values: Vec<(&'static str, String)>,
    pub files: Vec<(&'static str, PathBuf)>,
    /// The content of an embedded model.
    pub embedded: Vec<&'static [u8]>,
}

/// Where the frames of a job go.
pub(crate) trait Output {
    /// Opens the sink, before networks are loaded.
    fn open(&mut self, info: &Info, environment: &Environment) -> Result<Box<dyn Sink>>;

    /// The checkpoint to start from, when the plan is known.
    fn start(&mut self, plan: &str, info: &Info) -> Result<Checkpoint>;

    /// Whether less memory than planned is an error, instead of a reason for another plan.
    fn is_pinned(&self) -> bool {
        false
    }

    /// What accompanies the run.
    fn watch(&mut self) -> Watch<'_>;
}

/// What makes the work of a run safe.
#[derive(Default)]
pub(crate) struct Watch<'a> {
    pub recorder: Option<Box<dyn Recorder + 'a>>,
    pub store: Option<&'a dyn BatchStore>,
    /// Where finished frames go instead of the sink, in their order.
    pub places: &'a [Box<dyn DeviceResult>],
}

/// A sink without a journal.
struct Plain(Option<Box<dyn Sink>>);

impl Output for Plain {
    fn open(&mut self, _: &Info, _: &Environment) -> Result<Box<dyn Sink>> {
        Ok(self.0.take().expect("an output is opened once"))
    }

    fn start(&mut self, _: &str, _: &Info) -> Result<Checkpoint> {
        Ok(Checkpoint::default())
    }

    fn watch(&mut self) -> Watch<'_> {
        Watch::default()
    }
}
