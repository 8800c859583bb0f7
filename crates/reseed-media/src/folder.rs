//! Folders of images, one per frame, in natural name order.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::digest::{Digest, read_into};
use crate::error::{Error, Result};
use crate::frame::{Frame, Rate, Size};
use crate::image_file::{self, Decoded, ImageCodec};
use crate::partial::Partial;
use crate::problem::Problem;
use crate::stream::{ImageTags, Info, Kind, Sink, Source};
use crate::video::{Container, is_video_name};

/// The images of a folder that have a number at one place of their name, given as in ffmpeg: `frames/shot-%04d.png`.
struct Sequence {
    folder: PathBuf,
    prefix: String,
    suffix: String,
}

impl Sequence {
    /// The sequence that a path names; `None` if it names a file or a folder.
    fn of(path: &Path) -> Option<Sequence> {
        let (prefix, rest) = path.file_name()?.to_str()?.split_once('%')?;
        let (width, suffix) = rest.split_once('d')?;
        let number = width.chars().all(|c| c.is_ascii_digit());
        let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        (number && !path.exists()).then(|| Sequence {
            folder: parent.to_owned(),
            prefix: prefix.to_owned(),
            suffix: suffix.to_owned(),
        })
    }

    fn matches(&self, name: &str) -> bool {
        let number = name.strip_prefix(&self.prefix).and_then(|rest| rest.strip_suffix(&self.suffix));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

/// Whether a path is a pattern of names.
pub(crate) fn is_sequence(path: &Path) -> bool {
    Sequence::of(path).is_some()
}

/// The images that match a pattern such as `frames/%04d.png`, in natural order; `None` for other paths.
pub fn sequence(path: &Path) -> Option<Vec<PathBuf>> {
    let sequence = Sequence::of(path)?;
    let names = image_names(&sequence.folder).unwrap_or_default();
    let names = names.iter().filter(|name| sequence.matches(&name.to_string_lossy()));
    Some(names.map(|name| sequence.folder.join(name)).collect())
}

/// A source that reads the images of a folder and ignores other files, hidden files and subfolders.
pub(crate) struct FolderSource {
    folder: PathBuf,
    info: Info,
    read: usize,
    problems: Vec<Problem>,
}

impl FolderSource {
    /// Lists the folder and reads the headers of all images, so that a bad image is found before the job starts.
    pub fn open(path: &Path, rate: Option<Rate>) -> Result<FolderSource> {
        let sequence = Sequence::of(path);
        let folder = sequence.as_ref().map_or(path, |sequence| &sequence.folder);
        let mut names = image_names(folder)?;
        names.retain(|name| sequence.as_ref().is_none_or(|sequence| sequence.matches(&name.to_string_lossy())));
        let Some(first) = names.first() else {
            return Err(Error::EmptyFolder { path: path.to_owned() });
        };
        let headers = image_file::probe(&folder.join(first))?;
        let info = Info {
            size: headers.size,
            frames: Some(names.len()),
            rate: rate.unwrap_or_default(),
            depth: headers.depth,
            alpha: headers.alpha,
            kind: Kind::Folder,
            names,
            tags: ImageTags { source: Some(folder.to_owned()), ..headers.tags },
        };
        let mut source = FolderSource { folder: folder.to_owned(), info, read: 0, problems: Vec::new() };
        source.check_rest()?;
        Ok(source)
    }

    fn check_rest(&mut self) -> Result<()> {
        for i in 1..self.info.names.len() {
            let path = self.folder.join(&self.info.names[i]);
            let headers = image_file::probe(&path)?;
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
        let Decoded { frame, problem, .. } = image_file::read(&path)?;
        self.problems.extend(problem.map(|damage| Problem::Image { path: path.clone(), damage }));
        self.check_size(path, frame.size)?;
        self.read += 1;
        Ok(Some(frame))
    }

    fn problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems)
    }
}

/// Whether a path has the extension of an image or of an animation.
pub fn is_image_name(path: &Path) -> bool {
    let gif = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gif"));
    gif || ImageCodec::from_extension(path).is_some()
}

fn image_names(folder: &Path) -> Result<Vec<OsString>> {
    names(folder, |path| ImageCodec::from_extension(path).is_some())
}

/// The names of the videos in a folder, in natural order; empty for a folder of images. A folder with both is an error.
pub fn videos_in(folder: &Path) -> Result<Vec<OsString>> {
    let (videos, images) = (names(folder, is_video_name)?, image_names(folder)?);
    match (videos.first(), images.first()) {
        (Some(video), Some(image)) => Err(Error::MixedKinds { video: folder.join(video), image: folder.join(image) }),
        _ => Ok(videos),
    }
}

/// The names of the files of a folder that are jobs of their own, in natural order: videos, or images of different
/// sizes. Empty for a folder of images of one size, which is one job.
pub fn jobs_in(folder: &Path) -> Result<Vec<OsString>> {
    let videos = videos_in(folder)?;
    if !videos.is_empty() {
        return Ok(videos);
    }
    let images = image_names(folder)?;
    let mut sizes = images.iter().map(|name| image_file::probe(&folder.join(name)).ok().map(|headers| headers.size));
    // A file that cannot be read is an error of its own, whatever the sizes of the others.
    let first = sizes.next().flatten();
    match sizes.any(|size| size.is_some() && first.is_some() && size != first) {
        true => Ok(images),
        false => Ok(Vec::new()),
    }
}

/// The name of the output for a file of a folder: the same if its format can be written, else PNG for an image and
/// Matroska, which holds everything, for a video. `names` are all files of the folder.
pub fn output_name(name: &Path, names: &[OsString]) -> PathBuf {
    if ImageCodec::from_extension(name).is_some() {
        return if ImageCodec::for_output(name).is_some() { name.to_owned() } else { png_name(name, names) };
    }
    let y4m = name.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("y4m"));
    if Container::of(name).is_some() || y4m { name.to_owned() } else { name.with_extension("mkv") }
}

