//! Frames that are finished but not yet safe in their output: a video is safe only segment by segment, so until then its
//! frames lie here as they are, in a file for every batch.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use reseed_media::{Depth, Error, Frame, Info, Result, Samples, Sink};

/// `frames-120-5` has five frames from number 120 on.
const NAME: &str = "frames-";
const GROWING: &str = "frames-growing";

/// A file of frames.
struct Part {
    path: PathBuf,
    first: usize,
    count: usize,
}

/// A sink that makes every frame safe before the one behind it does.
pub struct Spool {
    inner: Box<dyn Sink>,
    folder: PathBuf,
    written: usize,
    /// Frames that the sink behind has.
    there: usize,
    parts: VecDeque<Part>,
    /// The file that grows, and the number of its first frame.
    growing: Option<(BufWriter<File>, usize)>,
    /// What frames are like that the sink behind is still to get.
    replay: Option<Info>,
}

impl Spool {
    /// Before the first frame.
    pub fn create(inner: Box<dyn Sink>, folder: &Path) -> Spool {
        let (parts, folder) = (VecDeque::new(), folder.into());
        Spool { inner, folder, written: 0, there: 0, parts, growing: None, replay: None }
    }

    /// Behind so many frames.
    pub fn resume(mut inner: Box<dyn Sink>, folder: &Path, info: &Info, frames: usize) -> Result<Spool> {
        let there = inner.secure()?;
        let (parts, later): (Vec<Part>, Vec<Part>) = parts(folder).into_iter().partition(|part| part.first < frames);
        // Finished, but never told.
        later.iter().for_each(|part| drop(fs::remove_file(&part.path)));
        let reach =
            |reach: usize, part: &Part| if part.first <= reach { reach.max(part.first + part.count) } else { reach };
        let reach = parts.iter().fold(there, reach);
        if reach < frames {
            return Err(Error::Lost { path: folder.into(), frame: reach + 1 });
        }
        let replay = (there < frames).then(|| info.clone());
        Ok(Spool { written: frames, there, parts: parts.into(), replay, ..Spool::create(inner, folder) })
    }

