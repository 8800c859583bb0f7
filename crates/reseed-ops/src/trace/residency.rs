//! Caches and weights between device and host: what a traced run offloads, prefetches and waits for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::TraceOps;
use super::state::{Offloaded, TracedBuffer, lock};
use crate::cost::Cost;
use crate::error::Result;
use crate::operands::TemporalCache;
use crate::residency::{Payload, Residency};
use crate::shape::{Shape, Thw};
use crate::tensor::Tensor;
use crate::weights::{Packed, UpsampleSpec};

impl Residency for TraceOps {
    fn offload(&self, payload: Payload) -> Result<Payload> {
        match &payload {
            Payload::Tensor(x) => return Ok(Payload::Tensor(self.offload_tensor(x))),
            Payload::Conv(conv) => {
                let bytes = (self.kernels)(&conv.spec) * self.weights.bytes();
                self.offload_weights(bytes, bytes);
            }
            Payload::Linear(linear) => {
                let bytes = self.matrix_bytes(&linear.spec);
                self.offload_weights(bytes, bytes);
            }
            Payload::Upsample(upsample) => {
                let (spec, each) = (&upsample.spec, self.weights.bytes());
                let copied = self.merged(spec, spec.sets() * spec.taps_t()) * each;
                self.offload_weights(self.resident_merged(spec) * each, copied);
            }
        }
        Ok(payload)
    }

    fn prefetch(&self, payload: Payload) -> Result<Payload> {
        Ok(match payload {
            Payload::Tensor(x) => {
                let Offloaded { copied, ready, .. } = *x.storage::<Offloaded>();
                let copy = |state: &mut super::TraceState, free: u64| state.copy_in(copied, ready.max(free));
                Payload::Tensor(self.filled(x.shape(), x.dtype(), copy))
            }
            Payload::Conv(mut conv) => {
                conv.packed = self.prefetch_weights((self.kernels)(&conv.spec) * self.weights.bytes());
                Payload::Conv(conv)
            }
            Payload::Linear(mut linear) => {
                linear.packed = self.prefetch_weights(self.matrix_bytes(&linear.spec));
                Payload::Linear(linear)
            }
            Payload::Upsample(mut upsample) => {
                let spec = &upsample.spec;
                let count = self.merged(spec, spec.sets() * spec.taps_t());
                upsample.packed = self.prefetch_weights(count * self.weights.bytes());
                Payload::Upsample(upsample)
            }
        })
    }

    fn reserve(&self, _: usize) -> Result<()> {
        Ok(())
    }
}

impl TraceOps {
    fn offload_tensor(&self, x: &Tensor) -> Tensor {
        let bytes = x.bytes();
        let mut state = lock(&self.state);
        state.offload(bytes);
        let ready = state.copy_out(bytes);
        x.storage::<TracedBuffer>().leaving.fetch_max(ready, Ordering::Relaxed);
        let offloaded = Offloaded { bytes, copied: bytes, ready, state: self.state.clone() };
        Tensor::new(x.shape(), x.dtype(), Arc::new(offloaded))
    }

    /// The tail of offloaded frames. Repeated frames share their memory on the host, but are counted each.
    pub(super) fn offloaded_tail(&self, cache: Option<Tensor>, x: Tensor, frames: usize) -> Tensor {
        let (thw, dtype) = (x.thw(), x.dtype());
        let shape = Shape::clip(Thw { t: frames, ..thw }, x.channels());
        let bytes = shape.count() * dtype.bytes();
        let Offloaded { copied, ready, .. } = *x.storage::<Offloaded>();
        let copied = bytes.min(copied + cache.map_or(0, |cache| cache.storage::<Offloaded>().copied));
        drop(x);
        lock(&self.state).offload(bytes);
        Tensor::new(shape, dtype, Arc::new(Offloaded { bytes, copied, ready, state: self.state.clone() }))
    }

    /// Moves `from` bytes of weights off the device; they use `to` bytes of host memory.
    fn offload_weights(&self, from: usize, to: usize) {
        let mut state = lock(&self.state);
        state.report.weights -= from;
        state.report.hosted += to;
    }

