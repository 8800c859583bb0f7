//! What a pair of devices holds twice.

use std::any::Any;
use std::sync::Arc;

use super::CheckOps;
use crate::error::Result;
use crate::ops::{Ops, TemporalCache};
use crate::tensor::{Storage, Tensor};
use crate::weights::Packed;

/// A tensor on both devices.
pub struct Pair {
    pub reference: Tensor,
    pub device: Tensor,
}

impl Storage for Pair {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Weights on both devices.
pub struct PackedPair<T> {
    pub reference: T,
    pub device: T,
}

pub fn pack<T: Send + Sync + 'static>(reference: T, device: T) -> Packed {
    Arc::new(PackedPair { reference, device })
}

pub fn unpack<T: 'static>(packed: &Packed) -> &PackedPair<T> {
    packed.downcast_ref().expect("weights must stay on the device that packed them")
}

/// The same done to both.
pub fn on_both<T: Send + Sync + 'static>(
    check: &CheckOps,
    packed: &Packed,
    on: impl Fn(&dyn Ops, &T) -> Result<T>,
) -> Result<Packed> {
    let both = unpack::<T>(packed);
    Ok(pack(on(check.reference, &both.reference)?, on(check.device, &both.device)?))
}

pub fn parts(x: &Tensor) -> (Tensor, Tensor) {
    let pair: &Pair = x.storage();
    (pair.reference.view(x.shape(), x.offset()), pair.device.view(x.shape(), x.offset()))
}

/// The cache on both devices, from one on the pair.
pub struct CacheParts<'a> {
    cache: TemporalCache<'a>,
    frames: Option<(Tensor, Tensor)>,
}

impl<'a> CacheParts<'a> {
    pub fn new(cache: TemporalCache<'a>) -> Self {
        CacheParts { cache, frames: cache.frames().map(parts) }
    }

    pub fn both(&self) -> (TemporalCache<'_>, TemporalCache<'_>) {
        match (&self.cache, &self.frames) {
            (TemporalCache::AfterFirst(_), Some((a, b))) => {
                (TemporalCache::AfterFirst(a), TemporalCache::AfterFirst(b))
            }
            (TemporalCache::Frames(_), Some((a, b))) => (TemporalCache::Frames(a), TemporalCache::Frames(b)),
            _ => (TemporalCache::Start, TemporalCache::Start),
        }
    }
}
