//! The memory that a session holds between jobs, and how it is freed.

use std::sync::{Arc, PoisonError};

use super::{Session, State};
use crate::devices::Devices;
use crate::error::{Kind, Result};
use crate::planner::{JobPlan, Loaded};
use crate::report::Report;

/// Bytes that a session holds for its networks and their tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// In host memory.
    pub host: usize,
    /// In GPU memory.
    pub gpu: usize,
}

impl Held {
    pub(super) fn of(lanes: &[Arc<Devices>], plan: Option<&JobPlan>) -> Held {
        let Some(plan) = plan else { return Held::default() };
        let networks = lanes.len() * (plan.weights_bytes() + plan.arena_bytes());
        match lanes.iter().any(|devices| devices.vae.gpu.is_some()) {
            true => Held { host: lanes.len() * plan.host_bytes(), gpu: networks },
            false => Held { host: networks, gpu: 0 },
        }
    }
}

impl Session {
    /// Frees the networks and the devices, after the job that is running. The next job opens them again.
    ///
    /// ```
    /// use reseed::{Held, Session, Settings};
    ///
    /// let session = Session::builder().model("formula:tiny").device("cpu").threads(1).open()?;
    /// let frames = vec![reseed::media::sample().next()?.expect("a frame")];
    /// let restored = session.upscale_frames(frames.clone(), &Settings::default(), &mut ())?;
    /// assert!(session.held().host > 0);
    /// session.unload();
    /// assert_eq!(session.held(), Held::default());
    /// assert_eq!(session.upscale_frames(frames, &Settings::default(), &mut ())?, restored);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unload(&self) {
        let mut state = self.lock();
        self.gpus.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *state = State::default();
        self.set_held(Held::default());
    }

    /// Bytes that the session holds now; does not wait for a running job.
    pub fn held(&self) -> Held {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_held(&self, held: Held) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }

    /// Keeps the networks of a job for the next one, unless the device may have failed.
    pub(super) fn keep(&self, state: &mut State, loaded: Vec<Loaded>, report: &Result<Report>) {
        let unharmed = |kind: Kind| matches!(kind, Kind::Cancelled | Kind::Input);
        match report.as_ref().map_or_else(|error| unharmed(error.kind()), |_| true) {
            true => state.loaded = loaded,
            false => self.set_held(Held::default()),
        }
    }
}
