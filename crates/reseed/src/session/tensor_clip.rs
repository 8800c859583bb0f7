//! The encoder or the decoder from a file of tensors to another.

use std::collections::BTreeMap;
use std::path::Path;

use reseed_model::plan::{TileInput, padded_frames, padded_plane};
use reseed_model::weights::Source;
use reseed_model::{Coder, Config};
use reseed_ops::{Device, Hw, Shape};

use super::coder::{CoderRun, load_coder};
use super::extend::{Extended, crop};
use super::tensor_file::{TensorInput, TensorOutput};
use crate::devices::DeviceHandle;
use crate::error::Result;
use crate::observer::Observer;
use crate::planner::clip::{CoderClip, Direction};
use crate::settings::VaeSettings;

/// A clip in a file, the coder that converts it, and the file that it becomes.
pub struct TensorClip {
    input: TensorInput,
    output: TensorOutput,
    config: Config,
    coder: Box<dyn Coder>,
    direction: Direction,
    /// Frames of pixels.
    frames: usize,
    shape: Shape,
}

impl TensorClip {
    /// Opens the input, loads the coder, and starts the output.
    pub fn open(
        direction: Direction,
        device: &DeviceHandle,
        weights: &dyn Source,
        [input, output]: [&Path; 2],
    ) -> Result<TensorClip> {
        let input = TensorInput::open(input)?;
        let config = Config::detect(weights)?;
        match direction {
            Direction::Encode => input.needs_channels(&[config.image], "frames")?,
            Direction::Decode => input.needs_channels(&[config.latent, 2 * config.latent], "latents and moments")?,
        }
        let (config, coder) = load_coder(&*device.ops, weights, direction)?;
        let (frames, shape, metadata) = match direction {
            Direction::Encode => {
                let frames = padded_frames(input.frames, config.temporal_factor());
                let latent = coder.plane_out(padded_plane(input.plane, config.spatial_factor()));
                let shape = [coder.frames_out(frames, true), coder.channels_out(), latent.h, latent.w];
                let original = [("frames", input.frames), ("height", input.plane.h), ("width", input.plane.w)];
                (frames, shape, original.into_iter().map(|(key, value)| (key.into(), value.to_string())).collect())
            }
            Direction::Decode => {
                let frames = coder.frames_out(input.frames, true);
                let (kept, plane) = original(&input, &config, frames, coder.plane_out(input.plane));
                (frames, [kept, config.image, plane.h, plane.w], BTreeMap::new())
            }
        };
        let shape = Shape::from(shape);
        let output = TensorOutput::create(output, shape, &metadata)?;
        Ok(TensorClip { input, output, config, coder, direction, frames, shape })
    }

    /// The output until it is complete, which is removed on drop.
    pub fn partial(&self) -> &Path {
        self.output.partial()
    }

    /// Number of frames of pixels, padding included.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Shape of the output.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Converts the clip and gives the output its name. `ops` is the device, or a wrapper of it.
    pub fn run(
        self,
        device: &DeviceHandle,
        ops: &dyn Device,
        settings: VaeSettings,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        match self.direction {
            Direction::Encode => self.encode(device, ops, settings, observer),
            Direction::Decode => self.decode(device, ops, settings, observer),
        }
    }

    fn encode(
        self,
        device: &DeviceHandle,
        ops: &dyn Device,
        settings: VaeSettings,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let TensorClip { input, mut output, config, coder, frames, .. } = self;
        let mut numbers = 0..input.frames;
        let next = || -> Result<Option<Vec<f32>>> {
            numbers.next().map(|number| input.frame(number, config.image)).transpose()
        };
        let mut extended = Extended::new(next, input.plane, config.spatial_factor(), config.temporal_factor());
        let plane = extended.padded();
        let (channels, latent) = (coder.channels_out(), coder.plane_out(plane).count());
        let clip = CoderClip { coder: &*coder, config: &config, input: TileInput::Frames, plane, frames };
        CoderRun { device, ops, clip, settings }.run(
            |count| extended.slice(count),
            |values| values.chunks_exact(latent * channels).try_for_each(|frame| output.frame(frame, channels)),
            observer,
        )?;
        output.finish()
    }

    fn decode(
        self,
        device: &DeviceHandle,
        ops: &dyn Device,
        settings: VaeSettings,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let TensorClip { input, mut output, config, coder, shape, .. } = self;
        let (whole, kept) = (coder.plane_out(input.plane), Hw::new(shape.dims()[2], shape.dims()[3]));
        let (mut read, mut left) = (0, shape.dims()[0]);
        let next = |count: usize| -> Result<Vec<f32>> {
            let end = (read + count).min(input.frames);
            let latents: Result<Vec<Vec<f32>>> = (read..end).map(|i| input.frame(i, config.latent)).collect();
            read = end;
            Ok(latents?.concat())
        };
        let (plane, frames) = (input.plane, input.frames);
        let clip = CoderClip { coder: &*coder, config: &config, input: TileInput::Latents, plane, frames };
        let write = |values: &[f32]| {
            for frame in values.chunks_exact(whole.count() * config.image).take(left) {
                output.frame(&crop(frame, whole, kept), config.image)?;
                left -= 1;
            }
            Ok(())
        };
        CoderRun { device, ops, clip, settings }.run(next, write, observer)?;
        output.finish()
    }
}

/// Length and size of the clip before it was extended and padded, where the encoder recorded them.
fn original(input: &TensorInput, config: &Config, frames: usize, plane: Hw) -> (usize, Hw) {
    let recorded = || {
        let recorded = (input.number("frames")?, Hw::new(input.number("height")?, input.number("width")?));
        let (n, size) = recorded;
        let possible = n > 0
            && padded_frames(n, config.temporal_factor()) == frames
            && padded_plane(size, config.spatial_factor()) == plane;
        possible.then_some(recorded)
    };
    recorded().unwrap_or((frames, plane))
}
