//! The arguments of `Upscale`, with the names and defaults of the command line.

use std::ffi::CStr;
use std::path::PathBuf;
use std::str::FromStr;

use reseed::media::Size;
use reseed::{Batching, NoiseSource, Settings, Target};

use crate::host::Map;
use crate::sessions::SessionKey;

/// The arguments and their types.
pub const SIGNATURE: &CStr = c"clip:vnode;\
    model:data:opt;vae:data:opt;text_embedding:data:opt;device:data:opt;\
    scale:float:opt;resolution:int:opt;size:data:opt;max_resolution:int:opt;\
    batch_size:int:opt;uniform_batch_size:int:opt;overlap:int:opt;overlap_mode:data:opt;\
    prepend_frames:int:opt;no_shot_detection:int:opt;\
    color:data:opt;strength:float:opt;seed:int:opt;latent_noise:float:opt;\
    max_vram:data:opt;dtype:data:opt;threads:int:opt;cache:int:opt;";

/// Batches whose results are kept by default.
const CACHE: usize = 4;
/// Most frames of a batch and of the lead-in, as on the command line.
const MOST_FRAMES: i64 = u16::MAX as i64;
/// Most threads, batches in the cache and pixels of a side.
const MOST: i64 = 1 << 16;

/// What a script chose.
pub struct Arguments {
    /// Model and device.
    pub session: SessionKey,
    /// What the result depends on.
    pub settings: Settings,
    /// Batches whose results are kept.
    pub cache: usize,
}

impl Arguments {
    /// Reads the arguments; an error names the one that is wrong.
    pub fn read(map: &Map) -> Result<Arguments, String> {
        let session = SessionKey {
            model: map.text(c"model"),
            vae: map.text(c"vae").map(PathBuf::from),
            text: map.text(c"text_embedding").map(PathBuf::from),
            device: map.text(c"device").map(device),
            budget: parsed(map, c"max_vram")?,
            dtype: parsed(map, c"dtype")?,
            threads: int(map, c"threads", 1..=MOST)?,
        };
        let default = Settings::default();
        let size = int(map, c"batch_size", 1..=MOST_FRAMES)?.unwrap_or(default.batching.size);
        let overlap = int(map, c"overlap", 0..=MOST_FRAMES)?;
        let settings = Settings {
            target: target(map)?.unwrap_or(default.target),
            longest: int(map, c"max_resolution", 1..=MOST)?,
            batching: Batching::new(size, overlap, flag(map, c"uniform_batch_size")),
            overlap: parsed(map, c"overlap_mode")?.unwrap_or(default.overlap),
            detect_shots: !flag(map, c"no_shot_detection"),
            lead_in: int(map, c"prepend_frames", 0..=MOST_FRAMES)?.unwrap_or(default.lead_in),
            noise: map.int(c"seed").map_or(default.noise, |seed| NoiseSource::Seed(seed as u64)),
            latent_noise: map.float(c"latent_noise").map_or(default.latent_noise, |value| value as f32),
            strength: map.float(c"strength").map(|value| value as f32),
            color: parsed(map, c"color")?,
            ..Settings::default()
        };
        let cache = int(map, c"cache", 1..=MOST)?.unwrap_or(CACHE);
        Ok(Arguments { session, settings, cache })
    }
}

/// The size of the output, where one was chosen.
fn target(map: &Map) -> Result<Option<Target>, String> {
    let scale = map.float(c"scale").map(Target::Scale);
    let resolution = int(map, c"resolution", 1..=MOST)?.map(Target::ShortSide);
    let exact = map.text(c"size").map(|text| exact_size(&text)).transpose()?;
    let chosen: Vec<Target> = [scale, resolution, exact].into_iter().flatten().collect();
    match chosen[..] {
        [] => Ok(None),
        [target] => Ok(Some(target)),
        _ => Err("scale, resolution and size exclude each other; give one of them".into()),
    }
}

fn exact_size(text: &str) -> Result<Target, String> {
    let side = |text: &str| text.parse::<usize>().ok().filter(|side| (1..=MOST as usize).contains(side));
    let sides = text.split_once(['x', 'X']).and_then(|(w, h)| Some((side(w)?, side(h)?)));
    let (w, h) = sides.ok_or_else(|| format!("size `{text}` is not WIDTHxHEIGHT, such as 1920x1080"))?;
    Ok(Target::Exact(Size { h, w }))
}

/// An integer within a range.
fn int(map: &Map, key: &CStr, range: std::ops::RangeInclusive<i64>) -> Result<Option<usize>, String> {
    match map.int(key) {
        Some(value) if range.contains(&value) => Ok(Some(value as usize)),
        Some(value) => {
            let key = key.to_string_lossy();
            Err(format!("{key} {value}: must be between {} and {}", range.start(), range.end()))
        }
        None => Ok(None),
    }
}

fn flag(map: &Map, key: &CStr) -> bool {
    map.int(key).is_some_and(|value| value != 0)
}

/// An argument that is written as text.
fn parsed<T: FromStr<Err = String>>(map: &Map, key: &CStr) -> Result<Option<T>, String> {
    let value = map.text(key).map(|text| text.parse()).transpose();
    value.map_err(|message| format!("{}: {message}", key.to_string_lossy()))
}

/// A bare number is the number of a GPU.
fn device(text: String) -> String {
    let number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if number { format!("cuda:{text}") } else { text }
}
