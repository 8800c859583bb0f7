//! What travels beside the pictures, and what each container can hold of it.

use std::path::Path;

use super::{Options, Track, TrackKind};

/// A kind of video file that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// `.mkv`
    Matroska,
    /// `.mp4`, `.m4v`
    Mp4,
    /// `.mov`
    Mov,
    /// `.webm`
    WebM,
}

/// Names of video files that are looked for in a folder.
const VIDEO_NAMES: &[&str] = &[
    "3gp", "avi", "flv", "m2ts", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "mts", "mxf", "ogv", "ts", "vob", "webm",
    "wmv", "y4m",
];

/// Whether a name is that of a video.
pub fn is_video_name(path: &Path) -> bool {
    extension(path).is_some_and(|extension| VIDEO_NAMES.contains(&extension.as_str()))
}

fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

impl Container {
    /// The kind that a name asks for.
    pub fn of(path: &Path) -> Option<Container> {
        match extension(path)?.as_str() {
            "mkv" => Some(Container::Matroska),
            "mp4" | "m4v" => Some(Container::Mp4),
            "mov" => Some(Container::Mov),
            "webm" => Some(Container::WebM),
            _ => None,
        }
    }

    /// ffmpeg's name for it.
    pub(super) fn format(self) -> &'static str {
        match self {
            Container::Matroska => "matroska",
            Container::Mp4 => "mp4",
            Container::Mov => "mov",
            Container::WebM => "webm",
        }
    }

    fn subtitle(self, codec: &str) -> Fate {
        let picture = ["hdmv_pgs_subtitle", "dvd_subtitle", "dvb_subtitle", "xsub"].contains(&codec);
        let text = ["subrip", "ass", "ssa", "mov_text", "webvtt", "text", "srt", "microdvd", "subviewer", "eia_608"];
        match self {
            Container::Matroska if ["subrip", "ass", "ssa", "webvtt", "srt"].contains(&codec) || picture => Fate::Copy,
            Container::Matroska if text.contains(&codec) => Fate::Convert("srt"),
            Container::Mp4 | Container::Mov if codec == "mov_text" => Fate::Copy,
            Container::Mp4 | Container::Mov if text.contains(&codec) => Fate::Convert("mov_text"),
            Container::WebM if codec == "webvtt" => Fate::Copy,
            Container::WebM if text.contains(&codec) => Fate::Convert("webvtt"),
            _ => Fate::Drop,
        }
    }

    fn audio(self, codec: &str) -> Fate {
        let pcm = codec.starts_with("pcm_");
        match self {
            Container::Matroska => Fate::Copy,
            Container::Mp4 if ["aac", "ac3", "eac3", "mp3", "mp2", "alac", "flac", "opus", "dts"].contains(&codec) => {
                Fate::Copy
            }
            Container::Mov if pcm || ["aac", "ac3", "eac3", "mp3", "alac"].contains(&codec) => Fate::Copy,
            Container::Mp4 | Container::Mov if pcm || ["flac", "truehd", "wavpack", "tta"].contains(&codec) => {
                Fate::Convert("alac")
            }
            Container::Mp4 | Container::Mov => Fate::Convert("aac"),
            Container::WebM if ["opus", "vorbis"].contains(&codec) => Fate::Copy,
            Container::WebM => Fate::Convert("libopus"),
        }
    }

    fn fate(self, track: &Track) -> Fate {
        match track.kind {
            TrackKind::Audio => self.audio(&track.codec),
            TrackKind::Subtitle => self.subtitle(&track.codec),
            TrackKind::Attachment if self == Container::Matroska => Fate::Copy,
            TrackKind::Cover if matches!(self, Container::Mp4 | Container::Mov) => Fate::Copy,
            TrackKind::Attachment | TrackKind::Cover => Fate::Drop,
        }
    }
}

/// What becomes of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Copy,
    Convert(&'static str),
    Drop,
}

/// The tracks that are taken over, and lines about those that are not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Index within the source, kind, and the encoder that converts it.
    pub kept: Vec<(usize, TrackKind, Option<&'static str>)>,
    pub losses: Vec<String>,
}

/// What of `tracks` goes into a container.
pub(super) fn plan(tracks: &[Track], container: Container, options: &Options) -> Plan {
    let mut plan = Plan::default();
    for track in tracks {
        let (word, wanted) = match track.kind {
            TrackKind::Audio => ("audio", options.audio),
            TrackKind::Subtitle => ("subtitle", options.subtitles),
            TrackKind::Attachment => ("attachment", options.attachments),
            TrackKind::Cover => ("cover", options.attachments),
        };
        let Track { index, kind, codec } = track;
        let format = container.format();
        match container.fate(track) {
            _ if !wanted => {}
            Fate::Copy => plan.kept.push((*index, *kind, None)),
            Fate::Convert(encoder) => {
                plan.kept.push((*index, *kind, Some(encoder)));
                plan.losses
                    .push(format!("{word} stream {index} ({codec}) does not fit {format}: converted to {encoder}"));
            }
            Fate::Drop => plan.losses.push(format!(
                "{word} stream {index} ({codec}) does not fit {format} and is left out; write .mkv to keep it"
            )),
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_take_what_they_hold() {
        let track = |index, kind, codec: &str| Track { index, kind, codec: codec.to_owned() };
        let tracks = [
            track(1, TrackKind::Audio, "pcm_s16le"),
            track(2, TrackKind::Subtitle, "subrip"),
            track(3, TrackKind::Subtitle, "hdmv_pgs_subtitle"),
            track(4, TrackKind::Attachment, "ttf"),
        ];
        let kept = |container| {
            let plan = plan(&tracks, container, &Options::default());
            (plan.kept.iter().map(|(index, _, encoder)| (*index, *encoder)).collect::<Vec<_>>(), plan.losses.len())
        };
        assert_eq!(kept(Container::Matroska), (vec![(1, None), (2, None), (3, None), (4, None)], 0));
        assert_eq!(kept(Container::Mp4), (vec![(1, Some("alac")), (2, Some("mov_text"))], 4));
        assert_eq!(kept(Container::WebM), (vec![(1, Some("libopus")), (2, Some("webvtt"))], 4));
        let silent = Options { audio: false, subtitles: false, ..Options::default() };
        assert_eq!(plan(&tracks[..3], Container::Mp4, &silent), Plan::default());
    }
}
