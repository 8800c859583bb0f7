//! Named sets of settings: those of this library, and those of the user's configuration file `reseed.toml`.
//!
//! Names and values are those of the command line's options, as text. `batch_size` and `batch-size` are the same name.
//!
//! ```
//! let config = reseed::presets::Config::parse("scale = 4\n[presets.tape]\nbatch-size = 13\n", "reseed.toml")?;
//! assert_eq!(config.defaults, [("scale".into(), "4".into())]);
//! assert_eq!(config.preset("tape")?.settings, [("batch-size".into(), "13".into())]);
//! assert_eq!(config.preset("4k")?.settings, [("resolution".into(), "4k".into())]);
//! # Ok::<(), reseed::presets::ConfigError>(())
//! ```

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::paths;

/// The variable with the path of the configuration file.
const VARIABLE: &str = "RESEED_CONFIG";
const FILE: &str = "reseed.toml";
/// The table of a file that holds its presets.
const PRESETS: &str = "presets";
const DESCRIPTION: &str = "description";
const BUILT_IN: &str = include_str!("presets.toml");

/// Why a configuration cannot be used. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The file has a wrong line.
    #[error("{}: {reason}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// No preset has this name.
    #[error("{name}: no such preset; the presets are {}", known.join(", "))]
    UnknownPreset {
        /// The name.
        name: String,
        /// The names of all presets.
        known: Vec<String>,
    },
}

type Result<T, E = ConfigError> = std::result::Result<T, E>;

/// Names of settings and their values as text, in the order of their names.
pub type NamedSettings = Vec<(String, String)>;

/// A named set of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// What it is for, in a few words.
    pub description: String,
    /// Its settings.
    pub settings: NamedSettings,
}

/// What users set for all their jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Settings for every job.
    pub defaults: NamedSettings,
    /// The user's presets, then those of this library that no preset of the user replaces.
    pub presets: Vec<Preset>,
}

impl Config {
    /// The path of the user's file: that in `RESEED_CONFIG`, or `reseed.toml` in the folder for configurations.
    pub fn path() -> PathBuf {
        paths::variable(VARIABLE).unwrap_or_else(|| paths::config().join("reseed").join(FILE))
    }

    /// The user's configuration; the presets of this library alone where there is no file.
    pub fn of_user() -> Result<Config> {
        let path = Config::path();
        match fs::read_to_string(&path) {
            Ok(text) => Config::parse(&text, &path),
            Err(cause) if cause.kind() == ErrorKind::NotFound && paths::variable(VARIABLE).is_none() => {
                Config::parse("", &path)
            }
            Err(cause) => Err(ConfigError::Unreadable { path, cause }),
        }
    }

    /// The configuration in a text; errors name `path`.
    pub fn parse(text: &str, path: impl AsRef<Path>) -> Result<Config> {
        let (defaults, mut presets) = tables(text, path.as_ref())?;
        let (_, built_in) = tables(BUILT_IN, FILE.as_ref())?;
        let new = built_in.into_iter().filter(|preset| presets.iter().all(|own| own.name != preset.name));
        let new: Vec<Preset> = new.collect();
        presets.extend(new);
        Ok(Config { defaults, presets })
    }

    /// The preset with this name.
    pub fn preset(&self, name: &str) -> Result<&Preset> {
        let known = || self.presets.iter().map(|preset| preset.name.clone()).collect();
        let found = self.presets.iter().find(|preset| preset.name == name);
        found.ok_or_else(|| ConfigError::UnknownPreset { name: name.into(), known: known() })
    }
}

/// The settings and the presets of a file.
fn tables(text: &str, path: &Path) -> Result<(NamedSettings, Vec<Preset>)> {
    let wrong = |reason: String| ConfigError::Wrong { path: path.into(), reason };
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| wrong(one_line(text, &error)))?;
    let presets = match table.remove(PRESETS) {
        None => Table::new(),
        Some(Value::Table(presets)) => presets,
        Some(_) => return Err(wrong(format!("`{PRESETS}` must be a table"))),
    };
    let preset = |(name, value): (String, Value)| {
        let Value::Table(mut table) = value else {
            return Err(wrong(format!("preset `{name}` must be a table such as [{PRESETS}.{name}]")));
        };
        let description = match table.remove(DESCRIPTION) {
            None => String::new(),
            Some(Value::String(text)) => text,
            Some(_) => return Err(wrong(format!("the description of preset `{name}` must be text"))),
        };
        let settings = named(table).map_err(|reason| wrong(format!("preset `{name}`: {reason}")))?;
        Ok(Preset { name, description, settings })
    };
    let presets = presets.into_iter().map(preset).collect::<Result<_>>()?;
    Ok((named(table).map_err(wrong)?, presets))
}

/// Names with dashes, and values as text.
fn named(table: Table) -> Result<NamedSettings, String> {
    let text = |(name, value): (String, Value)| {
        let text = match value {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(switch) => switch.to_string(),
            _ => return Err(format!("`{name}` must be text, a number, true or false")),
        };
        Ok((name.replace('_', "-"), text))
    };
    table.into_iter().map(text).collect()
}

/// The message of a parser with the line that it is about.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().lines().collect::<Vec<_>>().join(" ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &str) -> String {
        Config::parse(text, "reseed.toml").unwrap_err().to_string()
    }

    #[test]
    fn presets_of_the_user_replace_those_of_the_library() {
        let own = "[presets.4k]\ndescription = \"mine\"\nresolution = 2000\nno_audio = true\n";
        let config = Config::parse(own, "reseed.toml").unwrap();
        let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let preset = config.preset("4k").unwrap();
        assert_eq!(preset.settings, [named("no-audio", "true"), named("resolution", "2000")]);
        assert_eq!(config.presets.iter().filter(|preset| preset.name == "4k").count(), 1);
        assert!(config.presets.iter().all(|preset| !preset.description.is_empty()));
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        assert!(
            reason("scale = 2\nscale = ").starts_with("reseed.toml: line 2: "),
            "{}",
            reason("scale = 2\nscale = ")
        );
        assert_eq!(reason("scale = [2]"), "reseed.toml: `scale` must be text, a number, true or false");
        assert_eq!(reason("presets = 2"), "reseed.toml: `presets` must be a table");
        assert_eq!(reason("[presets]\na = 2"), "reseed.toml: preset `a` must be a table such as [presets.a]");
        assert_eq!(reason("[presets.a]\nb = {}"), "reseed.toml: preset `a`: `b` must be text, a number, true or false");
        let error = Config::parse("", "reseed.toml").unwrap().preset("8k").unwrap_err().to_string();
        assert!(error.starts_with("8k: no such preset; the presets are 1080p, 2x, "), "{error}");
    }
}
