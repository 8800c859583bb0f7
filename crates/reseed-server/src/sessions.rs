//! The model that a device has loaded.

use reseed::{Budget, MathMode, Precision, Result, Session};

/// How sessions are opened.
#[derive(Clone, Debug)]
pub struct Compute {
    /// The device.
    pub device: String,
    /// GPU memory.
    pub budget: Option<Budget>,
    /// Type of the activations.
    pub dtype: Option<Precision>,
    /// Accuracy that the products of GPUs keep.
    pub math: MathMode,
    /// CPU threads.
    pub threads: Option<usize>,
}

/// The session of a device. Another model replaces it.
pub struct SessionCache {
    compute: Compute,
    session: Option<Session>,
}

impl SessionCache {
    /// No model is loaded.
    pub fn new(compute: Compute) -> SessionCache {
        SessionCache { compute, session: None }
    }

    /// The session of a model.
    pub fn get(&mut self, model: &str) -> Result<&Session> {
        // The memory of the old model is free before the new one is loaded.
        if self.session.as_ref().is_some_and(|session| session.model() != model) {
            self.clear();
        }
        match &mut self.session {
            Some(session) => Ok(session),
            none => {
                let Compute { device, budget, dtype, math, threads } = self.compute.clone();
                let builder = Session::builder().model(model).device(device).budget(budget).dtype(dtype);
                Ok(none.insert(builder.math(math).threads(threads).open()?))
            }
        }
    }

    /// Drops the model.
    pub fn clear(&mut self) {
        self.session = None;
    }
}
