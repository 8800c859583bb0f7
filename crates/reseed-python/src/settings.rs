//! Keyword arguments as settings of the engine. Names and defaults are those of the command line.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use reseed::media::video::{Clip, Codec, Deinterlace, Options, is_option_name, parse_time};
use reseed::media::{Rate, Size};
use reseed::{Batching, Budget, Existing, Hw, MathMode, NoiseSource, Precision, Settings, Target, VaeSettings};

use crate::errors::{Failure, Result};

const COLORS: &str = "lab, wavelet, wavelet-adaptive, hsv, adain or none";

/// Settings of every job.
const SETTINGS: &[&str] = &[
    "scale",
    "resolution",
    "size",
    "max_resolution",
    "batch_size",
    "uniform_batch_size",
    "overlap",
    "overlap_mode",
    "prepend_frames",
    "seed",
    "noise_file",
    "color",
    "latent_noise",
    "strength",
    "no_shot_detection",
    "slice",
    "tile",
    "tile_overlap",
];
/// Settings of jobs on files.
const FILES: &[&str] = &[
    "start",
    "end",
    "deinterlace",
    "ivtc",
    "fps",
    "codec",
    "crf",
    "encoder_args",
    "no_audio",
    "no_subtitles",
    "no_chapters",
    "no_metadata",
    "no_attachments",
    "existing",
];

/// Keyword arguments.
pub struct Keywords<'a, 'py>(pub &'a Bound<'py, PyDict>);

impl Keywords<'_, '_> {
    /// Fails for names that no setting has.
    pub fn check(&self, function: &str, files: bool) -> Result<()> {
        for key in self.0.keys() {
            let key: String = key.extract()?;
            if !(SETTINGS.contains(&&*key) || files && FILES.contains(&&*key)) {
                let message = format!("{function}() got an unexpected keyword argument '{key}'");
                return Err(PyTypeError::new_err(message).into());
            }
        }
        Ok(())
    }

