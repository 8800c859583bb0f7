//! Folders of pictures, one a frame, in natural name order.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::frame::{Frame, Rate, Size};
use crate::partial::Partial;
use crate::picture::{self, Codec};
use crate::stream::{Info, Kind, Sink, Source};
use crate::video::is_video_name;

/// The pictures of a folder; other files, hidden ones and folders within are passed over.
pub(crate) struct FolderSource {
    folder: PathBuf,
    info: Info,
    read: usize,
}

impl FolderSource {
    /// Lists the folder and reads the headers of all its pictures, so that an odd one is found now and not after hours.
    pub fn open(folder: &Path) -> Result<FolderSource> {
        let names = picture_names(folder)?;
        let Some(first) = names.first() else {
            return Err(Error::EmptyFolder { path: folder.to_owned() });
        };
        let headers = picture::probe(&folder.join(first))?;
        let info = Info {
            size: headers.size,
            frames: Some(names.len()),
            rate: Rate::default(),
            depth: headers.depth,
            alpha: headers.alpha,
            kind: Kind::Folder,
            names,
            icc: headers.icc,
        };
        let mut source = FolderSource { folder: folder.to_owned(), info, read: 0 };
        source.survey_rest()?;
        Ok(source)
    }

    fn survey_rest(&mut self) -> Result<()> {
        for i in 1..self.info.names.len() {
            let path = self.folder.join(&self.info.names[i]);
            let headers = picture::probe(&path)?;
            self.check_size(path, headers.size)?;
            self.info.depth = self.info.depth.max(headers.depth);
            self.info.alpha |= headers.alpha;
        }
        Ok(())
    }

    fn check_size(&self, other: PathBuf, other_size: Size) -> Result<()> {
        if other_size == self.info.size {
            return Ok(());
        }
        let first = self.folder.join(&self.info.names[0]);
        Err(Error::MixedSizes { first, first_size: self.info.size, other, other_size })
    }
}

impl Source for FolderSource {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        let Some(name) = self.info.names.get(self.read) else {
            return Ok(None);
        };
        let path = self.folder.join(name);
        let frame = picture::read(&path)?;
        self.check_size(path, frame.size)?;
        self.read += 1;
        Ok(Some(frame))
    }
}

fn picture_names(folder: &Path) -> Result<Vec<OsString>> {
    names(folder, |path| Codec::from_extension(path).is_some())
}

/// The videos of a folder, in natural name order; none where it is a folder of pictures. One that holds both is refused.
pub fn videos_in(folder: &Path) -> Result<Vec<OsString>> {
    let (videos, pictures) = (names(folder, is_video_name)?, picture_names(folder)?);
    match (videos.first(), pictures.first()) {
        (Some(video), Some(picture)) => {
            Err(Error::MixedKinds { video: folder.join(video), picture: folder.join(picture) })
        }
        _ => Ok(videos),
    }
}

fn names(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<OsString>> {
    let cannot_read = |cause| Error::Read { path: folder.to_owned(), cause };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot_read)? {
        let path = entry.map_err(cannot_read)?.path();
        let Some(name) = path.file_name() else { continue };
        // macOS leaves a hidden `._name.png` beside each file it copies to a foreign disk.
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if !hidden && wanted(&path) && !path.is_dir() {
            names.push(name.to_owned());
        }
    }
    names.sort_by(|a, b| natural_order(&a.to_string_lossy(), &b.to_string_lossy()).then_with(|| a.cmp(b)));
    Ok(names)
}

