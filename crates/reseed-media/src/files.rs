//! Files as every system needs them handled: Windows refuses to rename or remove a file that another program reads,
//! reserves names for devices, and writes paths in a form that not every program reads.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Renames a file or a folder. An existing file is replaced.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    retried(|| fs::rename(from, to))
}

/// Removes a file.
pub fn remove_file(path: &Path) -> io::Result<()> {
    retried(|| fs::remove_file(path))
}

/// Removes a folder and its content.
pub fn remove_dir_all(path: &Path) -> io::Result<()> {
    retried(|| fs::remove_dir_all(path))
}

#[cfg(not(windows))]
fn retried(attempt: impl Fn() -> io::Result<()>) -> io::Result<()> {
    attempt()
}

/// Tries again for a short time while another program, such as a virus scanner or an indexer, has the file open.
#[cfg(windows)]
fn retried(attempt: impl Fn() -> io::Result<()>) -> io::Result<()> {
    use std::time::{Duration, Instant};
    use windows_sys::Win32::Foundation::{ERROR_ACCESS_DENIED, ERROR_LOCK_VIOLATION, ERROR_SHARING_VIOLATION};
    const PATIENCE: Duration = Duration::from_secs(1);
    let is_open_elsewhere = |error: &io::Error| {
        let codes = [ERROR_ACCESS_DENIED, ERROR_LOCK_VIOLATION, ERROR_SHARING_VIOLATION];
        error.raw_os_error().is_some_and(|code| codes.contains(&(code as u32)))
    };
    let (start, mut pause) = (Instant::now(), Duration::from_millis(5));
    loop {
        match attempt() {
            Err(error) if is_open_elsewhere(&error) && start.elapsed() < PATIENCE => std::thread::sleep(pause),
            done => return done,
        }
        pause = (2 * pause).min(Duration::from_millis(100));
    }
}

/// The absolute path of an existing file or folder without links, in the form that users and other programs write.
pub fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path).map(|path| plain(&path))
}

/// The absolute path of a folder in which ffmpeg is to run.
#[cfg(feature = "ffmpeg")]
pub(crate) fn working_folder(path: &Path) -> io::Result<PathBuf> {
    let path = plain(&std::path::absolute(path)?);
    #[cfg(windows)]
    if length(&path) > LONGEST {
        let why = format!("a folder of {} characters is too long for ffmpeg, which takes {LONGEST}", length(&path));
        return Err(io::Error::new(io::ErrorKind::InvalidFilename, why + "; choose a shorter one"));
    }
    Ok(path)
}

/// The most UTF-16 units of a path that every program of Windows opens, with room for the name of a file.
#[cfg(windows)]
const LONGEST: usize = 247;

#[cfg(windows)]
fn length(path: &Path) -> usize {
    std::os::windows::ffi::OsStrExt::encode_wide(path.as_os_str()).count()
}

/// A path without the prefix `\\?\` of Windows, where it means the same without it.
#[cfg(windows)]
fn plain(path: &Path) -> PathBuf {
    use std::path::{Component, Prefix};
    let mut parts = path.components();
    let start = match parts.next() {
        Some(Component::Prefix(prefix)) => match prefix.kind() {
            Prefix::VerbatimDisk(disk) => format!("{}:", char::from(disk)).into(),
            Prefix::VerbatimUNC(server, share) => {
                let mut start = std::ffi::OsString::from("\\\\");
                [server, OsStr::new("\\"), share].iter().for_each(|part| start.push(part));
                start
            }
            _ => return path.to_owned(),
        },
        _ => return path.to_owned(),
    };
    // Without the prefix these names would be changed or taken for devices.
    let is_odd = |part: &Component| match part {
        Component::Normal(name) => is_device(name) || name.to_string_lossy().ends_with(['.', ' ']),
        _ => false,
    };
    let simple = PathBuf::from(start).join(parts.as_path());
    match parts.any(|part| is_odd(&part)) || length(&simple) > LONGEST {
        true => path.to_owned(),
        false => simple,
    }
}

/// Other systems have no such prefix.
#[cfg(not(windows))]
fn plain(path: &Path) -> PathBuf {
    path.to_owned()
}

/// Names that Windows takes for devices, whatever their extension.
const DEVICES: &[&str] = &["con", "prn", "aux", "nul", "conin$", "conout$"];

/// Whether Windows takes a file name for a device.
pub fn is_device(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let stem = name.split(['.', ':']).next().unwrap_or_default().trim_end().to_ascii_lowercase();
    let port = |kind: &str| stem.strip_prefix(kind).is_some_and(|rest| rest.chars().count() == 1 && rest != "0");
    DEVICES.contains(&stem.as_str()) || port("com") || port("lpt")
}

