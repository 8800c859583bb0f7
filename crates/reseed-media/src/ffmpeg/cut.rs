//! The part of the source's other tracks that belongs to a clip: where it begins and ends, its chapters and subtitles.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::decoder::unused;
use super::tools::{self, Tools, file_url, words};
use crate::error::{Error, Result};
use crate::video::{Chapter, Clock, Container, Track, TrackKind, Video};

/// Microseconds of audio before the first frame that a file with edit lists stores and does not play: the decoder needs
/// a few packets before the first sound that it reproduces exactly.
const PREROLL: i64 = 100_000;

/// The times of a cut in microseconds, on the clock of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// The time that becomes time zero.
    pub origin: i64,
    /// Audio before time zero that is stored and not played.
    pub preroll: i64,
    /// From time zero to the end; `None` for the end of the source.
    pub length: Option<i64>,
    /// Whether the clip has a start.
    pub starts: bool,
}

impl Cut {
    /// The cut for a video of `frames` frames. A clip starts with its first frame and ends with its last frame.
    pub fn new(video: &Video, clock: Clock, container: Container, frames: usize) -> Cut {
        let starts = video.clip.start.is_some();
        let time = |frame: usize| clock.micros(video.timeline.time(frame as i64));
        let origin = match starts {
            true => time(0),
            // Times count from the beginning of the file, which may be before time zero.
            false if video.clip.is_whole() && video.format.contains("matroska") => video.early,
            false => 0,
        };
        let length = video.clip.end.map(|_| time(frames).saturating_sub(origin));
        let edits = starts && matches!(container, Container::Mp4 | Container::Mov);
        Cut { origin, preroll: if edits { PREROLL } else { 0 }, length, starts }
    }

    pub fn is_whole(&self) -> bool {
        !self.starts && self.length.is_none()
    }

    /// The filter that cuts decoded audio to the sample.
    pub fn audio_filter(&self) -> String {
        let seconds = |micros: i64| micros as f64 / 1e6;
        let start = if self.starts { format!("start={:.6}", seconds(self.preroll)) } else { String::new() };
        let end = self.length.map_or(String::new(), |length| format!("end={:.6}", seconds(self.preroll + length)));
        format!("atrim={}", [start, end].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(":"))
    }

    /// Start and end of something within the cut, from time zero of the cut; `None` if it is outside.
    fn clip(&self, start: i64, end: i64) -> Option<(i64, i64)> {
        let (start, end) = (start.saturating_sub(self.origin), end.saturating_sub(self.origin));
        let (start, end) = (start.max(0), self.length.map_or(end, |length| end.min(length)));
        (start < end).then_some((start, end))
    }

    /// The chapters of the cut in ffmpeg's metadata format.
    pub fn chapters(&self, chapters: &[Chapter]) -> String {
        let mut text = String::from(";FFMETADATA1\n");
        for chapter in chapters {
            let Some((start, end)) = self.clip(chapter.start, chapter.end) else { continue };
            // Writing to a string never fails.
            let _ = writeln!(text, "[CHAPTER]\nTIMEBASE=1/1000000\nSTART={start}\nEND={end}");
            for (name, value) in &chapter.tags {
                let _ = writeln!(text, "{}={}", escape(name), escape(value));
            }
        }
        text
    }

    /// The events of a SubRip or ASS file that the cut shows, with their new times.
    fn subtitles(&self, text: &str) -> String {
        let events = if text.contains("[Script Info]") { self.ass_lines(text) } else { self.srt_blocks(text) };
        events.unwrap_or_else(|| text.to_owned())
    }

    fn srt_blocks(&self, text: &str) -> Option<String> {
        let mut kept = String::new();
        let text = text.replace("\r\n", "\n");
        for block in text.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
            let mut lines = block.lines().skip_while(|line| !line.contains("-->"));
            let Some((start, end)) = lines.next().and_then(|times| times.split_once("-->")) else { continue };
            let Some((start, end)) = self.clip(micros(start)?, micros(end)?) else { continue };
            let body = lines.collect::<Vec<_>>().join("\n");
            let _ = write!(kept, "1\n{} --> {}\n{body}\n\n", srt_time(start), srt_time(end));
        }
        Some(kept)
    }

    fn ass_lines(&self, text: &str) -> Option<String> {
        let mut kept = String::new();
        for line in text.lines() {
            let Some(fields) = line.strip_prefix("Dialogue:") else {
                let _ = writeln!(kept, "{line}");
                continue;
            };
            let [layer, start, end, rest] = fields.splitn(4, ',').collect::<Vec<_>>()[..] else { return None };
            if let Some((start, end)) = self.clip(micros(start)?, micros(end)?) {
                let _ = writeln!(kept, "Dialogue:{layer},{},{},{rest}", ass_time(start), ass_time(end));
            }
        }
        Some(kept)
    }

    /// Writes the text subtitles of a clip, cut, to `folder`. Returns the names of the files, in the order of `tracks`.
    pub fn write_subtitles(
        &self,
        tools: &Tools,
        video: &Video,
        tracks: &[&Track],
        folder: &Path,
    ) -> Result<Vec<String>> {
        let name = |track: &Track| format!("{:06}-subtitle.{}", track.index, text_format(track).unwrap_or("srt"));
        let names: Vec<String> = tracks.iter().map(|track| name(track)).collect();
        if names.is_empty() {
            return Ok(names);
        }
        let mut command = tools::command(&tools.ffmpeg);
        command.current_dir(folder).args(words("-nostdin -hide_banner -v error -y -protocol_whitelist file"));
        command.arg("-i").arg(file_url(&video.path));
        for (track, name) in tracks.iter().zip(&names) {
            let format = text_format(track).unwrap_or("srt");
            command.args(["-map", &format!("0:{}", track.index), "-f", format]).arg(file_url(Path::new(name)));
        }
        let others = video.clock_streams().filter(|index| tracks.iter().all(|track| track.index != *index));
        command.args(unused(0, others));
        let failed = |reason| Error::DecoderFailed { path: video.path.clone(), reason };
        tools::output(command)?.map_err(failed)?;
        for name in &names {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).map_err(|cause| Error::Read { path: path.clone(), cause })?;
            fs::write(&path, self.subtitles(&text)).map_err(|cause| Error::Write { path, cause })?;
        }
        Ok(names)
    }
}

