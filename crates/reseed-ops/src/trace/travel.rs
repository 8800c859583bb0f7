//! Pasts and weights between device and host: what a traced run parks, brings back and waits for.

use std::sync::Arc;

use super::TraceOps;
use super::book::{Counted, Parked, lock};
use crate::cost::Cost;
use crate::ops::Past;
use crate::shape::{Shape, Thw};
use crate::tensor::Tensor;
use crate::weights::Packed;

impl TraceOps {
    /// Runs an op that reads a past. One that is on its way is waited for; of one that is parked, two strips or all of it
    /// are on the device until the op is done.
    pub(super) fn behind(&self, past: Past, x: &Tensor, strips: bool, cost: Cost) -> Option<Tensor> {
        let past = past.frames();
        let Some(past) = past.filter(|past| past.is_on::<Parked>()) else {
            let mut book = lock(&self.book);
            book.wait(past.map_or(0, |past| past.storage::<Counted>().ready));
            book.run(cost);
            return None;
        };
        let (thw, &Parked { comes, ready, .. }) = (past.thw(), past.storage::<Parked>());
        let strips = strips && x.thw().t == 1;
        let rows = if strips { thw.h.min(2 * (strip_rows(past) + 2)) } else { thw.h };
        let shape = Shape::clip(Thw { h: rows, ..thw }, past.channels());
        let brought = self.filled(shape, past.dtype(), |book, free| book.bring(comes, ready.max(free)));
        let (mut book, there) = (lock(&self.book), brought.storage::<Counted>().ready);
        if !strips {
            book.wait(there);
        }
        book.run(cost);
        book.wait(there);
        drop(book);
        Some(brought)
    }

    /// So many bytes of weights leave the device, and as many as that lie on the host.
    pub(super) fn hosted(&self, leave: usize, lie: usize) {
        let mut book = lock(&self.book);
        book.ledger.weights -= leave;
        book.ledger.hosted += lie;
    }

    /// So many bytes of weights on their way from the host.
    pub(super) fn brought(&self, bytes: usize) -> Packed {
        Arc::new(self.counted(bytes, |book, free| book.bring(bytes, free)))
    }

    /// Kernels that use these weights wait until they are there.
    pub(super) fn wait_for(&self, packed: &Packed) {
        if let Some(brought) = packed.downcast_ref::<Counted>() {
            lock(&self.book).wait(brought.ready);
        }
    }
}

/// Rows of a parked past that a convolution reads at a time: a few tens of megabytes, and whole tiles of its kernels.
pub fn strip_rows(past: &Tensor) -> usize {
    const BYTES: usize = 32 << 20;
    const TILE: usize = 16;
    let line = past.bytes() / past.thw().h.max(1);
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
        let first = ops.park(None, &frame, 2).unwrap();
        let second = ops.park(Some(&first), &frame, 2).unwrap();
        let comes = |parked: &Tensor| {
            let before = ops.ledger().copied;
            ops.fetch(parked).unwrap();
            ops.ledger().copied - before
        };
        assert_eq!((comes(&first), comes(&second)), (frame.bytes(), 2 * frame.bytes()));
    }
}
