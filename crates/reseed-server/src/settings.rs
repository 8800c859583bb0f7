//! Settings of a job as clients write them. Names and defaults are those of the command line.

use std::str::FromStr;
use std::time::Duration;

use reseed::media::Rate;
use reseed::media::video::{Clip, Codec, Deinterlace, Options, parse_time};
use reseed::{Batching, Color, Hw, NoiseSource, Overlap, Settings, Target, VaeSettings};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The longest side of an output.
const LARGEST: usize = 1 << 16;

/// A number or a text.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, ToSchema)]
#[serde(untagged)]
pub enum Text {
    /// A number.
    Number(f64),
    /// A text.
    Word(String),
}

impl Text {
    fn text(&self) -> String {
        match self {
            Text::Number(number) => number.to_string(),
            Text::Word(word) => word.clone(),
        }
    }
}

/// Settings of a job; those that are left out have the defaults of `reseed upscale`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobSettings {
    /// Factor of both sides.
    pub scale: Option<f64>,
    /// Shorter side of the output: pixels, or a word such as `1080p` or `4k`.
    pub resolution: Option<Text>,
    /// Size of the output, width first, such as `1920x1080`.
    pub size: Option<String>,
    /// Longest side of the output in pixels.
    pub max_resolution: Option<u32>,
    /// Colour correction: lab, wavelet, wavelet-adaptive, hsv, adain or none.
    pub color: Option<String>,
    /// How far the result may leave the input: 0 is most faithful, 1 cleans most; what the model asks for unless given.
    pub strength: Option<f32>,
    /// Seed of the noise.
    pub seed: Option<u64>,
    /// Strength of noise added to the encoded input, 0 to 1.
    pub latent_noise: Option<f32>,
    /// Frames that go through the model together.
    pub batch_size: Option<u16>,
    /// Pad the last batch of a shot to the full number of frames.
    pub uniform_batch_size: bool,
    /// Frames that neighbouring batches share.
    pub overlap: Option<u16>,
    /// auto, smooth or reference.
    pub overlap_mode: Option<String>,
    /// Mirrored frames before the first, removed from the output.
    pub prepend_frames: Option<u16>,
    /// Let batches extend across cuts.
    pub no_shot_detection: bool,
    /// Latent frames at a time in the VAE.
    pub slice: Option<u16>,
    /// Spatial tiles of this size, height first, such as `512x512`; approximate.
    pub tile: Option<String>,
    /// Overlap of the tiles in pixels, height first.
    pub tile_overlap: Option<String>,
    /// Start of the part to process: seconds, or h:m:s.
    pub start: Option<Text>,
    /// End of the part to process: seconds, or h:m:s.
    pub end: Option<Text>,
    /// auto, off, bob or single.
    pub deinterlace: Option<String>,
    /// Restore the frames of a film from video with 3:2 pulldown.
    pub ivtc: bool,
    /// Rate of a folder of images, such as 24 or `30000/1001`.
    pub fps: Option<Text>,
    /// h264, hevc, av1, ffv1, prores, or in hardware, such as hevc-nvenc.
    pub codec: Option<String>,
    /// Quality of the encoder: lower is better and larger.
    pub crf: Option<u32>,
    /// Leave out audio.
    pub no_audio: bool,
    /// Leave out subtitles.
    pub no_subtitles: bool,
    /// Leave out chapters.
    pub no_chapters: bool,
    /// Leave out titles and other tags.
    pub no_metadata: bool,
    /// Leave out fonts and other attachments.
    pub no_attachments: bool,
}

/// A value that is not understood, in words.
pub type Parsed<T> = Result<T, String>;

/// What a client chose, as the library takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// What the result depends on.
    pub settings: Settings,
    /// The part of a video.
    pub clip: Clip,
    /// How a video is encoded.
    pub video: Options,
}

impl JobSettings {
    /// The settings of the library.
    pub fn chosen(&self) -> Parsed<Chosen> {
        let settings = self.settings()?;
        settings.check().map_err(|error| error.to_string())?;
        Ok(Chosen { settings, clip: self.clip()?, video: self.video()? })
    }

    fn settings(&self) -> Parsed<Settings> {
        let defaults = Settings::default();
        let size = self.batch_size.map_or(defaults.batching.size, usize::from);
        if size == 0 || self.slice == Some(0) {
            return Err("batch_size and slice: at least 1".into());
        }
        Ok(Settings {
            target: self.target()?.unwrap_or(defaults.target),
            longest: self.max_resolution.map(|side| side as usize),
            batching: Batching::new(size, self.overlap.map(usize::from), self.uniform_batch_size),
            overlap: word::<Overlap>("overlap_mode", self.overlap_mode.as_deref())?.unwrap_or_default(),
            detect_shots: !self.no_shot_detection,
            lead_in: self.prepend_frames.map_or(0, usize::from),
            noise: self.seed.map_or(defaults.noise.clone(), NoiseSource::Seed),
            latent_noise: self.latent_noise.unwrap_or(defaults.latent_noise),
            strength: self.strength,
            color: word::<Color>("color", self.color.as_deref())?,
            vae: self.vae()?,
            ..defaults
        })
    }

