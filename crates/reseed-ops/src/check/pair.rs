//! What a pair of devices holds twice.

use std::any::Any;
use std::sync::Arc;

use super::CheckOps;
use crate::error::Result;
use crate::ops::{Ops, Past};
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

/// The past on both devices, from one on the pair.
pub struct PastParts<'a> {
    past: Past<'a>,
    frames: Option<(Tensor, Tensor)>,
}

impl<'a> PastParts<'a> {
    pub fn new(past: Past<'a>) -> Self {
        PastParts { past, frames: past.frames().map(parts) }
    }

    pub fn both(&self) -> (Past<'_>, Past<'_>) {
        match (&self.past, &self.frames) {
            (Past::AfterFirst(_), Some((a, b))) => (Past::AfterFirst(a), Past::AfterFirst(b)),
            (Past::Frames(_), Some((a, b))) => (Past::Frames(a), Past::Frames(b)),
            _ => (Past::Start, Past::Start),
        }
    }
}
