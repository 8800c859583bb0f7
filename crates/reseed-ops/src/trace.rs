//! The device that computes nothing: shapes, live bytes, peak bytes, arithmetic. With it a model plans its own memory.

mod state;
mod travel;
mod work;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

pub use state::{SpeedModel, TraceReport};
pub use travel::strip_rows;
use work::OnLoad;
pub use work::{Work, Workspace};

use crate::cost::{self, Cost};
use crate::error::Result;
use crate::ops::{Activation, ConvOutput, Epilogue, Ops, PendingDownload, Placement, Qkv, Read, Stats, TemporalCache};
use crate::packing::{Rotary, RotaryData, Rows};
use crate::pixels::{Depth, Pixels};
use crate::shape::{DType, Shape};
use crate::tensor::Tensor;
use crate::weights::{
    Conv, ConvData, ConvSpec, Linear, LinearData, LinearSpec, Norm, Packed, Upsample, UpsampleData, UpsampleSpec,
    Vector,
};
use state::{Offloaded, TraceState, TracedBuffer, lock};

/// Numbers that a device keeps for a convolution.
pub type Kernels = fn(&ConvSpec) -> usize;

/// Counts what another device would allocate and compute.
pub struct TraceOps {
    dtype: DType,
    weights: DType,
    quants: bool,
    kernels: Kernels,
    on_load: OnLoad,
    workspace: Workspace,
    state: Arc<Mutex<TraceState>>,
}

impl TraceOps {
    /// A device whose activations are of `dtype`, whose weights are of `weights`, and whose ops need `workspace`.
    pub fn new(dtype: DType, weights: DType, workspace: Workspace) -> TraceOps {
        let state = Arc::new(Mutex::new(TraceState::new(SpeedModel::default())));
        TraceOps {
            dtype,
            weights,
            quants: false,
            kernels: ConvSpec::weights,
            on_load: Box::new(|_| false),
            workspace,
            state,
        }
    }

    /// The same at another speed.
    pub fn with_speed(self, speed: SpeedModel) -> TraceOps {
        lock(&self.state).speed = speed;
        self
    }

    /// The same with parts of at least `wide` bytes at the other end of its memory.
    pub fn laying_apart(self, wide: usize) -> TraceOps {
        lock(&self.state).lay_apart(wide);
        self
    }

    /// What the device does in a nanosecond.
    pub fn speed(&self) -> SpeedModel {
        lock(&self.state).speed
    }

    /// The same with matrices in the few bits that they are stored in, as devices keep them that widen them next to their use.
    pub fn keeping_quants(self) -> TraceOps {
        TraceOps { quants: true, ..self }
    }

    /// The same with other numbers of weights than a convolution's own.
    pub fn packing(self, kernels: Kernels) -> TraceOps {
        TraceOps { kernels, ..self }
    }

    /// The same with norms applied on load where `on_load` says.
    pub fn fusing_norms(self, on_load: impl Fn(&ConvSpec) -> bool + Send + Sync + 'static) -> TraceOps {
        TraceOps { on_load: Box::new(on_load), ..self }
    }

    /// What has been counted so far.
    pub fn report(&self) -> TraceReport {
        lock(&self.state).report
    }

    fn alloc(&self, shape: impl Into<Shape>, dtype: DType) -> Tensor {
        self.filled(shape.into(), dtype, |state, free| {
            state.wait(free);
            0
        })
    }

    /// A tensor that is filled when `ready` says.
    fn filled(&self, shape: Shape, dtype: DType, ready: impl FnOnce(&mut TraceState, u64) -> u64) -> Tensor {
        Tensor::new(shape, dtype, Arc::new(self.counted(shape.count() * dtype.bytes(), ready)))
    }

    fn counted(&self, bytes: usize, ready: impl FnOnce(&mut TraceState, u64) -> u64) -> TracedBuffer {
        let mut state = lock(&self.state);
        let (at, free) = state.place(bytes);
        TracedBuffer { at, bytes, ready: ready(&mut state, free), leaving: 0.into(), state: self.state.clone() }
    }

