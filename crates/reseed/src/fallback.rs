//! The VAE in a type of wider range, for batches whose values leave the range of f16.

use std::sync::{Arc, Mutex, PoisonError};

use reseed_model::Vae;
use reseed_model::weights::Source;
use reseed_ops::Device;

use crate::error::Result;

/// A VAE in host memory with the device that it computes on.
pub struct WideVae {
    /// The device.
    pub ops: Arc<dyn Device>,
    /// The VAE.
    pub vae: Vae,
}

/// Opens the VAE in a wider type. Whether a batch needs it depends on its frames alone, so that every machine computes
/// a batch in the same type.
pub trait Fallback: Sync {
    /// The VAE, which is loaded at the first call.
    fn open(&self) -> Result<Arc<WideVae>>;
}

/// Loads the VAE from its weights, into host memory: it is on the device only while a batch needs it.
pub struct VaeFallback<'a> {
    ops: Arc<dyn Device>,
    weights: &'a dyn Source,
    loaded: Mutex<Option<Arc<WideVae>>>,
}

impl<'a> VaeFallback<'a> {
    /// With the device of the wider type.
    pub fn new(ops: Arc<dyn Device>, weights: &'a dyn Source) -> VaeFallback<'a> {
        VaeFallback { ops, weights, loaded: Mutex::new(None) }
    }
}

impl Fallback for VaeFallback<'_> {
    fn open(&self) -> Result<Arc<WideVae>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &*loaded {
            return Ok(loaded.clone());
        }
        let ops = self.ops.clone();
        let opened = Arc::new(WideVae { vae: Vae::load_offloaded(&*ops, self.weights)?, ops });
        Ok(loaded.insert(opened).clone())
    }
}
