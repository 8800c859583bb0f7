//! What the encoder or the decoder alone would need, from a run on a tracing device.

use reseed_model::Coder;
use reseed_model::plan::slices;
use reseed_ops::{Cost, Hw, TraceReport};

use super::coder::load_coder;
use crate::devices::DeviceHandle;
use crate::error::{Error, Result};
use crate::planner::clip::{self, ClipPlan, CoderClip, Direction, MARGIN};
use crate::settings::VaeSettings;

/// What a run would need.
pub struct ClipEstimate {
    /// Of the traced run.
    pub report: TraceReport,
    /// Bytes of the weights.
    pub weights: usize,
    /// Most bytes of device memory beside the weights.
    pub peak: usize,
    /// Most bytes of GPU memory, with the driver's own.
    pub gpu: Option<usize>,
    /// Number of slices.
    pub slices: usize,
    /// The plan.
    pub plan: ClipPlan,
}

impl ClipEstimate {
    /// Traces a clip of `frames` frames of `size`. The weights are loaded on a tracing device alone.
    pub fn new(
        mut device: DeviceHandle,
        source: &dyn reseed_model::weights::Source,
        direction: Direction,
        (size, frames): (Hw, usize),
        settings: &VaeSettings,
    ) -> Result<ClipEstimate> {
        let trace = (device.trace)();
        let (config, coder) = load_coder(&trace, source, direction)?;
        let weights = trace.report().weights;
        // They are not on the GPU now, but those of a run would be.
        let room = device.room;
        device.room = Box::new(move || Ok(room()?.map(|room| room.saturating_sub(weights))));
        let clip = CoderClip::new(direction, &*coder, &config, size, frames);
        trace_clip(&device, clip, settings, weights)
    }
}

/// Runs a clip on the tracing device. All slices between the third and the last are alike, so that one stands for them.
fn trace_clip(device: &DeviceHandle, clip: CoderClip, settings: &VaeSettings, weights: usize) -> Result<ClipEstimate> {
    let CoderClip { coder, plane, frames: total, .. } = clip;
    let plan = clip::plan(device, settings, &[clip])?.swap_remove(0);
    let parts = slices(total, plan.step());
    check_host_memory(coder, plane, parts[0].len())?;
    let trace = (device.trace)();
    let mut stream = plan.stream(&trace, coder, plane);
    let (mut host, mut alike) = (0, Cost::default());
    for (i, slice) in parts.iter().enumerate().filter(|(i, _)| *i < 4 || i + 1 == parts.len()) {
        let before = trace.report().cost;
        let values = vec![0.0; slice.len() * plane.count() * coder.channels_in()];
        let result = stream.step(&values, slice.end == total)?;
        // The slice in hand, the one read ahead, and the result.
        host = host.max((2 * values.len() + result.len()) * size_of::<f32>());
        if i == 3 {
            let after = trace.report().cost;
            alike = Cost { flops: after.flops - before.flops, bytes: after.bytes - before.bytes };
        }
    }
    let mut report = trace.report();
    let left_out = parts.len().saturating_sub(5) as u64;
    report.cost += Cost { flops: left_out * alike.flops, bytes: left_out * alike.bytes };
    // A GPU has its tensors in one arena; a CPU shares its memory with the host's buffers.
    let peak = if device.gpu.is_some() { plan.plan.report.arena + MARGIN } else { report.peak + host };
    let gpu = device.gpu.as_ref().map(|gpu| gpu.peak_bytes() + weights + peak);
    Ok(ClipEstimate { report, weights, peak, gpu, slices: parts.len(), plan })
}

/// An error where the host cannot hold the frames of the first slice, which is the longest: a traced run allocates
/// them.
fn check_host_memory(coder: &dyn Coder, plane: Hw, frames: usize) -> Result<()> {
    let values = frames * plane.count() * coder.channels_in();
    let result = coder.frames_out(frames, true) * coder.plane_out(plane).count() * coder.channels_out();
    // Tiles are cut from the values and blended into a second result.
    let most = 2 * (values + result) * size_of::<f32>();
    let reserved = reseed_ops::pages(most);
    reserved.map(drop).ok_or(Error::SliceTooLarge { bytes: (values + result) * size_of::<f32>() })
}
