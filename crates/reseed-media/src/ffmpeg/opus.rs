//! The encoder delay of Opus in Matroska. A reader subtracts it from the times of the track. Older versions of ffmpeg
//! do not add it when they write the track, so that it plays too early.

use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;

use super::report::number;
use super::tools::{self, Tools, file_url, words};
use crate::video::{Container, KeptTrack, Video};

/// The delay of ffmpeg's Opus encoder, in samples.
const ENCODER_DELAY: i64 = 312;
/// Opus counts its delay at this rate.
const SAMPLES_PER_SECOND: i64 = 48_000;
/// A file of the work folder.
const TEST_FILE: &str = "000000-delay.mkv";

/// Microseconds by which a track is written later, so that a reader finds it in its place.
pub(super) fn missing_delay(
    tools: &Tools,
    folder: &Path,
    container: Container,
    video: &Video,
    track: &KeptTrack,
) -> Option<i64> {
    if !matches!(container, Container::Matroska | Container::WebM) {
        return None;
    }
    let source = video.tracks.iter().find(|source| source.index == track.index)?;
    let micros = |samples: i64| samples * 1_000_000 / SAMPLES_PER_SECOND;
    let delay = match (track.encoder, source.codec.as_str()) {
        (Some("libopus"), _) => micros(ENCODER_DELAY),
        // Times in Matroska are milliseconds, and so is the delay that ffmpeg subtracts from them.
        (None, "opus") if video.format.contains("matroska") => {
            (micros(stored_delay(tools, video, track.index)?) + 500) / 1000 * 1000
        }
        (None, "opus") => micros(stored_delay(tools, video, track.index)?),
        _ => return None,
    };
    omits_delay(tools, folder).then_some(delay)
}

/// Whether this version of ffmpeg omits the delay.
fn omits_delay(tools: &Tools, folder: &Path) -> bool {
    static OMITS: OnceLock<bool> = OnceLock::new();
    *OMITS.get_or_init(|| first_time(tools, folder).is_some_and(|seconds| seconds < -0.01))
}

/// The time of the first packet of Opus that ffmpeg writes: minus the delay, or twice that if ffmpeg omits it.
fn first_time(tools: &Tools, folder: &Path) -> Option<f64> {
    let mut command = tools::command(&tools.ffmpeg);
    command.current_dir(folder).args(words("-nostdin -hide_banner -v error -y -f lavfi -i anullsrc=r=48000:d=0.1"));
    command.args(words("-c:a libopus -avoid_negative_ts disabled -f matroska")).arg(file_url(Path::new(TEST_FILE)));
    tools::output(command).ok()?.ok()?;
    let packets = query(tools, "-show_entries packet=pts_time -read_intervals %+#1", &folder.join(TEST_FILE))?;
    number(&packets["packets"][0]["pts_time"])
}

/// The delay in the header of a track, in samples.
fn stored_delay(tools: &Tools, video: &Video, index: usize) -> Option<i64> {
    let query =
        query(tools, &format!("-select_streams {index} -show_entries stream=extradata -show_data"), &video.path)?;
    header_delay(query["streams"][0]["extradata"].as_str()?)
}

/// Parses the hexadecimal dump of an Opus header: the delay is a number of two bytes at byte 10.
fn header_delay(dump: &str) -> Option<i64> {
    let line = dump.lines().find_map(|line| line.strip_prefix("00000000: "))?;
    let digits: String = line.split("  ").next()?.split_whitespace().collect();
    let byte = |at: usize| i64::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok();
    digits.starts_with("4f7075734865").then_some(())?;
    Some(byte(10)? + 256 * byte(11)?)
}

fn query(tools: &Tools, options: &str, path: &Path) -> Option<Value> {
    let mut command = tools::command(&tools.ffprobe);
    command.args(words("-v error -of json -protocol_whitelist file")).args(words(options)).arg(file_url(path));
    serde_json::from_slice(&tools::output(command).ok()?.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_read_from_the_header() {
        let dump = "\n00000000: 4f70 7573 4865 6164 0101 3801 80bb 0000  OpusHead..8.....\n00000010: 0000 00   ...\n";
        assert_eq!(header_delay(dump), Some(312));
        assert_eq!(header_delay("\n00000000: 4f70 7573 4865\n"), None);
        assert_eq!(header_delay(""), None);
    }
}
