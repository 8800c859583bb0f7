//! What the result of a job depends on, as names and values, so that only the same job is resumed.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use reseed_media::video::{Clip, Options};
use reseed_media::{Digest, Size};
use reseed_model::plan::Tiling;
use reseed_ops::Hw;
use serde_json::{Map, Value};

use crate::alpha::AlphaRange;
use crate::batch::Batching;
use crate::error::{Error, Result};
use crate::names::{name_of, named};
use crate::settings::{NoiseSource, Settings, VaeSettings};
use crate::size::Target;

/// Options of the encoder, which no frame depends on before it is encoded.
const ENCODER: [&str; 2] = ["crf", "encoder arguments"];
/// The value of a setting that was not chosen.
const DEFAULT: &str = "default";
/// The noise of a job whose noise comes from a file; the path is not part of the record.
const NOISE_FILE: &str = "file";

const RANGES: [(&str, AlphaRange); 2] = [("fixed", AlphaRange::Fixed), ("inferred", AlphaRange::Inferred)];

/// Names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRecord(BTreeMap<String, String>);

impl JobRecord {
    /// The settings of a job and its options for video files.
    pub fn new(settings: &Settings, clip: &Clip, video: &Options) -> JobRecord {
        let mut record = JobRecord::default();
        record.set_settings(settings);
        record.set_video(clip, video);
        record
    }

    fn set_settings(&mut self, settings: &Settings) {
        let Batching { size, overlap, uniform } = settings.batching;
        self.set("target", target_text(settings.target));
        self.set("longest side", chosen(settings.longest));
        self.set("even sides", settings.even_sides);
        self.set("batch size", size);
        self.set("overlap", overlap);
        self.set("uniform batch size", uniform);
        self.set("cross-fade", settings.overlap);
        self.set("shot detection", settings.detect_shots);
        self.set("lead-in", settings.lead_in);
        self.set("latent noise", settings.latent_noise);
        self.set("strength", chosen(settings.strength));
        self.set("color", chosen(settings.color));
        self.set("alpha range", name_of(&RANGES, settings.alpha_range));
        self.set("tiles", chosen(settings.vae.tiling.map(tiling_text)));
        self.set("slice", chosen(settings.vae.slice));
        self.set(
            "seed",
            match &settings.noise {
                NoiseSource::Seed(seed) => seed.to_string(),
                NoiseSource::File(_) => NOISE_FILE.into(),
            },
        );
    }

    fn set_video(&mut self, clip: &Clip, video: &Options) {
        self.set("start", chosen(clip.start.map(|time| time.as_micros())));
        self.set("end", chosen(clip.end.map(|time| time.as_micros())));
        self.set("deinterlace", clip.deinterlace);
        self.set("rate", chosen(clip.rate));
        self.set("codec", chosen(video.codec));
        self.set("crf", chosen(video.crf));
        let arguments = video.encoder_args.iter().map(|(name, value)| format!("{name}={value}"));
        self.set("encoder arguments", Value::from(arguments.collect::<Vec<_>>()));
        self.set("audio", video.audio);
        self.set("subtitles", video.subtitles);
        self.set("chapters", video.chapters);
        self.set("metadata", video.metadata);
        self.set("attachments", video.attachments);
    }

    /// The settings again; `noise_file` is the file of noise, if the job has one.
    pub fn settings(&self, noise_file: Option<&Path>) -> Option<Settings> {
        let noise = match (self.0.get("seed")?.as_str(), noise_file) {
            (NOISE_FILE, path) => NoiseSource::File(path?.into()),
            (seed, _) => NoiseSource::Seed(seed.parse().ok()?),
        };
        let tiling = match self.optional::<String>("tiles")? {
            Some(text) => Some(tiling(&text)?),
            None => None,
        };
        Some(Settings {
            target: target(self.0.get("target")?)?,
            longest: self.optional("longest side")?,
            even_sides: self.get("even sides")?,
            batching: Batching {
                size: self.get("batch size")?,
                overlap: self.get("overlap")?,
                uniform: self.get("uniform batch size")?,
            },
            overlap: self.get("cross-fade")?,
            detect_shots: self.get("shot detection")?,
            lead_in: self.get("lead-in")?,
            noise,
            latent_noise: self.get("latent noise")?,
            strength: self.optional("strength")?,
            color: self.optional("color")?,
            alpha_range: named(&RANGES, self.0.get("alpha range")?).ok()?,
            vae: VaeSettings { tiling, slice: self.optional("slice")? },
        })
    }