    fn target(&self) -> Parsed<Option<Target>> {
        let short = match word::<Target>("resolution", self.resolution.as_ref().map(Text::text).as_deref())? {
            None => None,
            Some(Target::ShortSide(side)) => Some(Target::ShortSide(side)),
            Some(_) => return Err("resolution: a shorter side such as 720, \"1080p\" or \"4k\"".into()),
        };
        let exact = match word::<Target>("size", self.size.as_deref())? {
            None => None,
            Some(Target::Exact(size)) if size.h <= LARGEST && size.w <= LARGEST => Some(Target::Exact(size)),
            Some(_) => return Err(format!("size: width and height such as \"1920x1080\", at most {LARGEST} each")),
        };
        match [self.scale.map(Target::Scale), short, exact].into_iter().flatten().collect::<Vec<_>>()[..] {
            [] => Ok(None),
            [Target::Exact(_)] if self.max_resolution.is_some() => Err("give either size or max_resolution".into()),
            [target] => Ok(Some(target)),
            _ => Err("give one of scale, resolution and size".into()),
        }
    }

    fn vae(&self) -> Parsed<VaeSettings> {
        let plane = |name, text: &Option<String>| {
            text.as_deref().map(|text| pair(name, text).map(|(h, w)| Hw::new(h, w))).transpose()
        };
        let (tile, overlap) = (plane("tile", &self.tile)?, plane("tile_overlap", &self.tile_overlap)?);
        if overlap.is_some() && tile.is_none() {
            return Err("tile_overlap needs tile".into());
        }
        let tiled = tile.map(|tile| VaeSettings::tiled(tile, overlap)).unwrap_or_default();
        Ok(VaeSettings { slice: self.slice.map(usize::from), ..tiled })
    }

    fn clip(&self) -> Parsed<Clip> {
        let at = |name, text: &Option<Text>| text.as_ref().map(|text| time(name, text)).transpose();
        let (start, end) = (at("start", &self.start)?, at("end", &self.end)?);
        if end.is_some_and(|end| start.unwrap_or_default() >= end) {
            return Err("end must be later than start".into());
        }
        let deinterlace = match (self.deinterlace.as_deref(), self.ivtc) {
            (Some(_), true) => return Err("give either deinterlace or ivtc".into()),
            (None, true) => Deinterlace::InverseTelecine,
            (None, false) => Deinterlace::default(),
            (Some(word @ ("auto" | "off" | "bob" | "single")), false) => {
                word.parse().map_err(|_| format!("deinterlace: {word:?}"))?
            }
            (Some(word), false) => return Err(format!("deinterlace: {word:?} is not auto, off, bob or single")),
        };
        let rate = word::<Rate>("fps", self.fps.as_ref().map(Text::text).as_deref())?;
        Ok(Clip { start, end, deinterlace, rate })
    }

    fn video(&self) -> Parsed<Options> {
        Ok(Options {
            codec: word::<Codec>("codec", self.codec.as_deref())?,
            crf: self.crf,
            // An option of an encoder can name files.
            encoder_args: Vec::new(),
            audio: !self.no_audio,
            subtitles: !self.no_subtitles,
            chapters: !self.no_chapters,
            metadata: !self.no_metadata,
            attachments: !self.no_attachments,
            ..Options::default()
        })
    }
}

fn pair(name: &str, text: &str) -> Parsed<(usize, usize)> {
    let numbers = text.split_once(['x', 'X']).and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    numbers.ok_or_else(|| format!("{name}: {text:?} is not two numbers such as \"512x512\""))
}

/// 90, "1:30" or "0:01:30.5".
pub fn time(name: &str, text: &Text) -> Parsed<Duration> {
    let text = text.text();
    parse_time(&text).ok_or_else(|| format!("{name}: {text:?} is not a time such as 90, \"1:30\" or \"0:01:30.5\""))
}

/// The value of a setting that the library parses.
fn word<T: FromStr<Err = String>>(name: &str, text: Option<&str>) -> Parsed<Option<T>> {
    text.map(str::parse).transpose().map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(value: Value) -> Parsed<Chosen> {
        serde_json::from_value::<JobSettings>(value).map_err(|error| error.to_string())?.chosen()
    }

    #[test]
    fn no_settings_are_the_defaults() {
        let chosen = parse(json!({})).unwrap();
        assert_eq!((chosen.settings, chosen.clip, chosen.video), Default::default());
    }

    #[test]
    fn settings_have_the_names_of_the_command_line() {
        let chosen = parse(json!({
            "resolution": "1080p", "batch_size": 9, "overlap": 2, "color": "wavelet", "start": "1:30", "end": 95.5,
            "codec": "hevc", "crf": 20, "no_audio": true, "tile": "256x512",
        }));
        let Chosen { settings, clip, video } = chosen.unwrap();
        assert_eq!(settings.target, Target::ShortSide(1080));
        assert_eq!(settings.batching, Batching { size: 9, overlap: 2, uniform: false });
        assert_eq!(settings.vae.tiling.unwrap().tile, Hw::new(256, 512));
        assert_eq!((clip.start, clip.end), (Some(Duration::from_secs(90)), Some(Duration::from_millis(95_500))));
        assert!(!video.audio && video.subtitles && video.crf == Some(20));
    }

    #[test]
    fn wrong_values_and_unknown_names_are_errors() {
        for wrong in [
            json!({"scale": 2, "resolution": 720}),
            json!({"color": "red"}),
            json!({"batch_size": 0}),
            json!({"batch_size": -1}),
            json!({"overlap": 9}),
            json!({"start": 5, "end": 4}),
            json!({"fps": "x"}),
            json!({"encoder_arg": ["preset=slow"]}),
            json!({"noise_file": "/etc/passwd"}),
            json!({"scal": 2}),
            json!({"size": "0x0"}),
            json!({"latent_noise": 2}),
            json!({"tile_overlap": "8x8"}),
            json!({"crf": "low"}),
            json!({"scale": "2"}),
            json!({"start": "1:2:3:4"}),
            json!({"codec": "mpeg1"}),
            json!({"resolution": "2x"}),
        ] {
            assert!(parse(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
