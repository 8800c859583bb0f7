//! What clients ask for, checked against the files at hand before it is accepted.

use std::fs;
use std::path::{Path, PathBuf};

use reseed::media::video::{Clip, Container};
use reseed::media::{Info, Kind, check_self_contained, open_clip};
use reseed::{Existing, JobSpec, Settings, models};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::app::App;
use crate::journal::Accepted;
use crate::presets;
use crate::problem::{Answer, Problem};
use crate::settings::{Chosen, JobSettings, Text};

/// A job.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobRequest {
    /// A file or a folder of images under a root.
    pub input: Option<String>,
    /// A complete upload, instead of an input.
    pub upload: Option<String>,
    /// The file to write under a root; in the server's data folder unless given.
    pub output: Option<String>,
    /// Replace an existing output.
    pub overwrite: bool,
    /// A preset; explicit settings override its own.
    pub preset: Option<String>,
    /// The model; the preset's or the server's unless given.
    pub model: Option<String>,
    /// One of the server's devices; any unless given.
    pub device: Option<String>,
    /// Settings with the names of the command line.
    #[schema(value_type = JobSettings)]
    pub settings: Value,
}

/// An estimate.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EstimateRequest {
    /// A file or a folder of images under a root.
    pub input: Option<String>,
    /// A complete upload, instead of an input.
    pub upload: Option<String>,
    /// A preset; explicit settings override its own.
    pub preset: Option<String>,
    /// The model; the preset's or the server's unless given.
    pub model: Option<String>,
    /// One of the server's devices; the first unless given.
    pub device: Option<String>,
    /// Settings with the names of the command line.
    #[schema(value_type = JobSettings)]
    pub settings: Value,
}

/// One frame of a job, before the job runs.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PreviewRequest {
    /// A file or a folder of images under a root.
    pub input: Option<String>,
    /// A complete upload, instead of an input.
    pub upload: Option<String>,
    /// A preset; explicit settings override its own.
    pub preset: Option<String>,
    /// The model; the preset's or the server's unless given.
    pub model: Option<String>,
    /// Settings with the names of the command line.
    #[schema(value_type = JobSettings)]
    pub settings: Value,
    /// Time of the frame: seconds, or h:m:s.
    pub at: Option<Text>,
    /// Index of the frame, instead of a time.
    pub frame: Option<usize>,
}

/// The input, model and settings of a request.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    pub input: Option<String>,
    pub upload: Option<String>,
    pub preset: Option<String>,
    pub model: Option<String>,
    pub settings: Value,
}

/// A wish that can be met.
pub struct Checked {
    pub input: PathBuf,
    /// The name of the input for people.
    pub name: String,
    pub model: String,
    /// The settings in force, those of the preset included.
    pub settings: Value,
    pub chosen: Chosen,
    pub info: Info,
}

impl Wish {
    /// Finds the input and opens it. Runs ffprobe.
    pub fn check(&self, app: &App) -> Answer<Checked> {
        let (settings, chosen_model) = presets::merged(self.preset.as_deref(), &self.settings, self.model.as_deref())?;
        let chosen = parsed(&settings)?;
        let model = model(app, chosen_model.as_deref())?;
        let input = find_input(app, self.input.as_deref(), self.upload.as_deref())?;
        let info = described(app, &input, chosen.clip)?;
        chosen.settings.output(&info)?;
        let name = input.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Checked { input, name, model, settings, chosen, info })
    }
}

/// The file or folder of a request.
pub fn find_input(app: &App, input: Option<&str>, upload: Option<&str>) -> Answer<PathBuf> {
    match (input, upload) {
        (Some(text), None) => app.roots.existing(text).map_err(|error| Problem::invalid(error.to_string())),
        (None, Some(id)) => app.uploads.complete(id).ok_or_else(|| {
            Problem::invalid(format!("no complete upload has the id {id:?}; upload the whole file first"))
        }),
        _ => Err(Problem::invalid("give either input or upload")),
    }
}

/// What an input is. Formats that name other files are refused.
pub fn described(app: &App, input: &Path, clip: Clip) -> Answer<Info> {
    let unusable = |error| Problem::from(reseed::Error::Input(error));
    if input.is_file() {
        check_self_contained(input).map_err(unusable)?;
    }
    let info = open_clip(input, clip).map_err(unusable)?.info().clone();
    if info.frames.is_some_and(|frames| frames > app.config.limits.frames) {
        return Err(Problem::invalid(format!("the input has more than {} frames", app.config.limits.frames)));
    }
    Ok(info)
}

