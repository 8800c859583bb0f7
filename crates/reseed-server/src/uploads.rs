//! Uploads by the protocol tus 1.0. The offset of an upload is the length of its file, so that nothing else has to be
//! kept safe.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reseed::media::files;
use serde_json::{Value, json};

use crate::config::Limits;

const FOLDER: &str = "uploads";
const DATA: &str = "data";
const INFO: &str = "info.json";
/// Incomplete uploads are removed after this time.
const EXPIRY: Duration = Duration::from_secs(7 * 24 * 3600);
/// The longest name of a file, without its extension.
const LONGEST: usize = 80;

/// An upload.
#[derive(Clone, Debug)]
pub struct Upload {
    pub length: u64,
    pub offset: u64,
}

impl Upload {
    fn is_complete(&self) -> bool {
        self.length == self.offset
    }
}

/// All uploads.
pub struct Uploads {
    folder: PathBuf,
    most: usize,
    /// Uploads that a request writes to.
    busy: Mutex<HashSet<String>>,
    /// Held while an upload is created, so that no more than allowed exist.
    creating: Mutex<()>,
}

/// Why an upload is refused.
#[derive(Debug)]
pub enum Refusal {
    TooMany(usize),
    Storage(io::Error),
}

impl Uploads {
    /// The uploads of a data folder, without those that are old and incomplete.
    pub fn open(data: &Path, limits: &Limits) -> io::Result<Uploads> {
        let folder = data.join(FOLDER);
        fs::create_dir_all(&folder)?;
        let uploads = Uploads { folder, most: limits.uploads, busy: Mutex::default(), creating: Mutex::default() };
        for id in uploads.ids() {
            let age = fs::metadata(uploads.data(&id)).and_then(|file| file.modified()).ok();
            let old = age.and_then(|age| age.elapsed().ok()).is_none_or(|age| age > EXPIRY);
            if old && uploads.get(&id).is_none_or(|upload| !upload.is_complete()) {
                let _ = fs::remove_dir_all(uploads.folder.join(&id));
            }
        }
        Ok(uploads)
    }

    fn ids(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// The file that bytes are added to.
    pub fn data(&self, id: &str) -> PathBuf {
        self.folder.join(id).join(DATA)
    }

    fn info(&self, id: &str) -> Option<Value> {
        // An id is a name that this server drew.
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        serde_json::from_slice(&fs::read(self.folder.join(id).join(INFO)).ok()?).ok()
    }

    /// An upload.
    pub fn get(&self, id: &str) -> Option<Upload> {
        let info = self.info(id)?;
        let length = info["length"].as_u64()?;
        let file = [self.data(id), self.named(id, &info)].into_iter().find_map(|path| fs::metadata(path).ok());
        Some(Upload { length, offset: file?.len() })
    }

    /// The file of a complete upload.
    pub fn complete(&self, id: &str) -> Option<PathBuf> {
        let info = self.info(id)?;
        let path = self.named(id, &info);
        path.is_file().then_some(path)
    }

    /// The name that a complete upload has.
    fn named(&self, id: &str, info: &Value) -> PathBuf {
        self.folder.join(id).join("file").join(info["name"].as_str().unwrap_or("upload"))
    }

    /// A new upload.
    pub fn create(&self, id: &str, length: u64, name: &str) -> Result<(), Refusal> {
        let _creating = self.creating.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.ids().iter().filter(|id| self.get(id).is_some_and(|upload| !upload.is_complete())).count();
        if open >= self.most {
            return Err(Refusal::TooMany(self.most));
        }
        let create = || -> io::Result<()> {
            let folder = self.folder.join(id);
            fs::create_dir_all(folder.join("file"))?;
            File::create(self.data(id))?;
            fs::write(folder.join(INFO), json!({"length": length, "name": safe_name(name)}).to_string())
        };
        create().map_err(Refusal::Storage)?;
        if length == 0 { self.finish(id).map_err(Refusal::Storage) } else { Ok(()) }
    }

    /// All bytes have arrived: the upload is safe on disk and gets its name.
    pub fn finish(&self, id: &str) -> io::Result<()> {
        let info = self.info(id).ok_or(io::ErrorKind::NotFound)?;
        File::options().write(true).open(self.data(id))?.sync_all()?;
        files::rename(&self.data(id), &self.named(id, &info))
    }

    /// Removes an upload. False where none has this id.
    pub fn remove(&self, id: &str) -> io::Result<bool> {
        if self.info(id).is_none() {
            return Ok(false);
        }
        files::remove_dir_all(&self.folder.join(id)).map(|()| true)
    }

    /// Makes a request the only one that writes to an upload.
    pub fn lock(&self, id: &str) -> Option<UploadLock<'_>> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.insert(id.to_owned()).then(|| UploadLock { uploads: self, id: id.to_owned() })
    }
}

/// The right to write to an upload.
pub struct UploadLock<'a> {
    uploads: &'a Uploads,
    id: String,
}

impl Drop for UploadLock<'_> {
    fn drop(&mut self) {
        self.uploads.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// A client's name of a file without what could lead elsewhere or mean something to ffmpeg.
fn safe_name(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain = |c: char| if c.is_alphanumeric() || "-_. ()".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
    let stem: String = stem.trim_matches(['.', ' ']).chars().take(LONGEST).collect();
    let extension: String = extension.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    let stem = if stem.is_empty() { "upload".to_owned() } else { stem };
    if extension.is_empty() { stem } else { format!("{stem}.{extension}") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clients_stay_plain() {
        for (name, safe) in [
            ("tape 1.mp4", "tape 1.mp4"),
            ("../../etc/passwd", "passwd"),
            ("C:\\videos\\a.MKV", "a.MKV"),
            ("frame%04d.png", "frame_04d.png"),
            ("...", "upload"),
            (".mp4", "upload.mp4"),
            ("a\n|b.mp4", "a__b.mp4"),
            ("", "upload"),
        ] {
            assert_eq!(safe_name(name), safe, "{name:?}");
        }
        assert!(safe_name(&"x".repeat(5000)).len() <= LONGEST);
    }

    #[test]
    fn uploads_are_counted_and_named_when_complete() {
        let folder = temp_dir::TempDir::new().unwrap();
        let limits = Limits { uploads: 1, ..Limits::default() };
        let uploads = Uploads::open(folder.path(), &limits).unwrap();
        uploads.create("a1", 3, "x.mp4").unwrap();
        assert!(matches!(uploads.create("a2", 3, "x.mp4"), Err(Refusal::TooMany(1))));
        assert!(uploads.complete("a1").is_none() && uploads.get("../a1").is_none());
        fs::write(uploads.data("a1"), "abc").unwrap();
        uploads.finish("a1").unwrap();
        assert!(uploads.complete("a1").unwrap().ends_with("a1/file/x.mp4"));
        uploads.create("a2", 0, "").unwrap();
        assert!(uploads.lock("a2").is_some_and(|_lock| uploads.lock("a2").is_none()) && uploads.lock("a2").is_some());
        assert!(uploads.remove("a1").unwrap() && !uploads.remove("a1").unwrap());
    }
}
