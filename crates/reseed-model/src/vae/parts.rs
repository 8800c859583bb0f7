//! Parts of a slice that wait for the next step, on the device or in host memory.

use reseed_ops::{ConvOutput, Device, Tensor, offload, prefetch};

use super::state::State;
use crate::error::Result;
use crate::plan::InputPlan;

/// A part of a slice between two steps.
pub struct Part {
    pub x: ConvOutput,
    /// Whether its tensor is in host memory. Statistics are few and stay on the device.
    offloaded: bool,
}

impl From<ConvOutput> for Part {
    fn from(x: ConvOutput) -> Part {
        Part { x, offloaded: false }
    }
}

impl Part {
    pub fn frames(&self) -> usize {
        self.x.tensor.thw().t
    }

    pub fn on_device(mut self, ops: &dyn Device) -> Result<ConvOutput> {
        if self.offloaded {
            self.x.tensor = prefetch(ops, &self.x.tensor)?;
        }
        Ok(self.x)
    }
}

/// The offloaded part that runs next.
pub struct NextPart {
    tensor: Tensor,
    /// It is prefetched before the layer of this slot or a later one.
    slot: usize,
    prefetched: bool,
}

impl State {
    /// The part in host memory. Its memory on the device is not reused before the next layer has run, so that this
    /// layer does not wait for the copy.
    pub(super) fn offload_part(&mut self, ops: &dyn Device, x: ConvOutput) -> Result<Part> {
        let tensor = offload(ops, &x.tensor)?;
        self.leaving_part = Some(x.tensor);
        Ok(Part { x: ConvOutput { tensor, stats: x.stats }, offloaded: true })
    }

    /// Declares that `part` runs at step `step` after the layers before slot `end`.
    pub(super) fn expect(&mut self, step: Option<usize>, end: usize, part: Option<&Part>) {
        if let (Some(step), Some(part)) = (step, part.filter(|part| part.offloaded))
            && let Some(InputPlan { prefetch_distance, .. }) = self.plan.offloaded_inputs.get(&step)
            && *prefetch_distance > 0
        {
            let (tensor, slot) = (part.x.tensor.clone(), end.saturating_sub(*prefetch_distance));
            self.next_parts.insert(step, NextPart { tensor, slot, prefetched: false });
        }
    }

    /// Starts the prefetches of parts that are due before layer `slot` runs.
    pub(super) fn prefetch_parts(&mut self, ops: &dyn Device, slot: usize) -> Result<()> {
        for next in self.next_parts.values_mut().filter(|next| !next.prefetched && slot >= next.slot) {
            next.tensor = prefetch(ops, &next.tensor)?;
            next.prefetched = true;
        }
        Ok(())
    }

    /// Replaces a part by its prefetched copy.
    pub(super) fn receive(&mut self, step: Option<usize>, part: Option<&mut Part>) {
        if let (Some(step), Some(part)) = (step, part)
            && let Some(next) = self.next_parts.remove(&step)
            && next.prefetched
        {
            part.x.tensor = next.tensor;
            part.offloaded = false;
        }
    }
}
