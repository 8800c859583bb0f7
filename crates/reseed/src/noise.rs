//! The noise that the transformer starts from, made on the host so that every device starts from the same.

use std::path::Path;

use reseed_model::noise::normal;
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::Safetensors;
use reseed_ops::{Shape, Thw};

use crate::error::{Error, Result};
use crate::latent::Latent;

/// Names of tensors in a file, before the number of their batch.
const FIRST: &str = "noise";
const SECOND: &str = "second_noise";

/// Where noise comes from.
pub enum Noise {
    /// Drawn from this seed, afresh for every batch, as the public pipeline draws it: batches of one shape start alike.
    Seed(u64),
    /// Tensors `noise0`, `noise1`, … of a file, `[L, C, h, w]`, one a batch; where the condition is noised,
    /// `second_noise0`, … as well.
    File(Safetensors),
}

impl Noise {
    /// Noise from a file, which may hold anything else beside it.
    pub fn open(path: &Path) -> Result<Noise> {
        let is_noise = |name: &str| name.starts_with(FIRST) || name.starts_with(SECOND);
        Ok(Noise::File(Safetensors::open_filtered(path, &is_noise).map_err(Error::Noise)?))
    }

    /// Noise for a batch, and a second draw where its condition is noised as well.
    pub fn draw(&self, batch: usize, thw: Thw, channels: usize, second: bool) -> Result<(Latent, Option<Latent>)> {
        let count = thw.count() * channels;
        match self {
            Noise::Seed(seed) => {
                let stream = normal(*seed, if second { 2 * count } else { count });
                let latent = |values: &[f32]| Latent::gathered(thw, channels, |c, t| (c * thw.t + t, values));
                Ok((latent(&stream[..count]), second.then(|| latent(&stream[count..]))))
            }
            Noise::File(file) => {
                let second = second.then(|| read(file, format!("{SECOND}{batch}"), thw, channels));
                Ok((read(file, format!("{FIRST}{batch}"), thw, channels)?, second.transpose()?))
            }
        }
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
            Ok(Latent::gathered(thw, channels, |c, t| (t * channels + c, &values)))
        }
    }
}

/// Mixes noise into a condition, more the larger `scale` in [0, 1] is: c ← (1 - b) c + b (noise/10 + second/20), with
/// b the share of noise at timestep `scale`, moved for the number of pixels.
///
/// The public pipeline reads (h, w, channels) for (L, h, w) when it moves the timestep; kept, since that decides how
/// strong a given scale is.
pub fn noised_condition(condition: &mut Latent, noise: &Latent, second: &Latent, scale: f32) {
    let Thw { h, w, .. } = condition.thw;
    let share = shifted(f64::from(scale), (h - 1) * 4 + 1, 8 * w * 8 * condition.channels()) as f32;
    for ((c, first), second) in condition.values.iter_mut().zip(&noise.values).zip(&second.values) {
        *c = (1.0 - share) * *c + share * (0.1 * first + 0.05 * second);
    }
}

/// A share of noise moved for a clip of so many frames and pixels a frame: the more of them, the more noise.
fn shifted(share: f64, frames: usize, pixels: usize) -> f64 {
    let line = |x: usize, (x1, y1): (usize, f64), (x2, y2): (usize, f64)| {
        y1 + (y2 - y1) * (x as f64 - x1 as f64) / (x2 as f64 - x1 as f64)
    };
    let shift = match frames {
        1 => line(pixels, (256 * 256, 1.0), (1024 * 1024, 3.2)),
        _ => line(frames * pixels, (256 * 256 * 37, 1.0), (1280 * 720 * 145, 5.0)),
    };
    shift * share / (1.0 + (shift - 1.0) * share)
}
