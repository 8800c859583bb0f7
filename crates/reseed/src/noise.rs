//! The initial noise of the transformer, drawn on the host so that it is equal on every device.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use reseed_model::noise::normal;
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::Safetensors;
use reseed_ops::{Shape, Thw};

use crate::error::{Error, Result};
use crate::latent::Latent;

/// Prefixes of the tensor names in a noise file; the batch index follows.
const FIRST: &str = "noise";
const SECOND: &str = "second_noise";

/// The source of the noise.
pub enum Noise {
    /// A seeded generator that restarts for every batch, as in the public pipeline: batches of one shape get equal
    /// noise.
    Seed(Seeded),
    /// Tensors `noise0`, `noise1`, … `[L, C, h, w]` of a file, one per batch, and `second_noise0`, … where noise is
    /// added to the condition.
    File(Safetensors),
}

impl Noise {
    /// Opens a noise file. Other tensors in the file are ignored.
    pub fn open(path: &Path) -> Result<Noise> {
        let is_noise = |name: &str| name.starts_with(FIRST) || name.starts_with(SECOND);
        Ok(Noise::File(Safetensors::open_filtered(path, &is_noise).map_err(Error::Noise)?))
    }

    /// The noise of a batch, and with `second` a second draw for its condition.
    pub fn draw(&self, batch: usize, thw: Thw, channels: usize, second: bool) -> Result<Arc<Draw>> {
        match self {
            Noise::Seed(seeded) => Ok(seeded.draw(thw, channels, second)),
            Noise::File(file) => {
                let second = second.then(|| read(file, format!("{SECOND}{batch}"), thw, channels)).transpose()?;
                Ok(Arc::new(Draw { first: read(file, format!("{FIRST}{batch}"), thw, channels)?, second }))
            }
        }
    }
}

/// The noise of a batch.
pub struct Draw {
    /// What the step starts from.
    pub first: Latent,
    /// Noise for the condition.
    pub second: Option<Latent>,
}

/// A seeded generator.
pub struct Seeded {
    seed: u64,
    /// Most batches of a job have one shape: drawing takes longer than a step of a small transformer.
    last: Mutex<Option<Arc<Draw>>>,
}

impl Seeded {
    /// Nothing is drawn yet.
    pub fn new(seed: u64) -> Seeded {
        Seeded { seed, last: Mutex::default() }
    }

    fn draw(&self, thw: Thw, channels: usize, second: bool) -> Arc<Draw> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |draw: &&Arc<Draw>| {
            (draw.first.thw, draw.first.channels(), draw.second.is_some()) == (thw, channels, second)
        };
        if let Some(draw) = last.as_ref().filter(same) {
            return draw.clone();
        }
        // Dropped first, so that two draws never need memory at once.
        *last = None;
        let count = thw.count() * channels;
        let stream = normal(self.seed, if second { 2 * count } else { count });
        let latent = |values: &[f32]| Latent::from_planes(thw, channels, |c, t| (c * thw.t + t, values));
        let second = second.then(|| latent(&stream[count..]));
        last.insert(Arc::new(Draw { first: latent(&stream[..count]), second })).clone()
    }
}

fn read(file: &Safetensors, name: String, thw: Thw, channels: usize) -> Result<Latent> {
    let path = file.path().to_path_buf();
    let needed = Shape::from([thw.t, channels, thw.h, thw.w]);
    match file.shapes().get(&name) {
        None => Err(Error::NoNoise { path, name }),
        Some(found) if *found != needed => Err(Error::NoiseShape { path, name, found: *found, needed }),
        Some(_) => {
            let values = file.read(&name).map_err(Error::Noise)?;
            Ok(Latent::from_planes(thw, channels, |c, t| (t * channels + c, &values)))
        }
    }
}

/// A condition with noise: c ← (1 - b) c + b (0.1 noise + 0.05 second), with b the timestep `scale` in [0, 1],
/// shifted for the resolution.
///
/// The public pipeline passes (h, w, channels) as (L, h, w) to the timestep shift. This function does the same, so that
/// a given scale has the same strength.
pub fn noised(condition: &Latent, noise: &Latent, second: &Latent, scale: f32) -> Latent {
    let (mut condition, Thw { h, w, .. }) = (condition.clone(), condition.thw);
    let b = shifted_timestep(f64::from(scale), (h - 1) * 4 + 1, 8 * w * 8 * condition.channels()) as f32;
    for ((c, first), second) in condition.values.iter_mut().zip(&noise.values).zip(&second.values) {
        *c = (1.0 - b) * *c + b * (0.1 * first + 0.05 * second);
    }
    condition
}

/// Timestep shift s t / (1 + (s - 1) t). The shift s grows linearly with the pixels of an image, or with frames times
/// pixels of a clip.
fn shifted_timestep(timestep: f64, frames: usize, pixels: usize) -> f64 {
    let line = |x: usize, (x1, y1): (usize, f64), (x2, y2): (usize, f64)| {
        y1 + (y2 - y1) * (x as f64 - x1 as f64) / (x2 as f64 - x1 as f64)
    };
    let shift = match frames {
        1 => line(pixels, (256 * 256, 1.0), (1024 * 1024, 3.2)),
        _ => line(frames * pixels, (256 * 256 * 37, 1.0), (1280 * 720 * 145, 5.0)),
    };
    shift * timestep / (1.0 + (shift - 1.0) * timestep)
}