    fn prefetch_weights(&self, bytes: usize) -> Packed {
        Arc::new(self.buffer(bytes, |state, free| state.copy_in(bytes, free)))
    }

    /// Runs an op that reads a cache. The op waits for a prefetched cache. An offloaded cache is copied to the device
    /// for the duration of the op, whole or in two strips of rows; the buffer of that copy is returned.
    pub(super) fn run_cached(&self, cache: TemporalCache, x: &Tensor, strips: bool, cost: Cost) -> Option<Tensor> {
        let cache = cache.frames();
        let Some(cache) = cache.filter(|cache| cache.is_on::<Offloaded>()) else {
            let mut state = lock(&self.state);
            state.wait(cache.map_or(0, |cache| cache.storage::<TracedBuffer>().ready));
            state.run(cost);
            return None;
        };
        let (thw, &Offloaded { copied, ready, .. }) = (cache.thw(), cache.storage::<Offloaded>());
        let strips = strips && x.thw().t == 1;
        let rows = if strips { thw.h.min(2 * (strip_rows(cache) + 2)) } else { thw.h };
        let shape = Shape::clip(Thw { h: rows, ..thw }, cache.channels());
        let buffer = self.filled(shape, cache.dtype(), |state, free| state.copy_in(copied, ready.max(free)));
        let (mut state, done) = (lock(&self.state), buffer.storage::<TracedBuffer>().ready);
        if !strips {
            state.wait(done);
        }
        state.run(cost);
        state.wait(done);
        drop(state);
        Some(buffer)
    }

    /// Numbers of the merged kernels of an upsampler with that many temporal taps.
    fn merged(&self, spec: &UpsampleSpec, taps: usize) -> usize {
        spec.phases() * (self.kernels)(&spec.phase()) / spec.taps_t() * taps
    }

    /// The same of an upsampler that stays on the device: kernels of the clip's second frame hold one tap.
    pub(super) fn resident_merged(&self, spec: &UpsampleSpec) -> usize {
        self.merged(spec, spec.taps_t() + usize::from(spec.time))
    }

    /// Ops wait for an operand that is prefetched.
    pub(super) fn wait_for_prefetch(&self, x: &Tensor) {
        let ready = x.storage::<TracedBuffer>().ready;
        lock(&self.state).wait(ready);
    }

    /// Ops that use prefetched weights wait for their copy.
    pub(super) fn wait_for_copy(&self, packed: &Packed) {
        if let Some(buffer) = packed.downcast_ref::<TracedBuffer>() {
            lock(&self.state).wait(buffer.ready);
        }
    }
}

/// Rows of an offloaded cache that a convolution reads at a time: about 32 MiB, and whole tiles of its kernels.
pub fn strip_rows(cache: &Tensor) -> usize {
    const BYTES: usize = 32 << 20;
    const TILE: usize = 16;
    let line = cache.bytes() / cache.thw().h.max(1);
    (BYTES / line.max(1) / TILE * TILE).max(TILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Ops;
    use crate::residency::{offload, prefetch};
    use crate::shape::DType;
    use crate::transfer::Transfer;

    #[test]
    fn repeated_frames_are_copied_once() {
        let ops = TraceOps::new(DType::F32, DType::F32, Box::new(|_| 0));
        let frame = ops.upload(Shape::clip(Thw::new(1, 2, 2), 8), &[]).unwrap();
        let first = ops.tail(None, offload(&ops, &frame).unwrap(), 2).unwrap();
        let second = ops.tail(Some(first.clone()), offload(&ops, &frame).unwrap(), 2).unwrap();
        let copied = |offloaded: &Tensor| {
            let before = ops.report().copied;
            prefetch(&ops, offloaded).unwrap();
            ops.report().copied - before
        };
        assert_eq!((copied(&first), copied(&second)), (frame.bytes(), 2 * frame.bytes()));
    }
}