    /// Gives the sink behind those frames that it had not made safe. Not before it gets another: only then are their
    /// times known, since the source is read anew.
    fn replay(&mut self) -> Result<()> {
        let Some(info) = self.replay.take() else { return Ok(()) };
        for part in &self.parts {
            let cannot_read = |cause| Error::Read { path: part.path.clone(), cause };
            let mut file = BufReader::new(File::open(&part.path).map_err(cannot_read)?);
            for number in part.first..part.first + part.count {
                let frame = read(&mut file, &info).map_err(cannot_read)?;
                if number == self.there && number < self.written {
                    self.inner.write(&frame)?;
                    self.there += 1;
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, frame: &Frame) -> io::Result<()> {
        let (file, _) = match &mut self.growing {
            Some(growing) => growing,
            none => none.insert((BufWriter::new(File::create(self.folder.join(GROWING))?), self.written)),
        };
        write(file, frame)
    }

    /// Makes the file that grows safe, and gives it its name.
    fn close_part(&mut self) -> io::Result<()> {
        let Some((file, first)) = self.growing.take() else { return Ok(()) };
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()?;
        let count = self.written - first;
        let path = self.folder.join(format!("{NAME}{first}-{count}"));
        fs::rename(self.folder.join(GROWING), &path)?;
        self.parts.push_back(Part { path, first, count });
        Ok(())
    }

    fn cannot_write(&self, cause: io::Error) -> Error {
        Error::Write { path: self.folder.clone(), cause }
    }
}

impl Sink for Spool {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        self.replay()?;
        if self.written >= self.there {
            self.inner.write(frame)?;
        }
        self.append(frame).map_err(|cause| self.cannot_write(cause))?;
        self.written += 1;
        Ok(())
    }

    fn secure(&mut self) -> Result<usize> {
        self.close_part().map_err(|cause| self.cannot_write(cause))?;
        let safe = self.inner.secure()?;
        while self.parts.front().is_some_and(|part| part.first + part.count <= safe) {
            // What cannot be removed now is removed with the folder.
            let _ = self.parts.pop_front().map(|part| fs::remove_file(part.path));
        }
        Ok(self.written)
    }

    fn keep_unfinished(&mut self) {
        self.inner.keep_unfinished();
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.replay()?;
        // The frames stay until the output is complete: until then someone may have to go on.
        self.close_part().map_err(|cause| self.cannot_write(cause))?;
        let Spool { inner, folder, .. } = *self;
        inner.finish()?;
        discard(&folder);
        Ok(())
    }
}

/// Removes all frames that lie in a folder.
pub fn discard(folder: &Path) {
    let _ = fs::remove_file(folder.join(GROWING));
    parts(folder).iter().for_each(|part| drop(fs::remove_file(&part.path)));
}

/// The finished files of a folder, in order.
fn parts(folder: &Path) -> Vec<Part> {
    let part = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let (first, count) = name.to_str()?.strip_prefix(NAME)?.split_once('-')?;
        Some(Part { path: entry.path(), first: first.parse().ok()?, count: count.parse().ok()? })
    };
    let mut parts: Vec<Part> = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(part).collect();
    parts.sort_by_key(|part| part.first);
    parts
}

/// A frame as it lies in memory: whether it has alpha, colours, alpha.
fn write(file: &mut impl Write, frame: &Frame) -> io::Result<()> {
    file.write_all(&[u8::from(frame.alpha.is_some())])?;
    for samples in std::iter::once(&frame.samples).chain(&frame.alpha) {
        match samples {
            Samples::U8(samples) => file.write_all(samples)?,
            Samples::U16(samples) => samples.iter().try_for_each(|sample| file.write_all(&sample.to_le_bytes()))?,
        }
    }
    Ok(())
}

fn read(file: &mut impl Read, info: &Info) -> io::Result<Frame> {
    let mut has_alpha = [0];
    file.read_exact(&mut has_alpha)?;
    let mut samples = |count: usize| -> io::Result<Samples> {
        let mut bytes = vec![0; count * if info.depth == Depth::Eight { 1 } else { 2 }];
        file.read_exact(&mut bytes)?;
        Ok(match info.depth {
            Depth::Eight => Samples::U8(bytes),
            Depth::Sixteen => Samples::U16(bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()),
        })
    };
    let pixels = info.size.pixels();
    let colours = samples(3 * pixels)?;
    let alpha = (has_alpha[0] == 1).then(|| samples(pixels)).transpose()?;
    Ok(Frame { size: info.size, samples: colours, alpha })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use reseed_media::{Kind, Rate, Size};

    use super::*;

    /// Makes frames safe by fours, and outlives its run.
    #[derive(Clone, Default)]
    struct Fours(Arc<Mutex<Vec<Frame>>>);

    impl Sink for Fours {
        fn write(&mut self, frame: &Frame) -> Result<()> {
            self.0.lock().unwrap().push(frame.clone());
            Ok(())
        }

        fn secure(&mut self) -> Result<usize> {
            Ok(self.0.lock().unwrap().len() / 4 * 4)
        }

        fn finish(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    const SIZE: Size = Size { h: 3, w: 5 };

    fn frame(i: usize) -> Frame {
        let samples = |count: usize| Samples::U16((0..count).map(|k| (1000 * i + k) as u16).collect());
        let alpha = i.is_multiple_of(3).then(|| samples(SIZE.pixels()));
        Frame { size: SIZE, samples: samples(3 * SIZE.pixels()), alpha }
    }

    #[test]
    fn frames_that_their_output_lost_come_back() {
        let (kind, rate, depth) = (Kind::Folder, Rate::default(), Depth::Sixteen);
        let info = Info { size: SIZE, frames: None, rate, depth, alpha: true, kind, names: Vec::new(), icc: None };
        let all: Vec<Frame> = (0..12).map(frame).collect();
        for told in 1..4 {
            let folder = tempfile::tempdir().unwrap();
            let film = Fours::default();
            let mut spool = Spool::create(Box::new(film.clone()), folder.path());
            // Batches of three, and most of one that was never told.
            for (i, frame) in all[..3 * (told + 1) - 1].iter().enumerate() {
                spool.write(frame).unwrap();
                if i % 3 == 2 {
                    assert_eq!(spool.secure().unwrap(), i + 1);
                }
            }
            drop(spool);
            // What the output had not made safe is lost with the run.
            let safe = film.0.lock().unwrap().len() / 4 * 4;
            film.0.lock().unwrap().truncate(safe);
            let mut spool = Box::new(Spool::resume(Box::new(film.clone()), folder.path(), &info, 3 * told).unwrap());
            all[3 * told..].iter().for_each(|frame| spool.write(frame).unwrap());
            assert_eq!(spool.secure().unwrap(), 12);
            spool.finish().unwrap();
            assert!(*film.0.lock().unwrap() == all, "from {told}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }
}