    /// `x` itself when its memory may be overwritten.
    fn writable(&self, mut x: Tensor) -> Tensor {
        if x.is_unique() { x } else { self.alloc(x.shape(), x.dtype()) }
    }

    fn stats(&self, y: &Tensor, groups: Option<usize>) -> Option<Stats> {
        groups.map(|groups| {
            self.work(Work::Stats(y, groups));
            self.alloc([y.thw().t, groups, 2], DType::F32)
        })
    }

    fn count(&self, cost: Cost) {
        lock(&self.state).run(cost);
    }

    fn work(&self, work: Work) {
        let bytes = (self.workspace)(&work);
        if bytes > 0 {
            let mut state = lock(&self.state);
            let at = state.take(bytes);
            state.give(at, bytes, 0);
        }
    }

    fn weights(&self, values: usize) {
        lock(&self.state).report.weights += values * self.weights.bytes();
    }

    fn matrix_bytes(&self, spec: &LinearSpec) -> usize {
        spec.bytes(self.weights.bytes())
    }
}

/// Numbers of an upsampler's kernels as they are held where the clip's first frame is behind.
fn merged(spec: &UpsampleSpec) -> usize {
    let taps = spec.taps_t() + usize::from(spec.time);
    spec.phases() * taps * 4 * spec.channels * spec.channels
}

fn packed() -> Packed {
    Arc::new(())
}

