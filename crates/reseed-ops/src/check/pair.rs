//! Tensors and weights that exist on both devices.

use std::any::Any;
use std::sync::Arc;

use crate::device::Device;
use crate::error::Result;
use crate::operands::Epilogue;
use crate::tensor::{Storage, Tensor};
use crate::weights::Packed;

/// A tensor on the reference and on the device.
pub struct Pair {
    pub sides: [Tensor; 2],
    pub offloaded: bool,
}

impl Pair {
    pub fn tensor(sides: [Tensor; 2], offloaded: bool) -> Tensor {
        let [reference, _] = &sides;
        Tensor::new(reference.shape(), reference.dtype(), Arc::new(Pair { sides, offloaded }))
    }
}

impl Storage for Pair {
    fn bytes(&self) -> usize {
        self.sides[0].bytes()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Weights on the reference and on the device, and their magnitudes for the bound.
struct PackedPair {
    sides: [Packed; 2],
    magnitude: Packed,
}

pub fn pack<T: Send + Sync + 'static>(sides: [T; 2], magnitude: impl Send + Sync + 'static) -> Packed {
    let [reference, device] = sides;
    Arc::new(PackedPair { sides: [Arc::new(reference), Arc::new(device)], magnitude: Arc::new(magnitude) })
}

/// The same weights after `run` on both devices, with the same magnitudes.
pub fn repack<T: Send + Sync + 'static>(packed: &Packed, sides: [T; 2]) -> Packed {
    let [reference, device] = sides;
    let magnitude = pair(packed).magnitude.clone();
    Arc::new(PackedPair { sides: [Arc::new(reference), Arc::new(device)], magnitude })
}

fn pair(packed: &Packed) -> &PackedPair {
    packed.downcast_ref().expect("weights must stay on the device that packed them")
}

/// The magnitudes of weights.
pub fn magnitude<M: 'static>(packed: &Packed) -> &M {
    pair(packed).magnitude.downcast_ref().expect("magnitudes keep their type")
}

/// One of the two devices, and its part of every operand.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    pub device: &'a dyn Device,
    /// 0 for the reference, 1 for the device.
    pub index: usize,
}

impl Side<'_> {
    pub fn tensor(self, x: &Tensor) -> Tensor {
        let side = &x.storage::<Pair>().sides[self.index];
        side.view(x.shape(), side.offset() + x.offset())
    }

    pub fn optional(self, x: Option<&Tensor>) -> Option<Tensor> {
        x.map(|x| self.tensor(x))
    }

    pub fn epilogue(self, epilogue: &Epilogue) -> Epilogue {
        Epilogue { residual: self.optional(epilogue.residual.as_ref()), groups: epilogue.groups }
    }

    pub fn weights<T: 'static>(self, packed: &Packed) -> &T {
        pair(packed).sides[self.index].downcast_ref().expect("weights keep their type")
    }
}

/// Runs something on both devices.
pub fn on_both<'a, T>(devices: [&'a dyn Device; 2], run: impl Fn(Side<'a>) -> Result<T>) -> Result<[T; 2]> {
    let [reference, device] = devices;
    Ok([run(Side { device: reference, index: 0 })?, run(Side { device, index: 1 })?])
}