    /// The options for video files again.
    pub fn video(&self) -> Option<(Clip, Options)> {
        let time = |name| Some(self.optional(name)?.map(Duration::from_micros));
        let arguments: Vec<String> = serde_json::from_str(self.0.get("encoder arguments")?).ok()?;
        let split = |argument: &String| argument.split_once('=').map(|(name, value)| (name.into(), value.into()));
        let options = Options {
            codec: self.optional("codec")?,
            crf: self.optional("crf")?,
            encoder_args: arguments.iter().map(split).collect::<Option<_>>()?,
            audio: self.get("audio")?,
            subtitles: self.get("subtitles")?,
            chapters: self.get("chapters")?,
            metadata: self.get("metadata")?,
            attachments: self.get("attachments")?,
            ..Options::default()
        };
        let (start, end, rate) = (time("start")?, time("end")?, self.optional("rate")?);
        Some((Clip { start, end, deinterlace: self.get("deinterlace")?, rate }, options))
    }

    /// Adds or replaces a value.
    pub fn set(&mut self, name: &str, value: impl Display) {
        self.0.insert(name.into(), value.to_string());
    }

    /// Whether there is a value of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Adds the identity of a file or folder that is read.
    pub fn set_file(&mut self, name: &str, path: &Path) -> Result<()> {
        let identity = identity(path).map_err(|cause| Error::Read { path: path.into(), cause })?;
        self.set(name, identity);
        Ok(())
    }

    /// Adds the identity of several files; errors name `path`.
    pub fn set_files(&mut self, name: &str, path: &Path, files: &[PathBuf]) -> Result<()> {
        let identity = identity_of(files).map_err(|cause| Error::Read { path: path.into(), cause })?;
        self.set(name, identity);
        Ok(())
    }

    /// Takes the options of the encoder from another record. Returns whether any was different.
    pub fn take_encoder_options(&mut self, from: &JobRecord) -> bool {
        let before = self.clone();
        for name in ENCODER {
            from.0.get(name).into_iter().for_each(|value| self.set(name, value));
        }
        *self != before
    }

    /// The first of these values that `before` does not have: its name, its value before, and its value now. The device
    /// comes last, because its instructions follow from the data type.
    pub fn difference(&self, before: &JobRecord) -> Option<(String, String, String)> {
        let value = |name: &String| before.0.get(name).cloned().unwrap_or("not recorded".into());
        let (device, others): (Vec<_>, Vec<_>) = self.0.iter().partition(|(name, _)| *name == "device");
        let (name, now) = others.into_iter().chain(device).find(|(name, now)| value(name) != **now)?;
        Some((name.clone(), value(name), now.clone()))
    }

    pub fn to_json(&self) -> Value {
        self.0.iter().map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect::<Map<_, _>>().into()
    }

    pub fn from_json(value: &Value) -> JobRecord {
        let pairs = value.as_object().into_iter().flatten();
        JobRecord(pairs.map(|(name, value)| (name.clone(), value.as_str().unwrap_or("").into())).collect())
    }

    fn get<T: FromStr>(&self, name: &str) -> Option<T> {
        self.0.get(name)?.parse().ok()
    }

    fn optional<T: FromStr>(&self, name: &str) -> Option<Option<T>> {
        match self.0.get(name)?.as_str() {
            DEFAULT => Some(None),
            text => text.parse().ok().map(Some),
        }
    }
}

fn chosen<T: Display>(value: Option<T>) -> String {
    value.map_or(DEFAULT.into(), |value| value.to_string())
}

fn target_text(target: Target) -> String {
    match target {
        Target::ShortSide(side) => format!("short side {side}"),
        Target::Scale(scale) => format!("scale {scale}"),
        Target::Exact(size) => size.to_string(),
    }
}

