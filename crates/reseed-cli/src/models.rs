//! `reseed models`: the public model files, where they are and how they get here.

mod hash;
mod hub;
mod places;
mod registry;
#[cfg(test)]
mod tests;

use std::fs::File as OsFile;
use std::path::{Path, PathBuf};

use reseed_model::{ModelFolder, nano};
use serde_json::json;

use crate::args::models::{ListArgs, ModelsCommand, PathArgs, PullArgs, VerifyArgs};
use crate::failure::{Failure, Result};
use crate::progress::Meter;
use crate::report::bytes;
pub use hash::Hash;
use hub::Hub;
use places::Places;
use registry::{File, MODELS, Model, TEXT, VAE};

pub fn run(command: &ModelsCommand) -> Result<()> {
    let places = Places::of_user();
    match command {
        ModelsCommand::List(args) => list(args, &places),
        ModelsCommand::Pull(args) => pull(args, &places),
        ModelsCommand::Verify(args) => verify(args, &places),
        ModelsCommand::Path(args) => path(args, &places),
    }
}

/// The files of a public model, where `name` is one and they are all here.
pub fn folder(name: &str) -> Result<ModelFolder> {
    let model = named(name)?;
    let places = Places::of_user();
    let [dit, vae, text] = model.files().map(|file| here(model, file, &places));
    let dit = dit?;
    let path = dit.parent().unwrap_or(Path::new("")).into();
    Ok(ModelFolder { path, vae: vae?, dit, text: Some(text?) })
}

fn named(name: &str) -> Result<&'static Model> {
    if name == nano::NAME {
        return Err(Failure::Model(format!("{name}: is inside this program and has no files; --model {name} uses it")));
    }
    let names = || MODELS.iter().map(|model| model.name).collect::<Vec<_>>().join(", ");
    Model::named(name)
        .ok_or_else(|| Failure::Model(format!("{name}: no such folder, and no such model; the models are {}", names())))
}

fn here(model: &Model, file: &File, places: &Places) -> Result<PathBuf> {
    places.find(file).ok_or_else(|| {
        let (own, name) = (places.own.display(), model.name);
        Failure::Model(format!("{}: not on this machine; `reseed models pull {name}`, or put it into {own}", file.name))
    })
}

fn list(args: &ListArgs, places: &Places) -> Result<()> {
    let (name, count) = (nano::NAME, nano::VAE.len() + nano::DIT.len());
    match args.json {
        true => say!("{}", json!({"event": "model", "name": name, "bytes": count, "embedded": true})),
        false => say!("{name:<13} {:>10}  small, for a first look: inside this program", bytes(count)),
    }
    let shared = [("vae", "of all models", &VAE), ("text", "of all models", &TEXT)];
    let models = MODELS.iter().map(|model| (model.name, model.about, &model.dit));
    for (name, about, file) in models.chain(shared) {
        let path = places.find(file);
        if args.json {
            let (repo, path) = (file.repo.name, path.as_ref().map(|path| path.to_string_lossy()));
            say!(
                "{}",
                json!({"event": "model", "name": name, "file": file.name, "repository": repo, "revision": file.repo.revision,
                       "bytes": file.bytes, "sha256": file.sha256, "path": path})
            );
        } else {
            let place = path.map_or("not here".into(), |path| path.display().to_string());
            say!("{name:<13} {:>10}  {}, {about}: {place}", bytes(file.bytes as usize), file.name);
        }
    }
    Ok(())
}

fn pull(args: &PullArgs, places: &Places) -> Result<()> {
    let models = args.names.iter().map(|name| named(name)).collect::<Result<Vec<_>>>()?;
    let hub = Hub::of_user();
    for file in files_of(&models) {
        let path = match places.find(file) {
            Some(path) => path,
            None => {
                let mut meter = Meter::new(file.name, file.bytes, args.json);
                hub.pull(file, places, &mut |have| meter.at(have))?
            }
        };
        tell("pulled", file, &path, args.json);
    }
    Ok(())
}

fn verify(args: &VerifyArgs, places: &Places) -> Result<()> {
    let models = args.names.iter().map(|name| named(name)).collect::<Result<Vec<_>>>()?;
    let asked = !models.is_empty();
    let all: Vec<&Model> = if asked { models } else { MODELS.iter().collect() };
    let mut wrong = Vec::new();
    for file in files_of(&all) {
        let Some(path) = places.find(file) else {
            if asked {
                return Err(Failure::Model(format!("{}: not on this machine", file.name)));
            }
            continue;
        };
        match sha256(file, &path, args.json)? == file.sha256 {
            true => tell("verified", file, &path, args.json),
            false => wrong.push(path),
        }
    }
    match &wrong[..] {
        [] => Ok(()),
        [first, ..] => {
            let (count, first) = (wrong.len(), first.display());
            Err(Failure::Model(format!(
                "{first}: its SHA-256 is not the published one ({count} such); delete it and pull it"
            )))
        }
    }
}

fn path(args: &PathArgs, places: &Places) -> Result<()> {
    let model = named(&args.name)?;
    let paths = model.files().map(|file| here(model, file, places));
    for path in paths {
        say!("{}", path?.display());
    }
    Ok(())
}

/// The files of some models, each once.
fn files_of<'a>(models: &[&'a Model]) -> Vec<&'a File> {
    let mut files: Vec<&File> = Vec::new();
    for file in models.iter().flat_map(|model| model.files()) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

fn sha256(file: &File, path: &Path, as_json: bool) -> Result<String> {
    let mut open = OsFile::open(path).map_err(|e| Failure::Model(format!("{}: {e}", path.display())))?;
    let (mut hash, mut have) = (Hash::new(), 0);
    let mut meter = Meter::new(file.name, file.bytes, as_json);
    hash.read(&mut open, path, |count| {
        have += count as u64;
        meter.at(have);
    })?;
    Ok(hash.finish())
}

fn tell(what: &str, file: &File, path: &Path, as_json: bool) {
    match as_json {
        true => say!("{}", json!({"event": what, "file": file.name, "path": path.to_string_lossy()})),
        false => say!("{what} {}", path.display()),
    }
}
