//! The registry of public models: their names and files, where the files are on this machine, and how to get them.
//!
//! [`Session`](crate::Session) finds the files of a model by itself; this module is for front ends that list, download
//! and verify models.

#[cfg(feature = "download")]
mod download;
mod file;
#[cfg(feature = "download")]
mod hash;
#[cfg(all(test, feature = "download"))]
mod hostile_hub_tests;
#[cfg(feature = "download")]
mod hub;
mod places;
mod registry;
#[cfg(all(test, feature = "download"))]
mod tests;
pub(crate) mod weights;

use std::path::{Path, PathBuf};
#[cfg(feature = "download")]
use std::sync::{Arc, atomic::AtomicBool};

use reseed_model::{ModelFolder, nano};

use crate::error::{Error, Result};
use places::Places;
pub use registry::{File, Model, Repo};
use registry::{MODELS, TEXT, VAE};

/// The name of the default model, which is embedded.
pub const EMBEDDED: &str = nano::NAME;

/// A model that is part of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddedModel {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Bytes of its weights.
    pub bytes: usize,
}

/// The models that are part of the program, the default first.
pub fn embedded() -> &'static [EmbeddedModel] {
    const {
        &[
            EmbeddedModel { name: nano::NAME, about: "small and faithful", bytes: nano::BYTES },
            EmbeddedModel {
                name: nano::SHARP_NAME,
                about: "small, draws more texture",
                bytes: nano::BYTES + nano::SHARP_BYTES,
            },
        ]
    }
}

/// Whether a model is part of the program.
pub fn is_embedded(name: &str) -> bool {
    embedded().iter().any(|model| model.name == name)
}

/// The public models, best first.
pub fn all() -> &'static [Model] {
    MODELS
}

/// The files that all public models share: the VAE and the text embedding.
pub fn shared() -> [(&'static str, &'static File); 2] {
    [("vae", &VAE), ("text", &TEXT)]
}

/// The public model with this name.
pub fn find(name: &str) -> Result<&'static Model> {
    if is_embedded(name) {
        return Err(Error::EmbeddedModel { name: name.into() });
    }
    let embedded = || embedded().iter().map(|model| model.name);
    let known = || embedded().chain(MODELS.iter().map(|model| model.name)).collect();
    Model::named(name).ok_or_else(|| Error::UnknownModel { name: name.into(), known: known() })
}

/// Where a file is on this machine.
pub fn locate(file: &File) -> Option<PathBuf> {
    Places::of_user().find(file)
}

/// The paths of a model's transformer, VAE and text embedding.
pub fn paths(name: &str) -> Result<[PathBuf; 3]> {
    let model = find(name)?;
    let [dit, vae, text] = model.files().map(|file| located(model, file));
    Ok([dit?, vae?, text?])
}

/// The path of a model's file, or an error where it is not on this machine.
fn located(model: &Model, file: &'static File) -> Result<PathBuf> {
    let places = Places::of_user();
    let missing = || Error::ModelMissing { file: file.name, model: model.name, folder: places.own.clone() };
    places.find(file).ok_or_else(missing)
}

/// Downloads a file into the hub's cache and verifies its hash. `progress` receives the number of bytes so far. An
/// interrupted download continues where it stopped.
#[cfg(feature = "download")]
pub fn download(file: &'static File, progress: &mut dyn FnMut(u64)) -> Result<PathBuf> {
    let path = download_until(file, &Arc::default(), progress)?;
    tracing::info!(file = file.name, path = %path.display(), "downloaded");
    Ok(path)
}

/// The same as [`download`], until `stop` is set: the error is then [`Error::Cancelled`], and the bytes so far are
/// kept.
#[cfg(feature = "download")]
pub fn download_until(file: &'static File, stop: &Arc<AtomicBool>, progress: &mut dyn FnMut(u64)) -> Result<PathBuf> {
    hub::Hub::of_user().stopped_by(stop).pull(file, &Places::of_user(), progress)
}

/// Whether a file has its published hash. `progress` receives the number of bytes read so far.
#[cfg(feature = "download")]
pub fn is_intact(file: &File, path: &Path, progress: &mut dyn FnMut(u64)) -> Result<bool> {
    let mut open = std::fs::File::open(path).map_err(|cause| Error::ModelFile { path: path.into(), cause })?;
    let (mut hash, mut read) = (hash::Hash::new(), 0);
    hash.read(&mut open, path, |count| {
        read += count as u64;
        progress(read);
    })?;
    Ok(hash.finish() == file.sha256)
}

/// The files of a public model, or those that are given in place of its VAE and its text embedding.
fn folder(name: &str, given: [Option<&Path>; 2]) -> Result<ModelFolder> {
    let model = find(name)?;
    let [dit, vae, text] = model.files();
    let dit = located(model, dit)?;
    let vae = given[0].map_or_else(|| located(model, vae), |path| Ok(path.into()))?;
    let text = given[1].map_or_else(|| located(model, text), |path| Ok(path.into()))?;
    let path = dit.parent().unwrap_or(Path::new("")).into();
    Ok(ModelFolder { path, vae, dit, text: Some(text) })
}