fn target(text: &str) -> Option<Target> {
    if let Some(side) = text.strip_prefix("short side ") {
        return side.parse().ok().map(Target::ShortSide);
    }
    if let Some(scale) = text.strip_prefix("scale ") {
        return scale.parse().ok().map(Target::Scale);
    }
    let (w, h) = text.split_once('x')?;
    Some(Target::Exact(Size { h: h.parse().ok()?, w: w.parse().ok()? }))
}

fn tiling_text(Tiling { tile, overlap }: Tiling) -> String {
    format!("{}x{} overlap {}x{}", tile.h, tile.w, overlap.h, overlap.w)
}

fn tiling(text: &str) -> Option<Tiling> {
    let plane = |text: &str| text.split_once('x').and_then(|(h, w)| Some(Hw::new(h.parse().ok()?, w.parse().ok()?)));
    let (tile, overlap) = text.split_once(" overlap ")?;
    Some(Tiling { tile: plane(tile)?, overlap: plane(overlap)? })
}

/// Tells a file, or the files of a folder, from others: names, lengths and times of change.
fn identity(path: &Path) -> io::Result<String> {
    if !path.is_dir() {
        return file_identity(path);
    }
    let mut files = fs::read_dir(path)?.map(|entry| entry.map(|e| e.path())).collect::<io::Result<Vec<_>>>()?;
    files.sort();
    identity_of(&files)
}

fn identity_of(files: &[PathBuf]) -> io::Result<String> {
    let mut digest = Digest::new(0);
    for file in files.iter().filter(|file| file.is_file()) {
        digest.update(format!("{}: {}\n", file.display(), file_identity(file)?).as_bytes());
    }
    Ok(format!("{} files ({:016x})", files.len(), digest.value()))
}

fn file_identity(path: &Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    let changed = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(format!("{name} ({} bytes, changed at {}.{:09})", metadata.len(), changed.as_secs(), changed.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use reseed_media::video::Deinterlace;

    use super::*;
    use crate::color::Color;
    use crate::join::Overlap;

    #[test]
    fn settings_survive_a_record() {
        let tiling = Some(Tiling { tile: Hw::new(64, 96), overlap: Hw::new(8, 12) });
        let settings = Settings {
            target: Target::Scale(1.3),
            longest: Some(4000),
            even_sides: true,
            batching: Batching { size: 9, overlap: 2, uniform: true },
            overlap: Overlap::Reference,
            detect_shots: false,
            lead_in: 3,
            noise: NoiseSource::File("noise.safetensors".into()),
            latent_noise: 0.1,
            strength: Some(0.25),
            color: Some(Color::WaveletAdaptive),
            alpha_range: AlphaRange::Inferred,
            vae: VaeSettings { tiling, slice: Some(2) },
        };
        let rate = Some(reseed_media::Rate { num: 30_000, den: 1001 });
        let (start, deinterlace) = (Some(Duration::from_micros(1_500_000)), Deinterlace::Bob);
        let clip = Clip { start, rate, deinterlace, ..Clip::default() };
        let encoder_args = vec![("x265-params".into(), "a=b c".into())];
        let video = Options { crf: Some(20), encoder_args, audio: false, ..Options::default() };
        for (settings, clip, video) in [(settings, clip, video), Default::default()] {
            let record = JobRecord::from_json(&JobRecord::new(&settings, &clip, &video).to_json());
            let noise = Path::new("noise.safetensors");
            assert_eq!(record.settings(Some(noise)), Some(settings));
            assert_eq!(record.video(), Some((clip, video)));
        }
        let exact = Settings { target: Target::Exact(Size { h: 2, w: 4 }), ..Settings::default() };
        let record = JobRecord::new(&exact, &Clip::default(), &Options::default());
        assert_eq!(record.settings(None), Some(exact));
    }

    #[test]
    fn the_first_difference_is_named() {
        let (mut before, mut now) = (JobRecord::default(), JobRecord::default());
        before.set("batch size", 5);
        now.set("batch size", 5);
        assert_eq!(now.difference(&before), None);
        now.set("batch size", 9);
        assert_eq!(now.difference(&before), Some(("batch size".into(), "5".into(), "9".into())));
    }
}
