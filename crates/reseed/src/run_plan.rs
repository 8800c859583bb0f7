//! How the pipeline runs the networks: the part of a plan that stages see.

use reseed_model::plan::{CachePlan, Tiling};

/// How the pipeline runs the networks. Except for tiles, the result is the same whatever it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlan {
    /// Slices and caches of the VAE.
    pub vae: VaePlan,
    /// Batches that one network computes before the next one takes its turn. Their frames and latents wait on the host.
    pub window: usize,
    /// Layers of the transformer that are prefetched for its turn, of those in host memory.
    pub layers: usize,
}

/// How the VAE computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaePlan {
    /// Latent frames per slice.
    pub slice: usize,
    /// Temporal caches of the encoder.
    pub encode: CachePlan,
    /// Temporal caches of the decoder.
    pub decode: CachePlan,
    /// Spatial tiles of the encoder, which are approximate.
    pub encode_tiling: Option<Tiling>,
    /// Spatial tiles of the decoder.
    pub decode_tiling: Option<Tiling>,
    /// Tiles that run at the same time.
    pub workers: usize,
}

impl Default for VaePlan {
    fn default() -> VaePlan {
        let (encode, decode) = (CachePlan::default(), CachePlan::default());
        VaePlan { slice: 1, encode, decode, encode_tiling: None, decode_tiling: None, workers: 1 }
    }
}

impl Default for RunPlan {
    fn default() -> RunPlan {
        RunPlan { vae: VaePlan::default(), window: 1, layers: 0 }
    }
}

/// How a job continues with less memory.
pub struct Replan {
    /// The plan of the VAE, with slices and tiles as before.
    pub vae: VaePlan,
    /// Layers of the transformer that are prefetched for its turn.
    pub layers: usize,
    /// The device.
    pub device: String,
    /// Bytes of device memory.
    pub bytes: usize,
}

/// Plans again when the device has less memory than planned.
pub trait Replanner: Sync {
    /// A plan with less memory than the last one, of which nothing is on the device any more; `None` where there is
    /// none.
    fn smaller(&self) -> Option<Replan>;
}