fn names(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<OsString>> {
    let cannot_read = |cause| Error::Read { path: folder.to_owned(), cause };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot_read)? {
        let path = entry.map_err(cannot_read)?.path();
        let Some(name) = path.file_name() else { continue };
        // macOS writes a hidden `._name.png` beside each file on a foreign file system.
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if !hidden && wanted(&path) && !path.is_dir() {
            names.push(name.to_owned());
        }
    }
    names.sort_by(|a, b| natural_order(&a.to_string_lossy(), &b.to_string_lossy()).then_with(|| a.cmp(b)));
    Ok(names)
}

/// Compares runs of digits by value and all else by character: `frame2` before `frame10`.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (number_a, rest_a) = split_number(a);
        let (number_b, rest_b) = split_number(b);
        if !number_a.is_empty() && !number_b.is_empty() {
            let (value_a, value_b) = (number_a.trim_start_matches('0'), number_b.trim_start_matches('0'));
            // Without leading zeros, the longer number is the larger one.
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

/// A sink that writes a folder of images, with the names of the source or numbered from one.
pub(crate) struct FolderSink {
    partial: Partial,
    folder: PathBuf,
    names: Vec<OsString>,
    size: Size,
    tags: ImageTags,
    written: usize,
    /// The number of images that are synced to the disk, and the digest of their names and bytes.
    synced: usize,
    digest: Digest,
}

impl FolderSink {
    pub fn create(folder: &Path, info: &Info) -> Result<FolderSink> {
        Ok(FolderSink::new(Partial::folder(folder)?, folder, info))
    }

    /// Continues after the first `frames` images.
    pub fn resume(folder: &Path, info: &Info, frames: usize) -> Result<FolderSink> {
        let mut sink = FolderSink::new(Partial::reopen_folder(folder)?, folder, info);
        let existing = (0..frames).take_while(|&i| sink.add(i, File::open).is_ok()).count();
        if existing < frames {
            return Err(Error::MissingFrame { path: sink.partial.path().to_owned(), frame: existing + 1 });
        }
        Ok(FolderSink { written: frames, synced: frames, ..sink })
    }

    /// The temporary folder.
    pub fn folder(&self) -> &Path {
        self.partial.path()
    }

    /// The path of image `i` in the temporary folder.
    pub fn path_of(&self, i: usize) -> PathBuf {
        self.partial.path().join(self.name(i).0)
    }

    /// Removes the images.
    pub fn discard(self) {
        self.partial.discard();
    }

    /// Writes to a temporary folder; errors name images in `folder`.
    pub fn new(partial: Partial, folder: &Path, info: &Info) -> FolderSink {
        let (names, tags) = (info.names.clone(), info.tags.clone());
        let (size, digest) = (info.size, Digest::new(0));
        FolderSink { partial, folder: folder.to_owned(), names, size, tags, written: 0, synced: 0, digest }
    }

    /// Adds image `i` to the digest; returns its file.
    fn add(&mut self, i: usize, open: impl FnOnce(PathBuf) -> io::Result<File>) -> io::Result<File> {
        let name = self.name(i).0;
        let file = open(self.partial.path().join(&name))?;
        self.digest.update(name.as_os_str().as_encoded_bytes());
        let bytes = read_into(&mut self.digest, &file, u64::MAX)?;
        self.digest.update(&bytes.to_le_bytes());
        Ok(file)
    }

    /// The tags of image `i`, from the image of the source that has its name.
    fn tags(&self, i: usize) -> Cow<'_, ImageTags> {
        let name = self.tags.source.as_ref().zip(self.names.get(i));
        let tags = name.and_then(|(folder, name)| Some(image_file::probe(&folder.join(name)).ok()?.tags));
        tags.map_or(Cow::Borrowed(&self.tags), Cow::Owned)
    }

    /// The name and the format of image `i`.
    fn name(&self, i: usize) -> (PathBuf, ImageCodec) {
        if self.names.is_empty() {
            return (PathBuf::from(format!("{:06}.png", i + 1)), ImageCodec::Png);
        }
        assert!(i < self.names.len(), "{} names for more frames", self.names.len());
        let name = PathBuf::from(&self.names[i]);
        match ImageCodec::for_output(&name) {
            Some(codec) => (name, codec),
            None => (png_name(&name, &self.names), ImageCodec::Png),
        }
    }
}

