//! What a job's result depends on, so that only the same job is gone on with.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use clap::{ArgMatches, Command};
use serde_json::{Map, Value};

use crate::failure::{Failure, Result};
use crate::models::Hash;

/// Options that the result does not depend on.
const IDLE: &[&str] = &["json", "profile", "threads", "resume", "overwrite"];

/// Names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// The options of the command that was typed, whether they were given or not.
    pub fn typed(program: &Command, matches: &ArgMatches) -> Settings {
        let Some((name, matches)) = matches.subcommand() else { return Settings::default() };
        let command = program.find_subcommand(name);
        let options =
            command.into_iter().flat_map(Command::get_arguments).filter_map(|o| Some((o.get_id(), o.get_long()?)));
        let values = options.filter(|(id, _)| !IDLE.contains(&id.as_str())).filter_map(|(id, long)| {
            let values = matches.try_get_raw(id.as_str()).ok().flatten()?;
            let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
            Some((format!("--{long}"), values.join(" ")))
        });
        Settings(values.collect())
    }

    /// With something that no option says.
    pub fn with(mut self, name: &str, value: impl ToString) -> Settings {
        self.0.insert(name.into(), value.to_string());
        self
    }

    /// With a file or folder that is read.
    pub fn with_input(self, name: &str, path: &Path) -> Result<Settings> {
        let found = identity(path).map_err(|e| Failure::Input(format!("{}: {e}", path.display())))?;
        Ok(self.with(name, found))
    }

    /// The first of these settings that another job had otherwise, in words.
    pub fn differs_from(&self, other: &Settings) -> Option<String> {
        let names: Vec<&String> = self.0.keys().chain(other.0.keys().filter(|name| name.starts_with("--"))).collect();
        let value = |settings: &Settings, name: &String| settings.0.get(name).cloned().unwrap_or("not given".into());
        let name = names.into_iter().find(|name| value(self, name) != value(other, name))?;
        Some(format!("{name} was {} and is {}", value(other, name), value(self, name)))
    }

    pub fn to_json(&self) -> Value {
        self.0.iter().map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect::<Map<_, _>>().into()
    }

    pub fn from_json(value: &Value) -> Settings {
        let pairs = value.as_object().into_iter().flatten();
        Settings(pairs.map(|(name, value)| (name.clone(), value.as_str().unwrap_or("").into())).collect())
    }
}

/// What tells a file or a folder's files from others: names, lengths and times of change.
fn identity(path: &Path) -> io::Result<String> {
    if !path.is_dir() {
        return file_identity(path);
    }
    let mut files = fs::read_dir(path)?.map(|entry| entry.map(|e| e.path())).collect::<io::Result<Vec<_>>>()?;
    files.sort();
    let mut hash = Hash::new();
    for file in files.iter().filter(|file| file.is_file()) {
        hash.update(format!("{}: {}\n", file.display(), file_identity(file)?).as_bytes());
    }
    Ok(format!("{} files ({})", files.len(), &hash.finish()[..16]))
}

fn file_identity(path: &Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    let changed = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(format!("{name} ({} bytes, changed at {}.{:09})", metadata.len(), changed.as_secs(), changed.subsec_nanos()))
}
