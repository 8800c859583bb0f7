//! Pasts and weights between device and host: what a traced run parks, brings back and waits for.

use std::sync::Arc;

use super::TraceOps;
use super::state::{Offloaded, TracedBuffer, lock};
use crate::cost::Cost;
use crate::ops::TemporalCache;
use crate::shape::{Shape, Thw};
use crate::tensor::Tensor;
use crate::weights::Packed;

impl TraceOps {
    /// Runs an op that reads a cache. One that is on its way is waited for; of one that is offloaded, two strips or all of it
    /// are on the device until the op is done.
    pub(super) fn behind(&self, cache: TemporalCache, x: &Tensor, strips: bool, cost: Cost) -> Option<Tensor> {
        let cache = cache.frames();
        let Some(cache) = cache.filter(|cache| cache.is_on::<Offloaded>()) else {
            let mut state = lock(&self.state);
            state.wait(cache.map_or(0, |cache| cache.storage::<TracedBuffer>().ready));
            state.run(cost);
            return None;
        };
        let (thw, &Offloaded { comes, ready, .. }) = (cache.thw(), cache.storage::<Offloaded>());
        let strips = strips && x.thw().t == 1;
        let rows = if strips { thw.h.min(2 * (strip_rows(cache) + 2)) } else { thw.h };
        let shape = Shape::clip(Thw { h: rows, ..thw }, cache.channels());
        let brought = self.filled(shape, cache.dtype(), |state, free| state.bring(comes, ready.max(free)));
        let (mut state, there) = (lock(&self.state), brought.storage::<TracedBuffer>().ready);
        if !strips {
            state.wait(there);
        }
        state.run(cost);
        state.wait(there);
        drop(state);
        Some(brought)
    }

    /// So many bytes of weights leave the device, and as many as that lie on the host.
    pub(super) fn hosted(&self, leave: usize, lie: usize) {
        let mut state = lock(&self.state);
        state.report.weights -= leave;
        state.report.hosted += lie;
    }

    /// So many bytes of weights on their way from the host.
    pub(super) fn brought(&self, bytes: usize) -> Packed {
        Arc::new(self.counted(bytes, |state, free| state.bring(bytes, free)))
    }

    /// Kernels that use these weights wait until they are there.
    pub(super) fn wait_for(&self, packed: &Packed) {
        if let Some(brought) = packed.downcast_ref::<TracedBuffer>() {
            lock(&self.state).wait(brought.ready);
        }
    }
}

/// Rows of a offloaded cache that a convolution reads at a time: a few tens of megabytes, and whole tiles of its kernels.
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
    use crate::shape::DType;

    #[test]
    fn frames_that_are_the_same_come_once() {
        let ops = TraceOps::new(DType::F32, DType::F32, Box::new(|_| 0));
        let frame = ops.upload(Shape::clip(Thw::new(1, 2, 2), 8), &[]).unwrap();
        let first = ops.offload(None, &frame, 2).unwrap();
        let second = ops.offload(Some(&first), &frame, 2).unwrap();
        let comes = |offloaded: &Tensor| {
            let before = ops.report().copied;
            ops.prefetch(offloaded).unwrap();
            ops.report().copied - before
        };
        assert_eq!((comes(&first), comes(&second)), (frame.bytes(), 2 * frame.bytes()));
    }
}
