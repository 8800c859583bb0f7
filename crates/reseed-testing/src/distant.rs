//! A CPU that cannot compute with offloaded layers. It counts what is offloaded and prefetched, and records what passes
//! between layers.

use std::sync::{Arc, Mutex};

use reseed_ops::{
    Device, Linear, MlpActivation, Ops, Packed, Payload, Residency, Result, Tensor, Timing, Transfer, Vector, forward,
};

/// What has been done with layers.
#[derive(Default)]
pub struct Log {
    /// Values of matrices that were offloaded.
    pub offloaded: usize,
    /// Values of matrices that were prefetched.
    pub prefetched: usize,
    /// Values of prefetched matrices that have not been dropped.
    pub present: usize,
    /// Most of them at once.
    pub most: usize,
    /// Part of the network.
    pub stage: String,
    /// Results of linear layers and of gates, with their stage.
    pub results: Vec<(String, &'static str, Vec<f32>)>,
}

pub struct Distant<'a> {
    inner: &'a dyn Device,
    log: Arc<Mutex<Log>>,
}

/// A layer that cannot compute.
struct Offloaded(Linear);

/// A layer after its prefetch.
struct Prefetched {
    linear: Linear,
    log: Arc<Mutex<Log>>,
}

impl Drop for Prefetched {
    fn drop(&mut self) {
        self.log.lock().unwrap().present -= values(&self.linear);
    }
}

fn values(linear: &Linear) -> usize {
    linear.spec.d_in * linear.spec.d_out
}

impl<'a> Distant<'a> {
    pub fn new(inner: &'a dyn Device) -> Distant<'a> {
        Distant { inner, log: Arc::default() }
    }

    pub fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    fn note(&self, op: &'static str, result: Tensor) -> Result<Tensor> {
        let values = self.inner.download(&result)?;
        let mut log = self.log();
        let stage = log.stage.clone();
        log.results.push((stage, op, values));
        Ok(result)
    }
}

impl Device for Distant<'_> {
    forward!(Device to inner);
}

impl Transfer for Distant<'_> {
    forward!(Transfer to inner);
}

impl Timing for Distant<'_> {
    forward!(Timing to inner, except stage);

    fn stage(&self, name: &str) {
        self.log().stage = name.into();
    }
}

impl Residency for Distant<'_> {
    forward!(Residency to inner, except offload prefetch);

    fn offload(&self, payload: Payload) -> Result<Payload> {
        let Payload::Linear(linear) = payload else { return self.inner.offload(payload) };
        self.log().offloaded += values(&linear);
        let packed: Packed = Arc::new(Offloaded(linear.clone()));
        Ok(Payload::Linear(Linear { packed, ..linear }))
    }

    fn prefetch(&self, payload: Payload) -> Result<Payload> {
        let Payload::Linear(offloaded) = payload else { return self.inner.prefetch(payload) };
        let Offloaded(linear) = offloaded.packed.downcast_ref().expect("only offloaded layers are prefetched");
        let mut log = self.log();
        log.prefetched += values(linear);
        log.present += values(linear);
        log.most = log.most.max(log.present);
        let packed: Packed = Arc::new(Prefetched { linear: linear.clone(), log: self.log.clone() });
        Ok(Payload::Linear(Linear { packed, ..offloaded }))
    }
}

impl Ops for Distant<'_> {
    forward!(Ops to inner, except linear activated_linear gated_add);

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        assert!(!linear.packed.is::<Offloaded>(), "an offloaded layer cannot compute");
        let linear = linear.packed.downcast_ref::<Prefetched>().map_or(linear, |prefetched| &prefetched.linear);
        self.note("linear", self.inner.linear(x, linear, residual)?)
    }

    fn activated_linear(&self, x: Tensor, act: MlpActivation, linear: &Linear) -> Result<Tensor> {
        self.linear(&act.run(self, x)?, linear, None)
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, gate: &Vector) -> Result<Tensor> {
        self.note("gated_add", self.inner.gated_add(x, h, gate)?)
    }
}