/// The format in which a text subtitle is cut; `None` for other tracks.
pub(super) fn text_format(track: &Track) -> Option<&'static str> {
    match track.codec.as_str() {
        _ if track.kind != TrackKind::Subtitle => None,
        "ass" | "ssa" => Some("ass"),
        "subrip" | "srt" | "mov_text" | "webvtt" | "text" | "microdvd" | "subviewer" => Some("srt"),
        _ => None,
    }
}

/// Parses `1:02:03.5`, with a point or a comma, into microseconds.
fn micros(text: &str) -> Option<i64> {
    let text = text.split_whitespace().next()?.replace(',', ".");
    let mut parts = text.splitn(3, ':');
    let (h, m): (f64, f64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let s: f64 = parts.next()?.parse().ok()?;
    let seconds = 3600.0 * h + 60.0 * m + s;
    (0.0..1e9).contains(&seconds).then(|| (seconds * 1e6).round() as i64)
}

fn srt_time(micros: i64) -> String {
    let ms = (micros + 500) / 1000;
    format!("{:02}:{:02}:{:02},{:03}", ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000)
}

fn ass_time(micros: i64) -> String {
    let cs = (micros + 5000) / 10_000;
    format!("{}:{:02}:{:02}.{:02}", cs / 360_000, cs / 6000 % 60, cs / 100 % 60, cs % 100)
}

/// Escapes the special characters of ffmpeg's metadata format.
fn escape(text: &str) -> String {
    text.chars().flat_map(|c| "=;#\\\n".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUT: Cut = Cut { origin: 2_000_000, preroll: 0, length: Some(3_000_000), starts: true };

    #[test]
    fn subrip_events_are_cut_and_moved() {
        let text = "1\r\n00:00:00,500 --> 00:00:02,000\r\nBefore\r\n\r\n2\r\n00:00:01,000 --> 00:00:02,250\r\nHello\r\n\
                    you\r\n\r\n3\n00:00:04,900 --> 00:00:09,000\nBye\n\n4\n00:00:05,000 --> 00:00:06,000\nAfter\n";
        let expected = "1\n00:00:00,000 --> 00:00:00,250\nHello\nyou\n\n1\n00:00:02,900 --> 00:00:03,000\nBye\n\n";
        assert_eq!(CUT.subtitles(text), expected);
    }

    #[test]
    fn ass_events_keep_their_style() {
        let text = "[Script Info]\nTitle: a\n[Events]\nDialogue: 0,0:00:01.00,0:00:03.50,Top,,0,0,0,,{\\i1}Hi, you\n\
                    Dialogue: 0,0:00:06.00,0:00:07.00,Top,,0,0,0,,Late\n";
        let expected =
            "[Script Info]\nTitle: a\n[Events]\nDialogue: 0,0:00:00.00,0:00:01.50,Top,,0,0,0,,{\\i1}Hi, you\n";
        assert_eq!(CUT.subtitles(text), expected);
    }

    #[test]
    fn chapters_are_cut_and_moved() {
        let chapter = |start, end, title: &str| Chapter { start, end, tags: vec![("title".into(), title.into())] };
        let chapters =
            [chapter(0, 2_000_000, "a"), chapter(2_000_000, 4_000_000, "b=c"), chapter(4_000_000, 9_000_000, "d")];
        let expected = ";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1000000\nSTART=0\nEND=2000000\ntitle=b\\=c\n\
                        [CHAPTER]\nTIMEBASE=1/1000000\nSTART=2000000\nEND=3000000\ntitle=d\n";
        assert_eq!(CUT.chapters(&chapters), expected);
    }
}