/// Fails on Windows for the name of a device: a program that writes to it loses what it writes, or waits forever.
pub fn check_name(path: &Path) -> Result<(), Error> {
    match cfg!(windows) && path.file_name().is_some_and(is_device) {
        true => Err(Error::BadName { path: path.to_owned(), reason: "Windows reserves this name for a device" }),
        false => Ok(()),
    }
}

/// Fails on Windows for a path that is not valid Unicode, which ffmpeg receives changed.
#[cfg(feature = "ffmpeg")]
pub(crate) fn check_unicode(path: &Path) -> Result<(), Error> {
    match cfg!(windows) && path.to_str().is_none() {
        true => Err(Error::BadName { path: path.to_owned(), reason: "ffmpeg opens names in valid Unicode only" }),
        false => Ok(()),
    }
}

/// Locks a file for this handle, without waiting. Other handles can still read it.
#[cfg(not(windows))]
pub fn try_lock(file: &File) -> Result<(), TryLockError> {
    file.try_lock()
}

/// Locks a byte far beyond the end of a file for this handle, without waiting. Windows keeps other handles from locked
/// bytes, so that a lock of the content would keep them from reading it.
#[cfg(windows)]
pub fn try_lock(file: &File) -> Result<(), TryLockError> {
    use std::os::windows::io::AsRawHandle;
    use windows_sys::Win32::Foundation::{ERROR_IO_PENDING, ERROR_LOCK_VIOLATION};
    use windows_sys::Win32::Storage::FileSystem::{LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx};
    use windows_sys::Win32::System::IO::OVERLAPPED;
    let mut place = OVERLAPPED::default();
    place.Anonymous.Anonymous.OffsetHigh = 0x7fff_ffff;
    let flags = LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY;
    // SAFETY: the handle is open for as long as the file is borrowed. It was opened without overlapped operation, so
    // that the call is over when it returns, and `place` is valid until then.
    if unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &mut place) } != 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error().map(|code| code as u32) {
        Some(ERROR_IO_PENDING | ERROR_LOCK_VIOLATION) => Err(TryLockError::WouldBlock),
        _ => Err(TryLockError::Error(error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn devices_of_windows_have_any_extension() {
        let is_device = |name: &str| super::is_device(OsStr::new(name));
        assert!(["nul", "CON.mp4", "com1.mkv", "lpt9", "aux .png", "nul:", "com\u{b9}"].into_iter().all(is_device));
        assert!(!["null", "con-1.mp4", "com0", "com10.mkv", "a.nul", ""].into_iter().any(is_device));
    }

    #[test]
    fn a_locked_file_can_be_read_and_not_locked_again() {
        let folder = temp_dir::TempDir::new().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "content").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let first = open();
        try_lock(&first).unwrap();
        assert!(matches!(try_lock(&open()), Err(TryLockError::WouldBlock)));
        assert_eq!(fs::read(&path).unwrap(), b"content");
        drop(first);
        try_lock(&open()).unwrap();
    }

    #[test]
    fn a_canonical_path_is_absolute_and_has_no_prefix() {
        let folder = temp_dir::TempDir::new().unwrap();
        let path = canonicalize(folder.path()).unwrap();
        assert!(path.is_absolute() && !path.to_string_lossy().starts_with("\\\\?\\"), "{}", path.display());
    }

    #[cfg(windows)]
    #[test]
    fn a_path_keeps_its_prefix_where_it_means_something() {
        let plain = |path: &str| super::plain(Path::new(path)).to_str().unwrap().to_owned();
        assert_eq!(plain(r"\\?\C:\videos\a.mp4"), r"C:\videos\a.mp4");
        assert_eq!(plain(r"\\?\UNC\server\share\a.mp4"), r"\\server\share\a.mp4");
        assert_eq!(plain(r"\\?\C:\"), r"C:\");
        let long = format!(r"\\?\C:\{}", "a".repeat(250));
        for path in [r"\\?\C:\videos\nul.mp4", r"\\?\C:\a.\b.mp4", r"C:\a.mp4", r"a\b", &long] {
            assert_eq!(plain(path), path);
        }
    }

    #[cfg(windows)]
    #[test]
    fn a_file_that_is_open_elsewhere_for_a_moment_is_renamed_and_removed() {
        use std::os::windows::fs::OpenOptionsExt;
        let folder = temp_dir::TempDir::new().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        let hold = |path: &Path| {
            let held = File::options().read(true).share_mode(0).open(path).unwrap();
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(200));
                drop(held);
            })
        };
        let holder = hold(&to);
        rename(&from, &to).unwrap();
        holder.join().unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"new");
        let holder = hold(&to);
        remove_file(&to).unwrap();
        holder.join().unwrap();
        assert!(!to.exists());
    }
}
