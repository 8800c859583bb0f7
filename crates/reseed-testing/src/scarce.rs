//! A CPU that cannot compute with offloaded layers, and whose memory can run out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reseed_cpu::CpuOps;
use reseed_ops::{
    Conv, ConvOutput, DType, Device, Epilogue, Error, Ops, Packed, Payload, Residency, Result, TemporalCache, Tensor,
    Timing, Transfer, forward,
};

pub struct Scarce {
    inner: CpuOps,
    /// Convolutions so far.
    pub convs: AtomicUsize,
    /// The convolution that runs out of memory, counted from one.
    pub fails_at: AtomicUsize,
    /// Layers that were prefetched.
    pub prefetched: AtomicUsize,
}

/// The weights of a layer that cannot compute.
struct Offloaded(Payload);

impl Scarce {
    pub fn new() -> Scarce {
        let inner = CpuOps::new(DType::F32, Some(2)).unwrap();
        Scarce { inner, convs: 0.into(), fails_at: 0.into(), prefetched: 0.into() }
    }

    /// Restarts the count; convolution `nth` runs out of memory.
    pub fn failing(&self, nth: usize) {
        self.convs.store(0, Ordering::SeqCst);
        self.fails_at.store(nth, Ordering::SeqCst);
    }
}

impl Default for Scarce {
    fn default() -> Scarce {
        Scarce::new()
    }
}

impl Device for Scarce {
    forward!(Device to inner);
}

impl Transfer for Scarce {
    forward!(Transfer to inner);
}

impl Timing for Scarce {
    forward!(Timing to inner);
}

impl Residency for Scarce {
    forward!(Residency to inner, except offload prefetch);

    fn offload(&self, payload: Payload) -> Result<Payload> {
        let whole = payload.clone();
        Ok(with_packed(payload, |_| Arc::new(Offloaded(whole))))
    }

    fn prefetch(&self, payload: Payload) -> Result<Payload> {
        let mut whole = None;
        with_packed(payload.clone(), |packed| {
            self.prefetched.fetch_add(1, Ordering::SeqCst);
            whole = packed.downcast_ref::<Offloaded>().map(|Offloaded(payload)| payload.clone());
            assert!(whole.is_some(), "only offloaded layers are prefetched");
            packed
        });
        Ok(whole.unwrap_or(payload))
    }
}

/// A layer with other packed weights; tensors stay as they are.
fn with_packed(mut payload: Payload, replace: impl FnOnce(Packed) -> Packed) -> Payload {
    let packed = match &mut payload {
        Payload::Tensor(_) => return payload,
        Payload::Conv(conv) => &mut conv.packed,
        Payload::Linear(linear) => &mut linear.packed,
        Payload::Upsample(upsample) => &mut upsample.packed,
    };
    *packed = replace(packed.clone());
    payload
}

impl Ops for Scarce {
    forward!(Ops to inner, except conv);

    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        if self.convs.fetch_add(1, Ordering::SeqCst) + 1 == self.fails_at.load(Ordering::SeqCst) {
            return Err(Error::OutOfMemory { op: "conv", device: "scarce".into(), shape: x.shape(), bytes: x.bytes() });
        }
        self.inner.conv(cache, x, conv, epilogue)
    }
}
