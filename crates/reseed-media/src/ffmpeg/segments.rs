//! The segments of a video. Each has its own encoder process, and its bytes depend on its own frames only.

use std::collections::VecDeque;

use super::closing::Closing;
use super::encoder::{Encoder, EncoderConfig, relative_times};
use super::spool::Spool;
use super::work_folder::WorkFolder;
use crate::error::Result;
use crate::video::{SEGMENT_FRAMES, Timeline};

/// Encodes frames into the segments of a work folder, in order. Several encoders run where one is too slow.
pub(super) struct Segments {
    pub encoder: EncoderConfig,
    /// The times of the frames; `None` for a constant rate.
    pub timeline: Option<Timeline>,
    /// The encoder of the current segment. Declared before `work`, so that the process ends before its file is removed.
    current: Option<Encoder>,
    /// Earlier segments while their files are completed and verified, at most `limit`.
    closing: VecDeque<Closing>,
    limit: usize,
    /// The index of the next segment.
    next: usize,
    pub work: WorkFolder,
}

impl Segments {
    /// Continues after the finished segments of a work folder. At most `limit` segments are completed beside the
    /// current one.
    pub fn new(encoder: EncoderConfig, timeline: Option<Timeline>, work: WorkFolder, limit: usize) -> Segments {
        let next = work.first + work.segments.len();
        Segments { encoder, timeline, current: None, closing: VecDeque::new(), limit, next, work }
    }

    /// Sends the planes of a frame to the current encoder, which it starts if there is none. If `spooled`, the caller
    /// appends the frame to the spool too, and calls [`read_spool`](Self::read_spool) after syncs.
    pub fn append(&mut self, planes: &[u8], spooled: bool) -> Result<()> {
        self.advance()?;
        let mut encoder = match self.current.take() {
            Some(encoder) => encoder,
            None => {
                self.next += 1;
                self.encoder.start(&self.work, self.next - 1)?
            }
        };
        self.encoder.write(&mut encoder, planes, spooled && self.limit > 1)?;
        let full = encoder.frames == SEGMENT_FRAMES;
        self.current = Some(encoder);
        if full { self.close_current() } else { Ok(()) }
    }

    /// Whether the next frame completes a segment that must wait for one whose frames are not safe in the spool.
    pub fn needs_sync(&mut self) -> bool {
        let completes = self.current.as_ref().is_some_and(|encoder| encoder.frames + 1 == SEGMENT_FRAMES);
        let waits = self.closing.len() >= self.limit;
        completes && waits && self.closing.iter_mut().filter_map(Closing::feeder).any(|feeder| feeder.awaits_spool())
    }

    /// Takes the frames that are left to the spool, as far as it has them.
    pub fn read_spool(&mut self, spool: &Spool) {
        let closing = self.closing.iter_mut().filter_map(Closing::feeder);
        let current = self.current.iter_mut().map(|encoder| &mut encoder.feeder);
        closing.chain(current).for_each(|feeder| feeder.read_spool(spool));
    }

    /// Starts the next step of the oldest segment if its current one is complete.
    pub fn advance(&mut self) -> Result<()> {
        match self.closing.front_mut().is_some_and(Closing::has_ended) {
            true => self.advance_oldest(),
            false => Ok(()),
        }
    }

    /// Waits for the current step of the oldest segment and starts the next one.
    fn advance_oldest(&mut self) -> Result<()> {
        if let Some(oldest) = self.closing.pop_front()
            && let Some(oldest) = oldest.advance(&self.encoder, &mut self.work)?
        {
            self.closing.push_front(oldest);
        }
        Ok(())
    }

    /// Completes all segments; the last one may be short.
    pub fn finish(&mut self) -> Result<()> {
        self.close_current()?;
        self.wait_until(0)
    }

    /// Waits until at most `count` segments are being completed.
    fn wait_until(&mut self, count: usize) -> Result<()> {
        while self.closing.len() > count {
            self.advance_oldest()?;
        }
        Ok(())
    }

    /// Closes the current encoder, which completes its file while the next one starts.
    fn close_current(&mut self) -> Result<()> {
        self.wait_until(self.limit - 1)?;
        if let Some(encoder) = self.current.take() {
            let first = ((self.next - 1) * SEGMENT_FRAMES) as i64;
            let times = self.timeline.as_ref().map(|timeline| relative_times(timeline, first, encoder.frames));
            self.closing.push_back(encoder.close(times.filter(|times| !self.encoder.is_regular(times))));
        }
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::super::output_format::OutputFormat;
    use super::*;
    use crate::frame::Size;
    use crate::stream::Info;
    use crate::video::Options;

    const FRAMES: usize = 2 * SEGMENT_FRAMES + 10;
    /// Frames between syncs: segments end within a batch.
    const BATCH: usize = 50;

    /// Larger than a pipe after a few frames.
    const SIZE: Size = Size { h: 64, w: 96 };

    /// Encoders of a folder, from an ffmpeg that may be replaced by a script.
    fn segments(folder: &Path, script: Option<&Path>, limit: usize) -> (Segments, Spool) {
        let info = Info { size: SIZE, ..crate::sample().info().clone() };
        let format = OutputFormat::choose(&folder.join("out.mkv"), &info, &Options::default()).unwrap();
        let mut encoder = format.encoder;
        script.iter().for_each(|script| encoder.tools.ffmpeg = script.to_path_buf());
        let work = WorkFolder::open(&folder.join("out.mkv"), format.codec.segment_format(), false).unwrap();
        let spool = Spool::open(&work.path, 0, 0).unwrap();
        (Segments::new(encoder, None, work, limit), spool)
    }

    /// Sends all frames and syncs as a job does; the names of the segments hold their digests.
    fn encode((mut segments, mut spool): (Segments, Spool), before_last: impl FnOnce()) -> Vec<String> {
        for number in 0..FRAMES {
            let planes: Vec<u8> = (0..SIZE.pixels() * 3 / 2).map(|i| (i + 3 * number) as u8).collect();
            segments.append(&planes, true).unwrap();
            spool.append(&planes).unwrap();
            if number % BATCH == BATCH - 1 {
                spool.sync().unwrap();
                segments.read_spool(&spool);
            }
        }
        before_last();
        spool.sync().unwrap();
        segments.read_spool(&spool);
        segments.finish().unwrap();
        segments.work.segments.iter().map(|segment| segment.name.clone()).collect()
    }

    #[test]
    fn slow_encoders_run_at_once_and_write_the_same_bytes() {
        let folder = temp_dir::TempDir::new().unwrap();
        let (log, go, script) = (folder.path().join("log"), folder.path().join("go"), folder.path().join("ffmpeg"));
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *pipe:0*) echo start >> {}; until [ -e {} ]; do sleep 0.05; done;; esac\n\
             exec ffmpeg \"$@\"\n",
            log.display(),
            go.display()
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let one = encode(segments(folder.path(), None, 1), || {});
        let all_started = || {
            let start = Instant::now();
            while fs::read_to_string(&log).map_or(0, |log| log.lines().count()) < 3 {
                assert!(start.elapsed() < Duration::from_secs(60), "the encoders do not run at once");
                std::thread::sleep(Duration::from_millis(5));
            }
            fs::write(&go, "").unwrap();
        };
        let several = encode(segments(folder.path(), Some(&script), 3), all_started);
        assert_eq!(one.len(), 3);
        assert_eq!(several, one);
    }
}