/// Bytes of an input.
pub fn bytes_of(input: &Path, info: &Info) -> u64 {
    let bytes = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    match info.names.is_empty() {
        true => bytes(input),
        false => info.names.iter().map(|name| bytes(&input.join(name))).sum(),
    }
}

/// Frames per second.
pub fn frame_rate(info: &Info) -> f64 {
    f64::from(info.rate.num) / f64::from(info.rate.den.max(1))
}

/// How long an input is shown, where its frames are known.
pub fn seconds(info: &Info) -> Option<f64> {
    match (&info.kind, info.frames) {
        (Kind::Image | Kind::Pages, _) => Some(0.0),
        (_, Some(frames)) if info.rate.num > 0 => Some(frames as f64 / frame_rate(info)),
        _ => None,
    }
}

/// Settings as the library takes them.
pub fn parsed(settings: &Value) -> Answer<Chosen> {
    let settings = match settings {
        Value::Null => JobSettings::default(),
        settings => {
            JobSettings::deserialize(settings).map_err(|error| Problem::invalid(format!("settings: {error}")))?
        }
    };
    settings.chosen().map_err(Problem::invalid)
}

/// The name of a model. Clients choose among the models of this machine and never name files.
fn model(app: &App, name: Option<&str>) -> Answer<String> {
    let own = &app.config.model;
    match name {
        None => Ok(own.clone()),
        Some(name) if name == own || models::is_embedded(name) => Ok(name.to_owned()),
        Some(name) => {
            let model = models::find(name)?;
            models::paths(model.name)?;
            Ok(model.name.to_owned())
        }
    }
}

/// The settings of an accepted job.
pub fn settings_of(job: &Accepted, chosen: Chosen, info: &Info) -> Settings {
    spec_of(&job.input, &job.output, chosen).settings_for(info)
}

/// A job of the library. An existing output is refused.
pub fn spec_of(input: &Path, output: &Path, Chosen { settings, clip, video }: Chosen) -> JobSpec {
    JobSpec { clip, video, existing: Existing::Refuse, ..JobSpec::new(input, output, settings) }
}

impl Checked {
    /// The name of an output for the input: the same kind of file where it can be written.
    pub fn output_name(&self) -> String {
        let path = Path::new(&self.name);
        let extension = path.extension().and_then(|text| text.to_str()).unwrap_or_default().to_ascii_lowercase();
        let keep = |known: &[&str], other: &str| {
            if known.contains(&extension.as_str()) { extension.clone() } else { other.to_owned() }
        };
        let extension = match &self.info.kind {
            Kind::Image => keep(&["png", "jpg", "jpeg", "webp", "tiff", "tif"], "png"),
            Kind::Pages => keep(&["tiff", "tif"], "tiff"),
            Kind::Animation(_) => keep(&["gif", "apng", "webp"], "webp"),
            Kind::Y4m(_) if self.chosen.video.codec.is_none() => "y4m".into(),
            Kind::Y4m(_) | Kind::Video(_) | Kind::Folder => self.container(path),
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        format!("{stem}.{extension}")
    }

    /// The extension of a video: that of the input, where it can hold the codec.
    fn container(&self, path: &Path) -> String {
        let codec = self.chosen.video.codec.map(|codec| codec.to_string()).unwrap_or_default();
        let fitting: &[&str] = match codec.split('-').next().unwrap_or_default() {
            "ffv1" => &["mkv"],
            "prores" => &["mov", "mkv"],
            "h264" | "hevc" => &["mp4", "m4v", "mkv", "mov"],
            "av1" => &["mp4", "m4v", "mkv", "webm"],
            _ => &["mp4", "m4v", "mkv", "mov", "webm"],
        };
        let own = path.extension().and_then(|text| text.to_str()).unwrap_or_default().to_ascii_lowercase();
        let kept = Container::of(path).is_some() && fitting.contains(&own.as_str());
        if kept { own } else { fitting[0].into() }
    }

    /// The settings of a job that writes `output`.
    pub fn settings_for(&self, output: &Path) -> Settings {
        spec_of(&self.input, output, self.chosen.clone()).settings_for(&self.info)
    }
}
