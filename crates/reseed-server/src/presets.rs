//! Presets: those of the library and those of the operator's configuration file.

use reseed::presets::{Config, NamedSettings, Preset};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::problem::{Answer, Problem};
use crate::settings::JobSettings;

/// The name of the setting that chooses a model, which is no setting of a job here.
const MODEL: &str = "model";
/// Options of the command line that the operator of a server chooses for all jobs.
const OPERATOR: &[&str] = &[
    "device",
    "dtype",
    "precision",
    "threads",
    "max_vram",
    "tune",
    "profile",
    "json",
    "overwrite",
    "resume",
    "strict",
];
/// Settings that exclude each other.
const EXCLUSIVE: &[&[&str]] =
    &[&["scale", "resolution", "size"], &["size", "max_resolution"], &["deinterlace", "ivtc"]];

/// A named set of settings.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PresetView {
    /// Its name for requests.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The model that it chooses.
    pub model: Option<String>,
    /// Its settings.
    #[schema(value_type = JobSettings)]
    pub settings: Map<String, Value>,
}

/// All presets.
#[derive(Serialize, ToSchema)]
pub struct PresetList {
    /// The operator's own first.
    pub presets: Vec<PresetView>,
}

/// Presets whose settings jobs of this server can have.
pub fn all() -> Answer<Vec<PresetView>> {
    let config = Config::of_user().map_err(|error| Problem::failed(error.to_string()))?;
    let usable = |preset: &Preset| match view(preset) {
        Ok(view) => Some(view),
        Err(reason) => {
            tracing::warn!(preset = preset.name, reason, "a preset cannot be used by jobs of a server");
            None
        }
    };
    Ok(config.presets.iter().filter_map(usable).collect())
}

/// The settings and the model of a request with those of its preset. The request's own go first.
pub fn merged(preset: Option<&str>, settings: &Value, model: Option<&str>) -> Answer<(Value, Option<String>)> {
    let own = match settings {
        Value::Null => Map::new(),
        // A setting without a value is not set.
        Value::Object(own) => own.clone().into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => return Err(Problem::invalid("settings: an object with the names of settings is expected")),
    };
    let model = model.map(str::to_owned);
    let Some(name) = preset else { return Ok((Value::Object(own), model)) };
    let config = Config::of_user().map_err(|error| Problem::failed(error.to_string()))?;
    let preset = config.preset(name).map_err(|error| Problem::invalid(error.to_string()))?;
    let preset = view(preset).map_err(|reason| Problem::invalid(format!("preset {name:?}: {reason}")))?;
    Ok((Value::Object(overridden(preset.settings, own)), model.or(preset.model)))
}

/// The settings of a preset, but for those that `own` has or excludes, and `own`.
fn overridden(preset: Map<String, Value>, own: Map<String, Value>) -> Map<String, Value> {
    let excluded = |name: &str| {
        let groups = EXCLUSIVE.iter().filter(|group| group.contains(&name));
        groups.flat_map(|group| group.iter()).any(|other| own.contains_key(*other))
    };
    let mut all: Map<String, Value> = preset.into_iter().filter(|(name, _)| !excluded(name)).collect();
    all.extend(own);
    all
}

/// A preset as clients see it, or why a job cannot have its settings.
fn view(preset: &Preset) -> Result<PresetView, String> {
    let Preset { name, description, settings } = preset.clone();
    let model = settings.iter().find(|(name, _)| name == MODEL).map(|(_, value)| value.clone());
    let settings = typed(settings);
    let parsed = JobSettings::deserialize(&Value::Object(settings.clone())).map_err(|error| error.to_string())?;
    parsed.chosen()?;
    Ok(PresetView { name, description, model, settings })
}

/// Values of the command line as JSON.
fn typed(settings: NamedSettings) -> Map<String, Value> {
    let named = settings.into_iter().map(|(name, text)| (name.replace('-', "_"), text));
    let of_jobs = named.filter(|(name, _)| name != MODEL && !OPERATOR.contains(&name.as_str()));
    let value = |text: String| match serde_json::from_str(&text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::String(text),
    };
    of_jobs.map(|(name, text)| (name, value(text))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn preset(text: &str) -> Result<PresetView, String> {
        let config = Config::parse(&format!("[presets.own]\n{text}"), "reseed.toml").unwrap();
        view(config.preset("own").unwrap())
    }

    #[test]
    fn every_preset_of_the_library_can_be_used() {
        let config = Config::parse("", "reseed.toml").unwrap();
        for preset in &config.presets {
            let view = view(preset).unwrap();
            assert!(!view.settings.is_empty() || view.model.is_some(), "{}", preset.name);
        }
        assert_eq!(view(config.preset("4k").unwrap()).unwrap().settings["resolution"], json!("4k"));
        assert_eq!(view(config.preset("draft").unwrap()).unwrap().model.as_deref(), Some("nano"));
    }

    #[test]
    fn values_have_their_types_and_options_of_the_operator_do_not_count() {
        let view = preset("batch-size = 9\nno_audio = true\nresolution = 720\ndevice = 'cpu'\nstart = '1:30'").unwrap();
        let expected = json!({"batch_size": 9, "no_audio": true, "resolution": 720, "start": "1:30"});
        assert_eq!(Value::Object(view.settings), expected);
    }

    #[test]
    fn presets_with_files_and_encoder_options_cannot_be_used() {
        for text in ["encoder-arg = 'preset=slow'", "noise-file = '/etc/passwd'", "vae = 'x'", "color = 'red'"] {
            assert!(preset(text).is_err(), "{text}");
        }
    }

    #[test]
    fn explicit_settings_override_those_of_a_preset() {
        let object = |value: Value| value.as_object().unwrap().clone();
        let preset = object(json!({"resolution": "1080p", "batch_size": 9, "overlap": 2}));
        let all = overridden(preset.clone(), object(json!({"scale": 3, "overlap": 1, "crf": 20})));
        assert_eq!(Value::Object(all), json!({"scale": 3, "overlap": 1, "crf": 20, "batch_size": 9}));
        assert_eq!(overridden(preset.clone(), Map::new()), preset);
    }
}
