//! A model and its devices, from one job to the next.

use reseed::{Geometry, Settings};
use reseed_ops::Precision;

use crate::args::{ComputeArgs, JobArgs};
use crate::engine::{self, Device};
use crate::failure::Result;
use crate::model::Weights;
use crate::outline::{JobPlanner, Loaded};
use crate::upscale::plan_args;

/// The model that gives back what it is given: everything but networks.
const IDENTITY: &str = "identity";

/// The devices of a job.
pub struct Devices {
    /// The autoencoder's, or the decoder's alone.
    pub device: Device,
    other: Option<Device>,
}

impl Devices {
    /// The ones that were asked for, or that suit a model.
    pub fn new(compute: &ComputeArgs, max_vram: Option<usize>, weights: Option<&Weights>) -> Result<Devices> {
        let (device, other) = engine::devices(compute, max_vram, weights)?;
        Ok(Devices { device, other })
    }

    /// The encoder's, one of the two.
    pub fn encoder(&self) -> &Device {
        engine::encoder(&self.device, self.transformer())
    }

    /// The transformer's, often the same.
    pub fn transformer(&self) -> &Device {
        self.other.as_ref().unwrap_or(&self.device)
    }
}

/// A model's weights, if it has some, and its devices.
pub struct Engine {
    pub weights: Option<Weights>,
    pub devices: Devices,
    /// The type that was asked for.
    dtype: Option<Precision>,
}

impl Engine {
    fn open(args: &JobArgs) -> Result<Engine> {
        let weights = match args.model() {
            IDENTITY => None,
            name => Some(Weights::open(name, None)?),
        };
        let devices = Devices::new(&args.compute, args.max_vram, weights.as_ref())?;
        Ok(Engine { weights, devices, dtype: args.compute.dtype })
    }

    /// The settings of a job with what the model asks for.
    pub fn suited(&self, settings: Settings, args: &JobArgs) -> Result<Settings> {
        match &self.weights {
            Some(weights) => weights.suited(settings, args),
            None => Ok(settings),
        }
    }

    /// What is to be planned for a job.
    pub fn outline(&self, args: &JobArgs, geometry: Geometry, batch: usize) -> Option<JobPlanner<'_>> {
        let (weights, plan) = (self.weights.as_ref()?, plan_args(args));
        let (device, transformer) = (&self.devices.device, self.devices.transformer());
        Some(JobPlanner { weights, device, transformer, plan, geometry, batch })
    }
}

/// What a job works with and leaves to the next.
pub struct Crew {
    /// The networks, which are gone before their devices.
    pub loaded: Option<Loaded>,
    pub engine: Engine,
}

impl Crew {
    /// What the last job left, where that serves a job with these options of the same command; else a new one.
    pub fn of(last: Option<Crew>, args: &JobArgs) -> Result<Crew> {
        match last {
            Some(crew) if crew.engine.dtype == args.compute.dtype => Ok(crew),
            other => {
                // Whatever it has on a device makes way first.
                drop(other);
                Ok(Crew { loaded: None, engine: Engine::open(args)? })
            }
        }
    }
}
