//! What clients ask for, checked against the files at hand before it is accepted.

use std::path::{Path, PathBuf};

use reseed::media::video::Container;
use reseed::media::{Info, Kind, check_self_contained, open_clip};
use reseed::{Existing, JobSpec, Settings, models};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::app::App;
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
    /// The model; the server's unless given.
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
    /// The model; the server's unless given.
    pub model: Option<String>,
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
    /// The model; the server's unless given.
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
    pub model: Option<String>,
    pub settings: Value,
}

/// A wish that can be met.
pub struct Checked {
    pub input: PathBuf,
    /// The name of the input for people.
    pub name: String,
    pub model: String,
    pub chosen: Chosen,
    pub info: Info,
}

impl Wish {
    /// Finds the input and opens it. Runs ffprobe.
    pub fn check(&self, app: &App) -> Answer<Checked> {
        let chosen = parsed(&self.settings)?;
        let model = model(app, self.model.as_deref())?;
        let input = match (&self.input, &self.upload) {
            (Some(text), None) => app.roots.existing(text).map_err(|error| Problem::invalid(error.to_string()))?,
            (None, Some(id)) => app.uploads.complete(id).ok_or_else(|| {
                Problem::invalid(format!("no complete upload has the id {id:?}; upload the whole file first"))
            })?,
            _ => return Err(Problem::invalid("give either input or upload")),
        };
        let unusable = |error| Problem::from(reseed::Error::Input(error));
        if input.is_file() {
            check_self_contained(&input).map_err(unusable)?;
        }
        let info = open_clip(&input, chosen.clip).map_err(unusable)?.info().clone();
        if info.frames.is_some_and(|frames| frames > app.config.limits.frames) {
            return Err(Problem::invalid(format!("the input has more than {} frames", app.config.limits.frames)));
        }
        chosen.settings.output(&info)?;
        let name = input.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Checked { input, name, model, chosen, info })
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
        Some(name) if name == own || name == models::EMBEDDED => Ok(name.to_owned()),
        Some(name) => {
            let model = models::find(name)?;
            models::paths(model.name)?;
            Ok(model.name.to_owned())
        }
    }
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
            Kind::Y4m(_) => "y4m".into(),
            Kind::Video(_) if Container::of(path).is_some() => extension.clone(),
            Kind::Video(_) | Kind::Folder => "mp4".into(),
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        format!("{stem}.{extension}")
    }

    /// The settings of a job that writes `output`.
    pub fn settings_for(&self, output: &Path) -> Settings {
        self.spec(output, Existing::Refuse).settings_for(&self.info)
    }

    fn spec(&self, output: &Path, existing: Existing) -> JobSpec {
        let Chosen { settings, clip, video } = self.chosen.clone();
        JobSpec { clip, video, existing, ..JobSpec::new(&self.input, output, settings) }
    }
}
