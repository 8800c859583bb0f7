//! A builder of safetensors files, valid and damaged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use reseed_model::Config;
use reseed_model::weights::Source;
use reseed_model::weights::safetensors::{header, write_values};
use reseed_ops::Shape;
use serde_json::{Map, Value};
use temp_dir::TempDir;

/// The smallest model with one spatial and one temporal downsampling: a few kilobytes.
pub fn smallest() -> Config {
    let mut config = Config::with_channels(&[2, 4], 2);
    (config.layers, config.latent, config.image, config.temporal_stages) = (1, 1, 1, 1);
    config
}

/// Header and data of a safetensors file.
pub struct SafetensorsBuilder {
    pub header: Map<String, Value>,
    pub data: Vec<u8>,
}

impl SafetensorsBuilder {
    /// The f32 file of a model with formula weights.
    pub fn new(config: &Config) -> SafetensorsBuilder {
        let source = super::formula(config);
        let tensors = config.tensors();
        let named: Vec<(&str, Shape)> = tensors.iter().map(|(name, shape)| (name.as_str(), *shape)).collect();
        let metadata = BTreeMap::from([("groups".to_string(), config.groups.to_string())]);
        let text = header(&named, &metadata);
        let mut data = Vec::new();
        for (name, _) in &tensors {
            write_values(&mut data, &source.read(name).unwrap()).unwrap();
        }
        SafetensorsBuilder { header: serde_json::from_slice(&text[8..]).unwrap(), data }
    }

    pub fn tensor(&mut self, name: &str) -> &mut Map<String, Value> {
        self.header[name].as_object_mut().unwrap()
    }

    pub fn set(mut self, name: &str, field: &str, value: Value) -> SafetensorsBuilder {
        self.tensor(name).insert(field.into(), value);
        self
    }

    pub fn metadata(self, key: &str, value: &str) -> SafetensorsBuilder {
        self.set("__metadata__", key, value.into())
    }

    pub fn write(&self) -> TempFile {
        write(Value::Object(self.header.clone()).to_string().as_bytes(), &self.data)
    }
}

/// Writes a file with this header, valid or not.
pub fn write(header: &[u8], data: &[u8]) -> TempFile {
    write_bytes(&[&(header.len() as u64).to_le_bytes(), header, data].concat())
}

pub fn write_bytes(bytes: &[u8]) -> TempFile {
    let file = TempFile::new();
    fs::write(file.path(), bytes).unwrap();
    file
}

/// The path of a file that is removed on drop.
pub struct TempFile {
    _folder: TempDir,
    path: PathBuf,
}

impl TempFile {
    /// A path at which nothing exists yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> TempFile {
        let folder = TempDir::new().unwrap();
        TempFile { path: folder.path().join("file"), _folder: folder }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the file.
    pub fn create(&self) -> File {
        File::create(&self.path).unwrap()
    }
}
