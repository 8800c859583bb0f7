//! The thread that sends the frames of a segment to its encoder.
//!
//! A few frames wait in memory. If the encoder of a spooled video is slower than the frames arrive, the rest of its
//! segment is read from the spool, so that the next segment can start beside it.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::{self, JoinHandle};

use super::process::Running;
use super::spool::{Run, Spool};
use crate::error::{Error, Result};

/// Frames that wait in memory.
const LEAD: usize = 2;

/// What an encoder gets, in order.
pub(super) struct Feeder {
    /// `None` once the encoder lags behind, or after the last frame.
    frames: Option<SyncSender<Vec<u8>>>,
    /// `None` after the last frame.
    spooled: Option<Sender<Run>>,
    thread: Option<JoinHandle<Result<()>>>,
    /// The number of the next frame in the video that the thread was not sent.
    next: usize,
    /// The number after the last frame so far.
    end: usize,
    /// Whether no frame follows.
    closed: bool,
}

impl Feeder {
    /// Feeds an encoder whose first frame has number `first`, with frames of `bytes` bytes.
    pub fn new(stdin: ChildStdin, running: Arc<Running>, first: usize, bytes: usize) -> Feeder {
        let (frames, direct) = sync_channel(LEAD);
        let (spooled, runs) = channel();
        let thread = thread::spawn(move || feed(stdin, &running, bytes, &direct, &runs));
        let (frames, spooled, thread) = (Some(frames), Some(spooled), Some(thread));
        Feeder { frames, spooled, thread, next: first, end: first, closed: false }
    }

    /// Sends a frame. If the encoder is slow, this waits, or leaves the frame to the spool if that will have it. Fails
    /// without a reason if the encoder has ended.
    pub fn send(&mut self, planes: &[u8], spooled: bool) -> std::result::Result<(), ()> {
        if let Some(frames) = &self.frames {
            let sent = match spooled {
                true => frames.try_send(planes.to_vec()),
                false => frames.send(planes.to_vec()).map_err(|error| TrySendError::Disconnected(error.0)),
            };
            match sent {
                Ok(()) => self.next += 1,
                Err(TrySendError::Full(_)) => self.frames = None,
                Err(TrySendError::Disconnected(_)) => return Err(()),
            }
        }
        self.end += 1;
        Ok(())
    }

    /// Whether frames are left to the spool that are not safe there yet.
    pub fn awaits_spool(&self) -> bool {
        self.next < self.end
    }

    /// Takes frames from the spool as far as it has them.
    pub fn read_spool(&mut self, spool: &Spool) {
        if self.frames.is_none() {
            let runs = spool.runs(self.next..self.end);
            self.next = self.end.min(spool.synced().max(self.next));
            // A thread that has ended failed, which `finish` returns.
            runs.into_iter().for_each(|run| drop(self.spooled.as_ref().map(|spooled| spooled.send(run))));
        }
        self.end_if_sent();
    }

    /// No frame follows.
    pub fn close(&mut self) {
        (self.frames, self.closed) = (None, true);
        self.end_if_sent();
    }

    fn end_if_sent(&mut self) {
        if self.closed && !self.awaits_spool() {
            self.spooled = None;
        }
    }

    /// Waits until the thread has ended, and returns why it failed to read the spool.
    pub fn finish(&mut self) -> Result<()> {
        (self.frames, self.spooled) = (None, None);
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))
    }
}

/// Writes frames, then runs of the spool. It ends silently if the encoder does, whose messages say why.
fn feed(
    mut stdin: ChildStdin,
    running: &Arc<Running>,
    bytes: usize,
    frames: &Receiver<Vec<u8>>,
    runs: &Receiver<Run>,
) -> Result<()> {
    let mut write = |planes: &[u8]| {
        let _waiting = running.waiting();
        stdin.write_all(planes)
    };
    for planes in frames {
        if write(&planes).is_err() {
            return Ok(());
        }
    }
    let mut planes = vec![0; bytes];
    for Run { path, skip, count } in runs {
        let cannot_read = |cause| Error::Read { path: path.clone(), cause };
        let mut file = open_at(&path, skip * bytes).map_err(cannot_read)?;
        for _ in 0..count {
            file.read_exact(&mut planes).map_err(cannot_read)?;
            if write(&planes).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn open_at(path: &std::path::Path, offset: usize) -> io::Result<BufReader<File>> {
    let mut file = BufReader::new(File::open(path)?);
    file.seek(SeekFrom::Start(offset as u64))?;
    Ok(file)
}