/// Compares runs of digits by their value and everything else by character: `frame2` before `frame10`.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (number_a, rest_a) = split_number(a);
        let (number_b, rest_b) = split_number(b);
        if !number_a.is_empty() && !number_b.is_empty() {
            let (value_a, value_b) = (number_a.trim_start_matches('0'), number_b.trim_start_matches('0'));
            // Of two numbers without leading zeros the longer is the larger, however long they are.
            match value_a.len().cmp(&value_b.len()).then_with(|| value_a.cmp(value_b)) {
                Ordering::Equal => (a, b) = (rest_a, rest_b),
                unequal => return unequal,
            }
        } else {
            let (mut chars_a, mut chars_b) = (a.chars(), b.chars());
            match (chars_a.next(), chars_b.next()) {
                (None, None) => return Ordering::Equal,
                (x, y) if x == y => (a, b) = (chars_a.as_str(), chars_b.as_str()),
                (x, y) => return x.cmp(&y),
            }
        }
    }
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// A folder to be, of pictures named as the source's were, or numbered from one.
pub(crate) struct FolderSink {
    partial: Partial,
    folder: PathBuf,
    names: Vec<OsString>,
    size: Size,
    icc: Option<Vec<u8>>,
    written: usize,
    /// How many of them the system no longer holds in memory only.
    settled: usize,
}

impl FolderSink {
    pub fn create(folder: &Path, info: &Info) -> Result<FolderSink> {
        Ok(FolderSink::new(Partial::folder(folder)?, folder, info))
    }

    /// Goes on behind so many pictures.
    pub fn resume(folder: &Path, info: &Info, frames: usize) -> Result<FolderSink> {
        let sink = FolderSink::new(Partial::reopen_folder(folder)?, folder, info);
        let there = (0..frames).take_while(|&i| sink.partial.path().join(sink.name(i).0).is_file()).count();
        if there < frames {
            return Err(Error::Lost { path: sink.partial.path().to_owned(), frame: there + 1 });
        }
        Ok(FolderSink { written: frames, settled: frames, ..sink })
    }

    fn new(partial: Partial, folder: &Path, info: &Info) -> FolderSink {
        let (names, icc) = (info.names.clone(), info.icc.clone());
        FolderSink { partial, folder: folder.to_owned(), names, size: info.size, icc, written: 0, settled: 0 }
    }

    /// The name of a picture, and its format.
    fn name(&self, i: usize) -> (PathBuf, Codec) {
        if self.names.is_empty() {
            return (PathBuf::from(format!("{:06}.png", i + 1)), Codec::Png);
        }
        assert!(i < self.names.len(), "{} names for more frames", self.names.len());
        let mut name = PathBuf::from(&self.names[i]);
        let codec = Codec::from_extension(&name).unwrap_or_else(|| {
            name.set_extension("png");
            Codec::Png
        });
        (name, codec)
    }
}

impl Sink for FolderSink {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        frame.assert_fits(self.size);
        let (name, codec) = self.name(self.written);
        let path = self.folder.join(&name);
        let cannot_write = |cause| Error::Write { path: path.clone(), cause };
        let file = File::create(self.partial.path().join(&name)).map_err(cannot_write)?;
        picture::write(file, &path, codec, frame, self.icc.as_deref())?;
        self.written += 1;
        Ok(())
    }

    fn secure(&mut self) -> Result<usize> {
        for i in self.settled..self.written {
            let path = self.partial.path().join(self.name(i).0);
            let synced = File::options().write(true).open(&path).and_then(|file| file.sync_all());
            synced.map_err(|cause| Error::Write { path, cause })?;
        }
        self.settled = self.written;
        Ok(self.written)
    }

    fn keep_unfinished(&mut self) {
        self.partial.keep();
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.partial.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_comes_before_ten() {
        let mut names = ["f10.png", "f9b.png", "f2.png", "f002.png", "f9.png", "e99.png", "f.png", "f1-10", "f1-9"];
        names.sort_by(|a, b| natural_order(a, b).then_with(|| a.cmp(b)));
        assert_eq!(names, ["e99.png", "f.png", "f1-9", "f1-10", "f002.png", "f2.png", "f9.png", "f9b.png", "f10.png"]);
    }

    #[test]
    fn numbers_longer_than_any_integer_compare() {
        let big = "1".repeat(60);
        assert_eq!(natural_order(&format!("{big}1"), &format!("{big}2")), Ordering::Less);
        assert_eq!(natural_order(&big, "9"), Ordering::Greater);
    }
}
