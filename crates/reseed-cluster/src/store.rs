//! A folder of files or objects.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutMode, PutPayload};
use tokio::runtime::{Builder, Runtime};
use url::Url;

use super::http::Connector;
use crate::error::{Error, Result};

/// Bytes that are read or written by one request.
const PIECE: usize = 16 << 20;

/// A folder of files or objects.
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    folder: ObjectPath,
    /// The folder as the user writes it, for errors.
    name: String,
    runtime: Runtime,
}

/// Whether a text is an address of object storage instead of a path.
pub fn is_address(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

impl Store {
    /// The folder of the file or object at `address`, and its name in the folder.
    pub fn of(address: &str) -> Result<(Store, String)> {
        let wrong = |reason: String| Error::Address { address: address.into(), reason };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|cause| wrong(cause.to_string()))?;
        let (objects, path): (Arc<dyn ObjectStore>, ObjectPath) = match is_address(address) {
            true => {
                let url = Url::parse(address).map_err(|cause| wrong(cause.to_string()))?;
                open(&url, &std::env::vars().collect::<Vec<_>>()).map_err(|cause| wrong(first_line(&cause)))?
            }
            false => local(Path::new(address)).map_err(wrong)?,
        };
        let file = path.filename().map(str::to_owned).ok_or_else(|| wrong("it names no file".into()))?;
        let folder = ObjectPath::from_iter(path.parts().take(path.parts().count() - 1));
        let name = address[..address.len() - file.len().min(address.len())].to_owned();
        Ok((Store { objects, folder, name, runtime }, file))
    }

    /// The content of an object; `None` where there is none.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(meta) = self.meta(name)? else { return Ok(None) };
        let mut content = Vec::with_capacity(meta.size as usize);
        self.pieces(name, &meta, |piece| {
            content.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(Some(content))
    }

    /// Creates an object; `false` where it exists already, and then it stays as it is.
    pub fn create(&self, name: &str, content: Vec<u8>) -> Result<bool> {
        let (path, payload) = (self.path(name), PutPayload::from(content));
        match self.runtime.block_on(self.objects.put_opts(&path, payload, PutMode::Create.into())) {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.failed(name, &error)),
        }
    }

    /// Copies an object to a file.
    pub fn download(&self, name: &str, to: &Path) -> Result<()> {
        let meta = self.meta(name)?.ok_or_else(|| self.missing(name))?;
        let cannot_write = |cause| reseed::Error::Write { path: to.into(), cause };
        let mut file = File::create(to).map_err(cannot_write)?;
        self.pieces(name, &meta, |piece| Ok(file.write_all(piece).map_err(cannot_write)?))?;
        Ok(file.sync_all().map_err(cannot_write)?)
    }

    /// Copies a file to an object, which it replaces.
    pub fn upload(&self, from: &Path, name: &str) -> Result<()> {
        let cannot_read = |cause| reseed::Error::Read { path: from.into(), cause };
        let mut file = File::open(from).map_err(cannot_read)?;
        let failed = |error: object_store::Error| self.failed(name, &error);
        let mut upload = self.runtime.block_on(self.objects.put_multipart(&self.path(name))).map_err(failed)?;
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            (&mut file).take(PIECE as u64).read_to_end(&mut piece).map_err(cannot_read)?;
            if piece.is_empty() {
                break;
            }
            self.runtime.block_on(upload.put_part(PutPayload::from(piece))).map_err(failed)?;
        }
        self.runtime.block_on(upload.complete()).map_err(failed)?;
        Ok(())
    }

    /// The size of an object and what changes with its content; `None` where there is none.
    pub fn identity(&self, name: &str) -> Result<Option<String>> {
        let meta = self.meta(name)?;
        Ok(meta.map(|meta| format!("{} {} {}", meta.size, meta.last_modified, meta.e_tag.unwrap_or_default())))
    }

    /// An object as the user writes it.
    pub fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.name)
    }

    fn meta(&self, name: &str) -> Result<Option<ObjectMeta>> {
        match self.runtime.block_on(self.objects.head(&self.path(name))) {
            Ok(meta) => Ok(Some(meta)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(name, &error)),
        }
    }

    /// Passes the content of an object to `each`, piece by piece.
    fn pieces(&self, name: &str, meta: &ObjectMeta, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut start = 0;
        while start < meta.size {
            let end = meta.size.min(start + PIECE as u64);
            let piece = self.runtime.block_on(self.objects.get_range(&meta.location, start..end));
            each(&piece.map_err(|error| self.failed(name, &error))?)?;
            start = end;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> ObjectPath {
        name.split('/').fold(self.folder.clone(), |path, part| path.join(part))
    }

    fn failed(&self, name: &str, error: &object_store::Error) -> Error {
        Error::Storage { name: self.full_name(name), reason: first_line(error) }
    }

    fn missing(&self, name: &str) -> Error {
        Error::Storage { name: self.full_name(name), reason: "not there".into() }
    }
}

/// Storage of an address, with settings such as `AWS_REGION`; others are ignored.
fn open(url: &Url, settings: &[(String, String)]) -> object_store::Result<(Arc<dyn ObjectStore>, ObjectPath)> {
    let (scheme, path) = ObjectStoreScheme::parse(url)?;
    let text = url.to_string();
    let objects: Arc<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::Local => {
            let path = url.to_file_path().map_err(|()| unknown("not a local file"))?;
            return local(&path).map_err(|reason| unknown(&reason));
        }
        ObjectStoreScheme::AmazonS3 => {
            let known = known(settings, "AWS_");
            let builder = known.fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(key, value));
            Arc::new(builder.with_url(text).with_http_connector(Connector).build()?)
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let (known, new) = (known(settings, "GOOGLE_"), GoogleCloudStorageBuilder::new());
            let builder = known.fold(new, |builder, (key, value)| builder.with_config(key, value));
            Arc::new(builder.with_url(text).with_http_connector(Connector).build()?)
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let (known, new) = (known(settings, "AZURE_"), MicrosoftAzureBuilder::new());
            let builder = known.fold(new, |builder, (key, value)| builder.with_config(key, value));
            Arc::new(builder.with_url(text).with_http_connector(Connector).build()?)
        }
        _ => return Err(unknown("unknown storage")),
    };
    Ok((objects, path))
}

