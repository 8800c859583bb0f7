//! The input of a job as a local file.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::manifest::sha256;
use crate::store::{Store, is_address};

/// A local file with the content of `address`: the file itself, or a copy of an object in `cache`.
pub fn local_file(address: &str, cache: &Path) -> Result<PathBuf> {
    if !is_address(address) {
        return Ok(address.into());
    }
    let (store, name) = Store::of(address)?;
    let missing = || Error::Storage { name: address.into(), reason: "not there".into() };
    let identity = store.identity(&name)?.ok_or_else(missing)?;
    let folder = cache.join(&sha256(format!("{address} {identity}").as_bytes())[..16]);
    let file = folder.join(&name);
    if file.is_file() {
        return Ok(file);
    }
    let cannot_write = |cause| reseed::Error::Write { path: folder.clone(), cause };
    fs::create_dir_all(&folder).map_err(cannot_write)?;
    // Several shards of a machine may copy the same input at once.
    let partial = folder.join(format!(".{}.{name}", std::process::id()));
    let copied = store
        .download(&name, &partial)
        .and_then(|()| Ok(reseed::media::files::rename(&partial, &file).map_err(cannot_write)?));
    if copied.is_err() {
        let _ = fs::remove_file(&partial);
    }
    copied.map(|()| file)
}