    /// The value of an argument that is given and not `None`.
    fn get(&self, key: &str) -> Result<Option<Bound<'_, PyAny>>> {
        Ok(self.0.get_item(key)?.filter(|value| !value.is_none()))
    }

    fn wrong(&self, key: &str, value: &Bound<'_, PyAny>, what: &str) -> Failure {
        let shown = value.repr().map_or_else(|_| "the value".to_owned(), |text| text.to_string());
        Failure::Usage(format!("{key}: {shown} is not {what}"))
    }

    /// A number of any type that converts, but no truth value.
    fn number<T: for<'a, 'py> FromPyObject<'a, 'py>>(&self, key: &str, what: &str) -> Result<Option<T>> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        match value.extract::<T>() {
            Ok(number) if !value.is_instance_of::<PyBool>() => Ok(Some(number)),
            _ => Err(self.wrong(key, &value, what)),
        }
    }

    fn count(&self, key: &str, least: u16) -> Result<Option<usize>> {
        let what = format!("a whole number from {least} to {}", u16::MAX);
        let count: Option<u16> = self.number(key, &what)?;
        match (count, self.get(key)?) {
            (Some(count), Some(value)) if count < least => Err(self.wrong(key, &value, &what)),
            (count, _) => Ok(count.map(usize::from)),
        }
    }

    fn truth(&self, key: &str) -> Result<bool> {
        let Some(value) = self.get(key)? else { return Ok(false) };
        value.extract().map_err(|_| self.wrong(key, &value, "True or False"))
    }

    /// A text that `parse` understands.
    fn word<T>(&self, key: &str, what: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        let text: Option<String> = value.extract().ok();
        text.and_then(|text| parse(&text)).map(Some).ok_or_else(|| self.wrong(key, &value, what))
    }

    fn path(&self, key: &str) -> Result<Option<PathBuf>> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        value.extract().map(Some).map_err(|_| self.wrong(key, &value, "a path"))
    }

    /// Two numbers, or a text such as `512x512`.
    fn pair(&self, key: &str, what: &str) -> Result<Option<(usize, usize)>> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        let numbers = match value.extract::<String>() {
            Ok(text) => text.split_once(['x', 'X']).and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?))),
            Err(_) => value.extract().ok(),
        };
        numbers.map(Some).ok_or_else(|| self.wrong(key, &value, what))
    }

    /// Seconds, or a text such as `1:30`.
    fn time(&self, key: &str) -> Result<Option<Duration>> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        let wrong = || self.wrong(key, &value, "a time such as 90, \"1:30\" or \"0:01:30.5\"");
        let text = value.str()?.to_string();
        parse_time(&text).map(Some).ok_or_else(wrong)
    }

    /// The settings of a job.
    pub fn settings(&self) -> Result<Settings> {
        let defaults = Settings::default();
        let size = self.count("batch_size", 1)?.unwrap_or(defaults.batching.size);
        let batching = Batching::new(size, self.count("overlap", 0)?, self.truth("uniform_batch_size")?);
        let seed = self.number("seed", "a whole number from 0 on")?;
        let noise = match (self.path("noise_file")?, seed) {
            (Some(_), Some(_)) => return Err(Failure::Usage("give either seed or noise_file".into())),
            (Some(path), None) => NoiseSource::File(path),
            (None, seed) => seed.map_or(defaults.noise.clone(), NoiseSource::Seed),
        };
        let overlap = self.word("overlap_mode", "auto, smooth or reference", |word| word.parse().ok())?;
        let settings = Settings {
            target: self.target()?.unwrap_or(defaults.target),
            longest: self.number("max_resolution", "a number of pixels")?,
            batching,
            overlap: overlap.unwrap_or(defaults.overlap),
            detect_shots: !self.truth("no_shot_detection")?,
            lead_in: self.count("prepend_frames", 0)?.unwrap_or(0),
            noise,
            latent_noise: self.number("latent_noise", "a number from 0 to 1")?.unwrap_or(0.0),
            strength: self.number("strength", "a number from 0 to 1")?,
            color: self.word("color", COLORS, |word| word.parse().ok())?,
            vae: self.vae()?,
            ..defaults
        };
        settings.check()?;
        Ok(settings)
    }

    fn target(&self) -> Result<Option<Target>> {
        let scale: Option<f64> = self.number("scale", "a number")?;
        let size = self.pair("size", "a size such as (1920, 1080) or \"1920x1080\", width first")?;
        let short = match self.get("resolution")? {
            Some(value) => {
                let text = value.str()?.to_string();
                let what = "a shorter side in pixels, or a word such as 720p, 1080p or 4k";
                match text.parse() {
                    Ok(Target::ShortSide(side)) => Some(Target::ShortSide(side)),
                    _ => return Err(self.wrong("resolution", &value, what)),
                }
            }
            None => None,
        };
        let exact = size.map(|(w, h)| Target::Exact(Size { h, w }));
        match [scale.map(Target::Scale), short, exact].into_iter().flatten().collect::<Vec<_>>()[..] {
            [] => Ok(None),
            [target] => Ok(Some(target)),
            _ => Err(Failure::Usage("give one of scale, resolution and size".into())),
        }
    }

    fn vae(&self) -> Result<VaeSettings> {
        let what = "a size such as (512, 512) or \"512x512\", height first";
        let plane = |pair: Option<(usize, usize)>| pair.map(|(h, w)| Hw::new(h, w));
        let (tile, overlap) = (plane(self.pair("tile", what)?), plane(self.pair("tile_overlap", what)?));
        if overlap.is_some() && tile.is_none() {
            return Err(Failure::Usage("tile_overlap needs tile".into()));
        }
        let tiled = tile.map(|tile| VaeSettings::tiled(tile, overlap)).unwrap_or_default();
        Ok(VaeSettings { slice: self.count("slice", 1)?, ..tiled })
    }

    /// The part of a video.
    pub fn clip(&self) -> Result<Clip> {
        let (start, end) = (self.time("start")?, self.time("end")?);
        if end.is_some_and(|end| start.unwrap_or_default() >= end) {
            return Err(Failure::Usage("end must be later than start".into()));
        }
        let known = ["auto", "off", "bob", "single"];
        let deinterlace = self.word("deinterlace", "auto, off, bob or single", |word| {
            word.parse::<Deinterlace>().ok().filter(|_| known.contains(&word))
        })?;
        let deinterlace = match self.truth("ivtc")? {
            true if deinterlace.is_some() => return Err(Failure::Usage("give either deinterlace or ivtc".into())),
            true => Deinterlace::InverseTelecine,
            false => deinterlace.unwrap_or_default(),
        };
        let rate = match self.get("fps")? {
            Some(value) => {
                let rate = value.str()?.to_string().parse::<Rate>();
                Some(rate.map_err(|_| self.wrong("fps", &value, "a rate such as 24, 12.5 or \"30000/1001\""))?)
            }
            None => None,
        };
        Ok(Clip { start, end, deinterlace, rate })
    }

    /// How a video is encoded.
    pub fn options(&self) -> Result<Options> {
        let codecs = "a codec such as h264, hevc, av1, ffv1, prores or hevc-nvenc";
        let encoder_args = match self.get("encoder_args")? {
            Some(value) => {
                let wrong =
                    || self.wrong("encoder_args", &value, "a dict of encoder options such as {\"preset\": \"slow\"}");
                let given = value.cast::<PyDict>().map_err(|_| wrong())?;
                let pair = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| -> Result<(String, String)> {
                    let name: String = name.cast::<PyString>().map_err(|_| wrong())?.extract()?;
                    if is_option_name(&name) { Ok((name, value.str()?.to_string())) } else { Err(wrong()) }
                };
                given.iter().map(pair).collect::<Result<_>>()?
            }
            None => Vec::new(),
        };
        Ok(Options {
            codec: self.word("codec", codecs, |word| word.parse::<Codec>().ok())?,
            crf: self.number("crf", "a whole number from 0 on")?,
            encoder_args,
            audio: !self.truth("no_audio")?,
            subtitles: !self.truth("no_subtitles")?,
            chapters: !self.truth("no_chapters")?,
            metadata: !self.truth("no_metadata")?,
            attachments: !self.truth("no_attachments")?,
            ..Options::default()
        })
    }

    /// What happens to existing files.
    pub fn existing(&self) -> Result<Existing> {
        let existing = self.word("existing", "refuse, overwrite or resume", |word| match word {
            "refuse" => Some(Existing::Refuse),
            "overwrite" => Some(Existing::Overwrite),
            "resume" => Some(Existing::Resume),
            _ => None,
        })?;
        Ok(existing.unwrap_or_default())
    }

    /// Bytes, or a text such as `8G`.
    pub fn budget(&self, key: &str) -> Result<Option<Budget>> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        let wrong = || self.wrong(key, &value, "a number of bytes or a size such as \"8G\"");
        match value.extract::<String>() {
            Ok(text) => text.parse().map(Some).map_err(|_| wrong()),
            Err(_) => value.extract().map(|bytes| Some(Budget::bytes(bytes))).map_err(|_| wrong()),
        }
    }

    /// The type of the activations.
    pub fn precision(&self, key: &str) -> Result<Option<Precision>> {
        self.word(key, "f32, tf32, f16 or bf16", |word| word.parse().ok())
    }

    /// The accuracy that the products of a GPU keep.
    pub fn math(&self, key: &str) -> Result<MathMode> {
        Ok(self.word(key, "exact, fast, int8 or reference", |word| word.parse().ok())?.unwrap_or_default())
    }

    /// Threads of the CPU.
    pub fn threads(&self, key: &str) -> Result<Option<usize>> {
        self.count(key, 1)
    }

    pub fn file(&self, key: &str) -> Result<Option<PathBuf>> {
        self.path(key)
    }
}