/// The settings of a provider that are known, with their keys.
fn known<'a, K: FromStr>(settings: &'a [(String, String)], prefix: &'static str) -> impl Iterator<Item = (K, &'a str)> {
    let named = settings.iter().filter(move |(name, _)| name.starts_with(prefix));
    named.filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value.as_str())))
}

fn unknown(reason: &str) -> object_store::Error {
    object_store::Error::NotSupported { source: reason.into() }
}

/// The folder of a local file, which is created.
fn local(path: &Path) -> Result<(Arc<dyn ObjectStore>, ObjectPath), String> {
    let path = std::path::absolute(path).map_err(|cause| cause.to_string())?;
    let (folder, file) = path.parent().zip(path.file_name()).ok_or("it names no file")?;
    fs::create_dir_all(folder).map_err(|cause| cause.to_string())?;
    let objects = LocalFileSystem::new_with_prefix(folder).map_err(|cause| first_line(&cause))?;
    let file = file.to_str().ok_or("its name is not text")?;
    let path = ObjectPath::parse(file).map_err(|cause| cause.to_string())?;
    Ok((Arc::new(objects), path))
}

/// The deepest reason, on one line.
fn first_line(error: &object_store::Error) -> String {
    let mut reason: &dyn std::error::Error = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    reason.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod s3_tests;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn objects_are_created_once_and_read_in_pieces() {
        let folder = temp_dir::TempDir::new().unwrap();
        let address = folder.path().join("new/job.json").to_str().unwrap().to_owned();
        let (store, name) = Store::of(&address).unwrap();
        assert_eq!((name.as_str(), store.full_name(&name)), ("job.json", address));
        assert_eq!(store.read("job.json").unwrap(), None);
        let content: Vec<u8> = (0..PIECE + 7).map(|i| (i * 7) as u8).collect();
        assert!(store.create("a/b", content.clone()).unwrap());
        assert!(!store.create("a/b", b"other".to_vec()).unwrap());
        assert_eq!(store.read("a/b").unwrap(), Some(content.clone()));
        let copy = folder.path().join("copy");
        store.download("a/b", &copy).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), content);
        store.upload(&copy, "c").unwrap();
        assert_eq!(store.read("c").unwrap(), Some(content));
        assert!(store.download("none", &copy).unwrap_err().to_string().contains("none: not there"));
    }

    #[test]
    fn addresses_are_told_from_paths() {
        assert!(is_address("s3://bucket/job.json") && is_address("file:///tmp/job.json"));
        assert!(!is_address("folder/job.json") && !is_address("C:\\job.json") && !is_address("C://job.json"));
        let error = Store::of("ftp://host/job.json").err().unwrap();
        assert!(error.to_string().starts_with("ftp://host/job.json: "), "{error}");
    }
}
