//! The VAE over arrays that other libraries have in the memory of the session's GPU. Nothing is copied to the host.

use std::ops::Range;
use std::sync::Arc;

use reseed_cuda::{ArrayType, DeviceBuffer, ForeignArray, ForeignFrame, FrameRegion, NanFlag, QueuedWork};
use reseed_media::Size;
use reseed_model::plan::{TileInput, padded_frames, padded_plane, slices, source_frame};
use reseed_model::{Coder, SliceData};
use reseed_ops::{Hw, Tensor, Thw};

use super::{Session, Vae};
use crate::devices::{DeviceHandle, Gpu};
use crate::error::{Error, Result};
use crate::observer::{Event, Observer};
use crate::planner::clip::{self, ClipPlan, CoderClip};

/// The latent of a clip in GPU memory: the mean of its distribution, scaled as the transformer sees it.
pub struct DeviceLatent {
    /// Latent frames, rows and columns.
    pub thw: Thw,
    /// Number of channels.
    pub channels: usize,
    /// Values of f32, channels last.
    pub values: DeviceBuffer,
}

/// Which frames a latent in GPU memory is decoded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFrames {
    /// Frames of the clip; the latent may hold more.
    pub frames: usize,
    /// Size of the frames; the latent may be larger.
    pub size: Size,
    /// Type of the elements.
    pub dtype: ArrayType,
}

/// Makes a tensor of a region of the given frames of the input.
type Load<'a> = dyn Fn(Range<usize>, &FrameRegion) -> reseed_ops::Result<Tensor> + Sync + 'a;
/// Stores a result whose first frame has this number.
type Store<'a> = dyn Fn(&Tensor, usize) -> reseed_ops::Result<()> + 'a;

impl Session {
    /// The GPU of the VAE, whose arrays [`Vae::encode_arrays`] and [`Vae::decode_array`] read; `None` on a CPU, and
    /// where ops are checked.
    pub fn gpu(&self) -> Result<Option<Gpu>> {
        Ok(if self.options.check.is_none() { self.first_lane()?.vae.gpu.clone() } else { None })
    }
}

impl Vae {
    /// Encodes frames of one size, which are arrays on the GPU of [`Session::gpu`] in their order. The result is
    /// complete when this returns, and equals that of [`Vae::encode`] bit for bit.
    pub fn encode_arrays(&self, arrays: &[Arc<ForeignArray>], observer: &mut dyn Observer) -> Result<DeviceLatent> {
        let (config, encoder) = (&self.vae.config, &self.vae.encoder);
        let (device, gpu) = gpu_of(self.devices.encoder());
        let frames = numbered(arrays);
        let [_, h, w, _] = frames.first().ok_or(Error::NoFrames { path: None })?.array.layout().shape;
        let total = padded_frames(frames.len(), config.temporal_factor());
        let plane = padded_plane(Hw::new(h, w), config.spatial_factor());
        let clip = CoderClip { coder: encoder, config, input: TileInput::Frames, plane, frames: total };
        let latent = encoder.plane_out(plane);
        let thw = Thw::new(encoder.frames_out(total, true), latent.h, latent.w);
        let frame_bytes = latent.count() * config.latent * ArrayType::F32.bytes();
        let (values, nan) = (gpu.buffer(thw.t * frame_bytes)?, NanFlag::new(gpu.ops())?);
        let load = |range: Range<usize>, region: &FrameRegion| {
            let slice: Vec<_> = range.map(|i| frames[source_frame(i, frames.len(), total)]).collect();
            gpu.ops().import_frames(&slice, region, &nan)
        };
        let store = |moments: &Tensor, first: usize| {
            gpu.ops().export_latents(moments, config.latent, config.scaling_factor, (&values, first * frame_bytes))
        };
        self.run_on_gpu(device, clip, &load, &store, observer)?;
        match nan.first()? {
            Some(index) => Err(not_a_number(index as usize, h, w)),
            None => Ok(DeviceLatent { thw, channels: config.latent, values }),
        }
    }

