//! Jobs on arrays that other libraries have in the memory of the session's GPU. Frames are read and written there.

use std::sync::Arc;

use reseed_cuda::{ArrayFrame, BufferFrame, DeviceBuffer, ForeignArray};
use reseed_media::{Depth, Frame, Info, Sink, Size};
use reseed_ops::{DeviceResult, Hw, SampleType};

use super::vae_on_gpu::{not_a_number, numbered};
use super::{Environment, Output, Session, Watch};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::input_frame::DeviceInput;
use crate::observer::Observer;
use crate::part::ClipInput;
use crate::report::Report;
use crate::settings::Settings;

impl Session {
    /// Restores and upscales a clip of RGB frames of one size and type, which are arrays on the GPU of
    /// [`Session::gpu`], in their order. The result is dense and has the type of the input. It is complete when this
    /// returns, and equals that of frames in host memory bit for bit.
    pub fn upscale_arrays(
        &self,
        arrays: &[Arc<ForeignArray>],
        settings: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<(DeviceBuffer, Report)> {
        let layout = arrays.first().ok_or(Error::NoFrames { path: None })?.layout();
        let ([_, h, w, _], dtype) = (layout.shape, layout.dtype);
        let gpu = self.gpu()?.expect("arrays of a GPU belong to a session on one");
        let numbered = numbered(arrays);
        if let Some(index) = gpu.ops().find_nan(&numbered)? {
            return Err(not_a_number(index as usize, h, w));
        }
        let depth = match dtype.samples() {
            SampleType::U8 => Depth::Eight,
            SampleType::U16 => Depth::Sixteen,
            SampleType::F32 => Depth::Float,
        };
        let size = Size { h, w };
        let info = Info { size, frames: Some(numbered.len()), depth, ..reseed_media::sample().info().clone() };
        let output = settings.output(&info)?.size;
        let buffer = Arc::new(gpu.buffer(numbered.len() * 3 * output.pixels() * dtype.bytes())?);
        let place = |index| -> Box<dyn DeviceResult> {
            Box::new(BufferFrame::new(buffer.clone(), index, Hw::new(output.h, output.w), dtype))
        };
        let mut places = InPlace((0..numbered.len()).map(place).collect());
        let frames = ArrayFrame::all(arrays).map(|frame| DeviceInput { size, depth, samples: Box::new(frame) });
        let clip = ClipInput::Device(&info, frames.collect());
        let report = self.execute_with(clip, settings, &mut places, (observer, None))?;
        drop(places);
        Ok((Arc::into_inner(buffer).expect("the job has ended"), report))
    }
}

/// Frames that are finished in the memory of a GPU.
struct InPlace(Vec<Box<dyn DeviceResult>>);

impl Output for InPlace {
    fn open(&mut self, _: &Info, _: &Environment) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Unused))
    }

    fn start(&mut self, _: &str, _: &Info) -> Result<Checkpoint> {
        Ok(Checkpoint::default())
    }

    fn watch(&mut self) -> Watch<'_> {
        Watch { places: &self.0, ..Watch::default() }
    }
}

/// The sink of a job whose frames all have places.
struct Unused;

impl Sink for Unused {
    fn write(&mut self, _: &Frame) -> reseed_media::Result<()> {
        unreachable!("every frame has a place")
    }

    fn finish(self: Box<Self>) -> reseed_media::Result<()> {
        Ok(())
    }
}
