//! Offloaded tensors: temporal caches in pinned host memory. They are prefetched whole, or a convolution reads them in
//! strips of rows.

use std::any::Any;
use std::sync::Arc;

use reseed_ops::{ConvSpec, Result, Shape, Storage, Tensor, Thw, strip_rows};

use super::CudaOps;
use super::convolution::Convolution;
use super::memory::ptr;
use crate::device_memory::ArenaBuffer;
use crate::params::{ConvArgs, int};
use crate::pinned::Pinned;
use crate::stream::Stream;

/// Frames in pinned memory, one block each, so that a cache can drop its oldest frame.
pub struct Offloaded(Vec<Arc<Pinned>>);

impl Storage for Offloaded {
    fn bytes(&self) -> usize {
        self.0.iter().map(|frame| frame.len()).sum()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

fn frame_bytes(x: &Tensor) -> usize {
    x.bytes() / x.thw().t
}

/// Queues the copies of a tensor's frames to the host.
pub fn offload(cuda: &CudaOps, x: &Tensor) -> Result<Tensor> {
    let bytes = frame_bytes(x);
    let frame = |frame: usize| {
        // SAFETY: a frame of the tensor; `read_by` keeps its memory until the copy has ended.
        let (pinned, copy) = unsafe { cuda.memory.download(Stream::Offload, ptr(x).plus(frame * bytes), bytes) }?;
        x.storage::<ArenaBuffer>().read_by(copy);
        Ok(Arc::new(pinned))
    };
    let frames = (0..x.thw().t).map(frame).collect::<Result<_>>()?;
    Ok(Tensor::new(x.shape(), x.dtype(), Arc::new(Offloaded(frames))))
}

/// The last `count` frames of an offloaded cache followed by `x`, offloaded; nothing is copied.
pub fn tail(cache: Option<Tensor>, x: &Tensor, count: usize) -> Tensor {
    let new = &x.storage::<Offloaded>().0;
    let mut frames = match cache {
        Some(cache) => cache.storage::<Offloaded>().0.clone(),
        // At the start of a clip its first frame stands for the frames before it.
        None => vec![new[0].clone(); count.saturating_sub(new.len())],
    };
    frames.extend_from_slice(new);
    let shape = Shape::clip(Thw { t: count, ..x.thw() }, x.channels());
    Tensor::new(shape, x.dtype(), Arc::new(Offloaded(frames.split_off(frames.len() - count))))
}

pub fn prefetch(cuda: &CudaOps, offloaded: &Tensor) -> Result<Tensor> {
    let x = cuda.empty_on(Stream::Upload, "prefetch", offloaded.shape(), offloaded.dtype())?;
    upload_rows(cuda, x.storage::<ArenaBuffer>(), offloaded, 0, offloaded.thw().h)?;
    Ok(x)
}

/// Queues the copies of rows `start .. end` of every offloaded frame. A frame that repeats the one before it, as at the
/// start of a clip, is copied on the device.
fn upload_rows(cuda: &CudaOps, to: &ArenaBuffer, offloaded: &Tensor, start: usize, end: usize) -> Result<()> {
    let line = frame_bytes(offloaded) / offloaded.thw().h;
    let bytes = (end - start) * line;
    let frames = &offloaded.storage::<Offloaded>().0;
    let frame = |i: usize| match i.checked_sub(1).filter(|&before| Arc::ptr_eq(&frames[before], &frames[i])) {
        Some(before) => cuda.memory.copy_within(to, i * bytes, before * bytes, bytes),
        None => cuda.memory.upload(to, i * bytes, &frames[i], start * line, bytes),
    };
    (0..frames.len()).try_for_each(frame)
}

/// Whether a convolution over `x` can read its cache in strips.
pub fn in_strips(spec: &ConvSpec, x: &Tensor) -> bool {
    let plain = spec.stride == Thw::new(1, 1, 1) && (spec.taps.h, spec.pad_before, spec.pad_after) == (3, 1, 1);
    plain && x.thw().t == 1 && spec.c_in.is_multiple_of(8)
}

/// A convolution of one frame whose cache is offloaded. The next rows of the cache are copied while a strip is
/// computed.
pub fn conv(cuda: &CudaOps, whole: &Convolution, offloaded: &Tensor) -> Result<()> {
    let (rows, height) = (strip_rows(offloaded), whole.args.in_h as usize);
    let (keep, line) = (offloaded.thw().t, frame_bytes(offloaded) / offloaded.thw().h);
    let reach = |start: usize| (start.saturating_sub(1), height.min(start + rows + 1));
    let strip = |start: usize| -> Result<ArenaBuffer> {
        let (above, below) = reach(start);
        let buffer =
            cuda.scratch("conv", keep * (below - above) * line / offloaded.dtype().bytes(), offloaded.dtype())?;
        upload_rows(cuda, &buffer, offloaded, above, below)?;
        Ok(buffer)
    };
    let mut next = Some(strip(0)?);
    for start in (0..height).step_by(rows) {
        let cache = next.take().expect("a strip for every step");
        next = (start + rows < height).then(|| strip(start + rows)).transpose()?;
        let ((above, below), end) = (reach(start), height.min(start + rows));
        let value = whole.dtype.bytes();
        let (from, to) = (above * line, start * (whole.args.out_w * whole.args.y_pitch) as usize * value);
        let args = ConvArgs {
            in_h: int(below - above),
            out_h: int(end - start),
            pad_h: int(1 - (start - above)),
            cache_frames: int(keep),
            ..whole.args
        };
        let y = whole.y.plus(to);
        let residual = if whole.residual == whole.y { y } else { whole.residual };
        let launch = Convolution { x: whole.x.plus(from), cache: cache.ptr(), y, residual, args, ..*whole };
        // SAFETY: the caller has checked `whole`; the strip holds the rows of the cache that `args` describes.
        unsafe { launch.launch(cuda) }?;
    }
    Ok(())
}
