//! Host or device: where tensors and packed weights are kept.

use crate::error::Result;
use crate::tensor::Tensor;
use crate::weights::{Conv, Linear, Upsample};

/// Moves tensors and packed weights between device memory and host memory.
///
/// Copies run beside the ops. [`offload`] and [`prefetch`] are the typed forms of the two methods.
pub trait Residency: Send + Sync {
    /// A copy of the payload in host memory. The source may be dropped at once: its memory is reused only when the copy
    /// has read it, so keeping the source alive for a while spares the next owner of its memory the wait.
    ///
    /// Offloaded tensors can be prefetched and downloaded. [`crate::Ops::tail`] accepts them, and [`crate::Ops::conv`]
    /// and [`crate::Ops::upsample`] accept them as temporal caches. Offloaded weights can only be prefetched.
    ///
    /// A device that computes in host memory returns the payload unchanged.
    fn offload(&self, payload: Payload) -> Result<Payload>;

    /// A copy of an offloaded payload in device memory. The first op that reads it waits for the copy. Prefetched
    /// weights use the memory of tensors, until they are dropped. Weights that are not offloaded are returned
    /// unchanged.
    fn prefetch(&self, payload: Payload) -> Result<Payload>;

    /// Allocates that many bytes for tensors and workspace at once, where the device manages its own memory.
    fn reserve(&self, bytes: usize) -> Result<()>;
}

/// What moves between device and host memory.
#[derive(Clone)]
pub enum Payload {
    /// An activation.
    Tensor(Tensor),
    /// The kernels of a convolution.
    Conv(Conv),
    /// The matrix of a linear layer.
    Linear(Linear),
    /// The merged kernels of an upsampler.
    Upsample(Upsample),
}

/// A type that can be a [`Payload`].
pub trait Movable: Clone {
    /// Wraps the value.
    fn into_payload(self) -> Payload;
    /// Unwraps the value. A payload of another type is a bug of the device.
    fn from_payload(payload: Payload) -> Self;
}

macro_rules! movable {
    ($($name:ident)+) => {$(
        impl Movable for $name {
            fn into_payload(self) -> Payload {
                Payload::$name(self)
            }
            fn from_payload(payload: Payload) -> $name {
                match payload {
                    Payload::$name(value) => value,
                    _ => panic!("a payload keeps its type"),
                }
            }
        }
    )+};
}

movable!(Tensor Conv Linear Upsample);

/// [`Residency::offload`] of a tensor or of the weights of a layer.
pub fn offload<T: Movable>(device: &(impl Residency + ?Sized), value: &T) -> Result<T> {
    Ok(T::from_payload(device.offload(value.clone().into_payload())?))
}

/// [`Residency::prefetch`] of a tensor or of the weights of a layer.
pub fn prefetch<T: Movable>(device: &(impl Residency + ?Sized), value: &T) -> Result<T> {
    Ok(T::from_payload(device.prefetch(value.clone().into_payload())?))
}