    /// Decodes a latent, which is an array `[T, h, w, C]` of f32 on the GPU of [`Session::gpu`], to RGB frames. The
    /// result is complete when this returns, and equals that of [`Vae::decode`] bit for bit.
    pub fn decode_array(
        &self,
        latent: &ForeignArray,
        wanted: DeviceFrames,
        observer: &mut dyn Observer,
    ) -> Result<DeviceBuffer> {
        let (config, decoder) = (&self.vae.config, &self.vae.decoder);
        let (device, gpu) = gpu_of(&self.devices.vae);
        let [t, h, w, channels] = latent.layout().shape;
        assert_eq!(channels, config.latent, "channels of a latent");
        let DeviceFrames { frames, size, dtype } = wanted;
        let clip = CoderClip { coder: decoder, config, input: TileInput::Latents, plane: Hw::new(h, w), frames: t };
        let frame_bytes = size.pixels() * config.image * dtype.bytes();
        let result = gpu.buffer(frames * frame_bytes)?;
        let load = |range: Range<usize>, region: &FrameRegion| {
            let slice: Vec<_> = range.map(|index| ForeignFrame { array: latent, index, number: index }).collect();
            gpu.ops().import_latents(&slice, region, config.scaling_factor)
        };
        let store = |decoded: &Tensor, first: usize| {
            // The last frames only extend the clip.
            let count = decoded.thw().t.min(frames.saturating_sub(first));
            if count == 0 {
                return Ok(());
            }
            let to = (&result, first * frame_bytes);
            gpu.ops().export_frames(&decoded.frames(0, count), [size.h, size.w], dtype, to)
        };
        self.run_on_gpu(device, clip, &load, &store, observer)?;
        Ok(result)
    }

    /// Runs a clip, and again with a smaller plan whenever another process has allocated the memory of the plan.
    fn run_on_gpu(
        &self,
        device: &DeviceHandle,
        clip: CoderClip,
        load: &Load,
        store: &Store,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let plans = clip::reserve(device, &self.settings, &[clip])?;
        let mut plan = plans.into_iter().next().expect("a plan for the clip");
        plan.warning().into_iter().for_each(|warning| observer.event(&Event::Warning(warning.clone())));
        loop {
            match slices_on_gpu(device, clip, &plan, (load, store), observer) {
                Err(Error::Model(error @ reseed_model::Error::Device(reseed_ops::Error::OutOfMemory { .. }))) => {
                    clip::shrink(device, &self.settings, &clip, &mut plan).ok_or(error)?;
                    observer.event(&Event::Replanned { device: device.ops.name(), bytes: plan.bytes() });
                }
                done => return done,
            }
        }
    }
}

/// Runs the slices of a clip. While one runs, the one before it is waited for.
fn slices_on_gpu(
    device: &DeviceHandle,
    clip: CoderClip,
    plan: &ClipPlan,
    (load, store): (&Load, &Store),
    observer: &mut dyn Observer,
) -> Result<()> {
    let CoderClip { coder, input, plane, frames: total, .. } = clip;
    let pixel_frames = |latents| if input == TileInput::Frames { latents } else { coder.frames_out(latents, true) };
    observer.event(&Event::Started { frames: Some(pixel_frames(total)), done: 0 });
    let (mut stream, mut stored) = (plan.stream(&*device.ops, coder, plane), 0);
    let mut running: Option<(QueuedWork, usize)> = None;
    let (_, gpu) = gpu_of(device);
    for range in slices(total, plan.step()) {
        if observer.cancelled() {
            return Err(Error::Cancelled);
        }
        let region = |rows, columns| load(range.clone(), &FrameRegion { rows, columns });
        let result = stream.run(SliceData::Device(range.len(), &region), range.end == total)?;
        store(&result, stored)?;
        let frames = if input == TileInput::Frames { range.len() } else { result.thw().t };
        stored += result.thw().t;
        let started = (gpu.ops().queued_work()?, frames);
        running.replace(started).map_or(Ok(()), |done| finish(done, observer))?;
    }
    running.map_or(Ok(()), |done| finish(done, observer))
}

fn finish((work, frames): (QueuedWork, usize), observer: &mut dyn Observer) -> Result<()> {
    work.wait()?;
    observer.event(&Event::Frames(frames));
    Ok(())
}

fn gpu_of(device: &DeviceHandle) -> (&DeviceHandle, &Gpu) {
    (device, device.gpu.as_ref().expect("arrays of a GPU belong to a session on one"))
}

/// The frames of arrays of one size, in their order.
pub(super) fn numbered(arrays: &[Arc<ForeignArray>]) -> Vec<ForeignFrame<'_>> {
    let size = |array: &Arc<ForeignArray>| array.layout().shape[1..].to_vec();
    let one_size = arrays.iter().all(|array| size(array) == size(&arrays[0]));
    assert!(one_size, "frames of one size");
    let frames = arrays.iter().flat_map(|array| (0..array.layout().shape[0]).map(move |index| (array, index)));
    frames.enumerate().map(|(number, (array, index))| ForeignFrame { array, index, number }).collect()
}

/// The error for a value of RGB frames of this size.
pub(super) fn not_a_number(index: usize, h: usize, w: usize) -> Error {
    let (pixel, channel) = (index / 3, index % 3);
    let (frame, pixel) = (pixel / (h * w), pixel % (h * w));
    Error::NotANumber { frame, at: [pixel / w, pixel % w, channel] }
}