/// The name of a PNG file for an image in a format that is not written; another one if `names` has it already.
pub(crate) fn png_name(name: &Path, names: &[OsString]) -> PathBuf {
    let png = name.with_extension("png");
    match names.iter().any(|other| png.as_os_str() == other) {
        true => PathBuf::from(format!("{}.png", name.display())),
        false => png,
    }
}

impl Sink for FolderSink {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        frame.assert_fits(self.size);
        let (name, codec) = self.name(self.written);
        let path = self.folder.join(&name);
        let cannot_write = |cause| Error::Write { path: path.clone(), cause };
        let file = File::create(self.partial.path().join(&name)).map_err(cannot_write)?;
        image_file::write(file, &path, codec, frame, &self.tags(self.written))?;
        self.written += 1;
        Ok(())
    }

    fn sync(&mut self) -> Result<usize> {
        for i in self.synced..self.written {
            let open = |path| File::options().read(true).write(true).open(path);
            let synced = self.add(i, open).and_then(|file| file.sync_all());
            synced.map_err(|cause| Error::Write { path: self.partial.path().join(self.name(i).0), cause })?;
        }
        self.synced = self.written;
        Ok(self.written)
    }

    fn digest(&self) -> u64 {
        self.digest.value()
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
    fn numbers_in_names_sort_by_value() {
        let mut names = ["f10.png", "f9b.png", "f2.png", "f002.png", "f9.png", "e99.png", "f.png", "f1-10", "f1-9"];
        names.sort_by(|a, b| natural_order(a, b).then_with(|| a.cmp(b)));
        assert_eq!(names, ["e99.png", "f.png", "f1-9", "f1-10", "f002.png", "f2.png", "f9.png", "f9b.png", "f10.png"]);
    }

    #[test]
    fn outputs_keep_their_names_where_they_can() {
        let names = ["a.mp4", "b.MKV", "c.y4m", "d.avi", "e.jpg", "f.bmp", "f.png", "g.heic"].map(OsString::from);
        let outputs = names.each_ref().map(|name| output_name(Path::new(name), &names).display().to_string());
        assert_eq!(outputs, ["a.mp4", "b.MKV", "c.y4m", "d.mkv", "e.jpg", "f.bmp.png", "f.png", "g.png"]);
    }

    #[test]
    fn numbers_longer_than_any_integer_sort_by_value() {
        let big = "1".repeat(60);
        assert_eq!(natural_order(&format!("{big}1"), &format!("{big}2")), Ordering::Less);
        assert_eq!(natural_order(&big, "9"), Ordering::Greater);
    }
}