impl Ops for TraceOps {
    fn device(&self) -> String {
        "trace".into()
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn norms_on_load(&self, spec: &ConvSpec) -> bool {
        (self.on_load)(spec)
    }

    fn finish(&self) -> Result<()> {
        lock(&self.state).finish();
        Ok(())
    }

    fn conv_weights(&self, spec: ConvSpec, _: Read<ConvData>) -> Result<Conv> {
        self.weights((self.kernels)(&spec) + spec.c_out);
        lock(&self.state).rearranged((self.workspace)(&Work::Rearranged(&spec)));
        Ok(Conv { spec, packed: packed() })
    }

    fn linear_weights(&self, spec: LinearSpec, _: Read<LinearData>) -> Result<Linear> {
        let spec = LinearSpec { quant: spec.quant.filter(|_| self.quants), ..spec };
        self.weights(spec.d_out);
        lock(&self.state).report.weights += self.matrix_bytes(&spec);
        Ok(Linear { spec, packed: packed() })
    }

    fn norm_weights(&self, groups: usize, eps: f32, channels: usize, _: Read<ConvData>) -> Result<Norm> {
        self.weights(2 * channels);
        Ok(Norm { channels, groups, eps, packed: packed() })
    }

    fn upsample_weights(&self, spec: UpsampleSpec, _: Read<UpsampleData>) -> Result<Upsample> {
        self.weights(merged(&spec));
        Ok(Upsample { spec, packed: packed() })
    }

    fn vector(&self, len: usize, _: Read<Vec<f32>>) -> Result<Vector> {
        self.weights(len);
        Ok(Vector { len, packed: packed() })
    }

    fn rows(&self, per: usize, rows: &[u32]) -> Result<Rows> {
        lock(&self.state).report.weights += size_of_val(rows);
        Ok(Rows::new(per, rows, packed()))
    }

    fn rotary(&self, data: &RotaryData) -> Result<Rotary> {
        lock(&self.state).report.weights += size_of_val(&data.turns[..]) + size_of_val(&data.places[..]);
        Ok(Rotary { count: data.places.len(), frequencies: data.frequencies, packed: packed() })
    }

    fn upload(&self, shape: Shape, _: &[f32]) -> Result<Tensor> {
        Ok(self.alloc(shape, self.dtype))
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        Ok(vec![0.0; x.count()])
    }

    fn upload_pixels(&self, shape: Shape, pixels: &Pixels) -> Result<Tensor> {
        let x = self.alloc(shape, self.dtype);
        self.work(Work::Pixels(x.count() * pixels.depth().bytes()));
        Ok(x)
    }

    fn send_pixels(&self, x: &Tensor, depth: Depth) -> Result<Box<dyn PendingDownload<Pixels>>> {
        self.work(Work::Pixels(x.count() * depth.bytes()));
        Ok(Box::new(Pixels::nearest(&self.download(x)?, depth)))
    }

    fn offload(&self, cache: Option<&Tensor>, x: &Tensor, keep: usize) -> Result<Tensor> {
        let thw = x.thw();
        let (frame, shape) = (x.bytes() / thw.t, Shape::clip(crate::Thw { t: keep, ..thw }, x.channels()));
        let (bytes, leaves) = (keep * frame, keep.min(thw.t) * frame);
        let comes = bytes.min(leaves + cache.map_or(0, |cache| cache.storage::<Offloaded>().comes));
        let mut state = lock(&self.state);
        state.offload(bytes);
        let ready = state.leave(leaves);
        x.storage::<TracedBuffer>().leaving.store(ready, Ordering::Relaxed);
        Ok(Tensor::new(shape, x.dtype(), Arc::new(Offloaded { bytes, comes, ready, state: self.state.clone() })))
    }

    fn prefetch(&self, offloaded: &Tensor) -> Result<Tensor> {
        let Offloaded { comes, ready, .. } = *offloaded.storage::<Offloaded>();
        Ok(self.filled(offloaded.shape(), offloaded.dtype(), |state, free| state.bring(comes, ready.max(free))))
    }

    fn offload_linear(&self, linear: &Linear) -> Result<Linear> {
        let bytes = self.matrix_bytes(&linear.spec);
        self.hosted(bytes, bytes);
        Ok(linear.clone())
    }

    fn prefetch_linear(&self, offloaded: &Linear) -> Result<Linear> {
        Ok(Linear { packed: self.brought(self.matrix_bytes(&offloaded.spec)), ..offloaded.clone() })
    }

    fn offload_conv(&self, conv: &Conv) -> Result<Conv> {
        let bytes = (self.kernels)(&conv.spec) * self.weights.bytes();
        self.hosted(bytes, bytes);
        Ok(conv.clone())
    }

    fn prefetch_conv(&self, offloaded: &Conv) -> Result<Conv> {
        Ok(Conv { packed: self.brought((self.kernels)(&offloaded.spec) * self.weights.bytes()), ..offloaded.clone() })
    }

    fn offload_upsample(&self, upsample: &Upsample) -> Result<Upsample> {
        let each = self.weights.bytes();
        self.hosted(merged(&upsample.spec) * each, upsample.spec.weights() * each);
        Ok(upsample.clone())
    }

    fn prefetch_upsample(&self, offloaded: &Upsample) -> Result<Upsample> {
        Ok(Upsample { packed: self.brought(offloaded.spec.weights() * self.weights.bytes()), ..offloaded.clone() })
    }

    fn conv(&self, cache: TemporalCache, x: &Tensor, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        let spec = &conv.spec;
        let residual = epilogue.residual.is_some();
        let y = match epilogue.residual {
            Some(residual) => self.writable(residual),
            None => self.alloc(Shape::clip(spec.output(x.thw(), cache.starts()), spec.c_out), x.dtype()),
        };
        let folded = |t: &usize| cache.starts() && spec.folded(*t) > 1;
        self.work(Work::Conv(spec, (0..y.thw().t).filter(folded).count()));
        let plain = spec.stride == crate::Thw::new(1, 1, 1);
        self.wait_for(&conv.packed);
        let _past = self.behind(cache, x, plain, cost::conv(spec, cache, x, &y, residual));
        Ok(ConvOutput { stats: self.stats(&y, epilogue.groups), tensor: y })
    }

    fn upsample(
        &self,
        cache: TemporalCache,
        x: &Tensor,
        upsample: &Upsample,
        groups: Option<usize>,
    ) -> Result<ConvOutput> {
        let spec = &upsample.spec;
        let y = self.alloc(Shape::clip(spec.output(x.thw(), cache.starts()), spec.channels), x.dtype());
        self.work(Work::Upsample(spec, if cache.starts() { x.thw().t } else { 0 }));
        self.wait_for(&upsample.packed);
        let _past = self.behind(cache, x, false, cost::upsample(spec, cache, x, &y));
        Ok(ConvOutput { stats: self.stats(&y, groups), tensor: y })
    }

    fn tail(&self, cache: Option<Tensor>, mut x: Tensor, keep: usize) -> Result<Tensor> {
        let thw = x.thw();
        if thw.t == keep && x.is_unique() {
            return Ok(x);
        }
        let kept = match cache {
            Some(cache) if cache.thw().t == keep => self.writable(cache),
            _ => self.alloc(Shape::clip(crate::Thw { t: keep, ..thw }, x.channels()), x.dtype()),
        };
        self.count(cost::tail(&kept));
        Ok(kept)
    }

    fn group_norm(&self, x: Tensor, stats: Option<Stats>, norm: &Norm, _: Activation) -> Result<Tensor> {
        let y = self.writable(x);
        self.count(cost::group_norm(norm, &y, stats.is_some()));
        Ok(y)
    }

    fn norm_conv(&self, x: ConvOutput, _: &Norm, conv: &Conv, epilogue: Epilogue) -> Result<ConvOutput> {
        self.conv(TemporalCache::Start, &x.tensor, conv, epilogue)
    }

    fn linear(&self, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
        let mut dims = x.shape().dims().to_vec();
        dims[x.shape().dims().len() - 1] = linear.spec.d_out;
        let y = match residual {
            Some(residual) => self.writable(residual),
            None => self.alloc(&dims[..], x.dtype()),
        };
        self.wait_for(&linear.packed);
        self.work(Work::Linear(&linear.spec));
        self.count(cost::linear(linear, x, &y));
        Ok(y.reshape(&dims[..]))
    }

    fn attention(&self, qkv: &Tensor, heads: usize, lengths: &[usize]) -> Result<Tensor> {
        let width = qkv.channels() / 3;
        let out = self.alloc([qkv.rows(), width], qkv.dtype());
        let longest = lengths.iter().copied().max().unwrap_or(0);
        self.work(Work::Attention { longest, width: width / heads });
        self.count(cost::attention(qkv, &out, lengths));
        Ok(out)
    }

    fn rms_norm_modulate(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        let y = self.alloc(x.shape(), x.dtype());
        self.count(cost::group_norm(norm, &y, true));
        Ok(y)
    }

    fn gated_add(&self, x: Tensor, h: &Tensor, _: &Vector) -> Result<Tensor> {
        let y = self.writable(x);
        self.count(cost::elementwise(&[h, &y, &y], 2));
        Ok(y)
    }

    fn swiglu(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.alloc([x.rows(), x.channels() / 2], x.dtype());
        self.count(cost::elementwise(&[x, &y], 4));
        Ok(y)
    }

    fn gelu(&self, x: Tensor) -> Result<Tensor> {
        let y = self.writable(x);
        self.count(cost::elementwise(&[&y, &y], 8));
        Ok(y)
    }

    fn qk_norm_rope(&self, [first, _]: [Qkv; 2], rows: &Rows, _: &Rotary, _: f32) -> Result<Tensor> {
        let y = self.alloc([rows.count, first.qkv.channels()], first.qkv.dtype());
        self.count(cost::qk_norm_rope(&y));
        Ok(y)
    }

    fn gather_rows(&self, x: &Tensor, rows: &Rows) -> Result<Tensor> {
        let y = self.alloc([rows.count, x.channels()], x.dtype());
        self.count(cost::gather_rows(&y, rows.per));
        Ok(y)
    }

    fn axpby(&self, _: f32, x: &Tensor, _: f32, y: Tensor) -> Result<Tensor> {
        let y = self.writable(y);
        self.count(cost::elementwise(&[x, &y, &y], 3));
        Ok(y)
    }

    fn gaussian(&self, moments: &Tensor, _: Option<&Tensor>, _: f32) -> Result<Tensor> {
        let y = self.alloc(Shape::clip(moments.thw(), moments.channels() / 2), moments.dtype());
        self.count(cost::elementwise(&[moments, &y], 8));
        Ok(y)
    }

    fn blend_add(&self, canvas: Tensor, tile: &Tensor, _: &Placement) -> Result<Tensor> {
        self.count(cost::elementwise(&[tile, tile], 2));
        Ok(self.writable(canvas))
    }
}
