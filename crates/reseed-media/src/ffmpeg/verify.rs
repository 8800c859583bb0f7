//! Proof that a written video is complete: its packets are read again and counted.
//!
//! ffmpeg may exit with success although the end of its output is missing, so that its exit status proves nothing.

use std::path::Path;
use std::process::ChildStdout;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::messages::each_line;
use super::process::Process;
use super::tools::{self, Tools, file_url, words};
use crate::error::{Error, Result};

/// How long the counts may take after the process has exited.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a complete video holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Expected {
    pub frames: usize,
    /// Seconds from the first frame to the last, and seconds per frame, if they are known.
    pub span: Option<(f64, f64)>,
}

/// What a video holds.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Tally {
    packets: usize,
    /// Packets without data or time.
    broken: usize,
    /// The times of the first and the last frame.
    range: Option<(f64, f64)>,
}

/// A process that counts the packets of a file.
pub(super) struct Verification {
    process: Process,
    tally: Receiver<Tally>,
    expected: Expected,
}

impl Verification {
    /// Starts to read `file`, relative to `folder`.
    pub fn start(tools: &Tools, folder: &Path, file: &Path, expected: Expected) -> Result<Verification> {
        let mut command = tools::command(&tools.ffprobe);
        command.current_dir(folder).args(words("-v error -protocol_whitelist file -select_streams v:0"));
        command.args(words("-show_entries packet=pts_time,size -of compact=p=0")).arg(file_url(file));
        let (process, tally) = Process::start_reading(command, count)?;
        Ok(Verification { process, tally, expected })
    }

    /// Whether all packets are read.
    pub fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// Waits for the counts and compares them. The inner error says what is wrong with the file.
    pub fn finish(self, tools: &Tools) -> Result<std::result::Result<(), String>> {
        let exit = self.process.wait().map_err(|cause| Error::Spawn { program: tools.ffprobe.clone(), cause })?;
        if let Err(reason) = exit.check_read() {
            return Ok(Err(format!("the written file cannot be read: {reason}")));
        }
        let tally = self.tally.recv_timeout(COUNT_TIMEOUT).unwrap_or_default();
        Ok(tally.compare(self.expected))
    }
}

/// Reads `file` and compares it with `expected`. The inner error says what is wrong with it.
pub(super) fn verify(tools: &Tools, file: &Path, expected: Expected) -> Result<std::result::Result<(), String>> {
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let name = Path::new(file.file_name().unwrap_or_default());
    Verification::start(tools, folder, name, expected)?.finish(tools)
}

/// Counts lines such as `pts_time=0.040000|size=1207`.
fn count(stdout: ChildStdout) -> Tally {
    let mut tally = Tally::default();
    each_line(stdout, |line, _| tally.add(line.trim()));
    tally
}

impl Tally {
    fn add(&mut self, line: &str) {
        let value = |name: &str| line.split('|').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        let Some(size) = value("size") else { return };
        self.packets += 1;
        match (value("pts_time").and_then(|time| time.parse::<f64>().ok()), size.parse::<u64>()) {
            (Some(time), Ok(1..)) => {
                let (first, last) = self.range.unwrap_or((time, time));
                self.range = Some((first.min(time), last.max(time)));
            }
            _ => self.broken += 1,
        }
    }

    fn compare(self, expected: Expected) -> std::result::Result<(), String> {
        let Tally { packets, broken, range } = self;
        if packets != expected.frames || broken > 0 {
            let complete = packets.saturating_sub(broken);
            return Err(format!("the written file holds {complete} of {} frames", expected.frames));
        }
        let Some((span, frame)) = expected.span else { return Ok(()) };
        let written = range.map_or(0.0, |(first, last)| last - first);
        // Containers round times, some to milliseconds.
        match (written - span).abs() <= frame.max(0.002) {
            true => Ok(()),
            false => Err(format!("the frames of the written file span {written:.3} s instead of {span:.3} s")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.add(line));
        tally
    }

    #[test]
    fn packets_and_times_are_counted() {
        let all =
            tally(&["pts_time=0.080000|size=7", "pts_time=0.000000|size=9|flags=K_", "pts_time=0.040000|size=1", ""]);
        assert_eq!(all, Tally { packets: 3, broken: 0, range: Some((0.0, 0.08)) });
        let expected = |frames, span| Expected { frames, span };
        assert_eq!(all.compare(expected(3, Some((0.08, 0.04)))), Ok(()));
        assert_eq!(all.compare(expected(3, None)), Ok(()));
        assert_eq!(all.compare(expected(4, None)), Err("the written file holds 3 of 4 frames".to_owned()));
        let short = all.compare(expected(3, Some((4.0, 0.04))));
        assert_eq!(short, Err("the frames of the written file span 0.080 s instead of 4.000 s".to_owned()));
    }

    #[test]
    fn packets_without_data_or_time_do_not_count() {
        let all = tally(&["pts_time=0.000000|size=9", "pts_time=0.040000|size=0", "pts_time=N/A|size=9"]);
        let expected = Expected { frames: 3, span: None };
        assert_eq!(all.compare(expected), Err("the written file holds 1 of 3 frames".to_owned()));
    }
}
