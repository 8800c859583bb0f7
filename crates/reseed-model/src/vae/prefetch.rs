//! Copies offloaded weights to the device, layer by layer in the order in which they are loaded.

use reseed_ops::{Conv, Device, Linear, Upsample, prefetch};

use super::Coder;
use crate::error::Result;

/// Layers whose weights may be offloaded.
pub trait Prefetch {
    /// Replaces offloaded weights by copies in device memory.
    fn prefetch(&mut self, ops: &dyn Device) -> Result<()>;
}

/// Packed weights of one layer.
macro_rules! weights {
    ($($name:ident)+) => {$(
        impl Prefetch for $name {
            fn prefetch(&mut self, ops: &dyn Device) -> Result<()> {
                *self = prefetch(ops, &*self)?;
                Ok(())
            }
        }
    )+};
}

weights!(Conv Linear Upsample);

impl<T: Prefetch> Prefetch for Option<T> {
    fn prefetch(&mut self, ops: &dyn Device) -> Result<()> {
        self.iter_mut().try_for_each(|layer| layer.prefetch(ops))
    }
}

impl<T: Prefetch> Prefetch for Vec<T> {
    fn prefetch(&mut self, ops: &dyn Device) -> Result<()> {
        self.iter_mut().try_for_each(|layer| layer.prefetch(ops))
    }
}

/// Prefetches the named fields of a struct, in this order.
macro_rules! prefetch_fields {
    ($($name:ident { $($field:ident),+ })+) => {$(
        impl $crate::vae::prefetch::Prefetch for $name {
            fn prefetch(&mut self, ops: &dyn reseed_ops::Device) -> $crate::error::Result<()> {
                $(self.$field.prefetch(ops)?;)+
                Ok(())
            }
        }
    )+};
}
pub(super) use prefetch_fields;

/// A coder with all weights on the device.
pub fn prefetched<C: Coder + Prefetch + 'static>(mut coder: C, ops: &dyn Device) -> Result<Box<dyn Coder>> {
    Prefetch::prefetch(&mut coder, ops)?;
    Ok(Box::new(coder))
}
