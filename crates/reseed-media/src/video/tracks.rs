//! The other tracks of a video file, and which of them a container can hold.

use super::{Container, Options};

/// A stream of the source other than its video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Track {
    pub index: usize,
    pub kind: TrackKind,
    pub codec: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrackKind {
    Audio,
    Subtitle,
    Attachment,
    Cover,
}

impl Container {
    /// The name in ffmpeg.
    pub(crate) fn format(self) -> &'static str {
        match self {
            Container::Matroska => "matroska",
            Container::Mp4 => "mp4",
            Container::Mov => "mov",
            Container::WebM => "webm",
        }
    }

    fn subtitle(self, codec: &str) -> TrackAction {
        let bitmap = ["hdmv_pgs_subtitle", "dvd_subtitle", "dvb_subtitle", "xsub"].contains(&codec);
        let text = ["subrip", "ass", "ssa", "mov_text", "webvtt", "text", "srt", "microdvd", "subviewer", "eia_608"];
        match self {
            Container::Matroska if ["subrip", "ass", "ssa", "webvtt", "srt"].contains(&codec) || bitmap => {
                TrackAction::Copy
            }
            Container::Matroska if text.contains(&codec) => TrackAction::Convert("srt"),
            Container::Mp4 | Container::Mov if codec == "mov_text" => TrackAction::Copy,
            Container::Mp4 | Container::Mov if text.contains(&codec) => TrackAction::Convert("mov_text"),
            Container::WebM if codec == "webvtt" => TrackAction::Copy,
            Container::WebM if text.contains(&codec) => TrackAction::Convert("webvtt"),
            _ => TrackAction::Drop,
        }
    }

    fn audio(self, codec: &str) -> TrackAction {
        let pcm = codec.starts_with("pcm_");
        match self {
            Container::Matroska => TrackAction::Copy,
            Container::Mp4 if ["aac", "ac3", "eac3", "mp3", "mp2", "alac", "flac", "opus", "dts"].contains(&codec) => {
                TrackAction::Copy
            }
            Container::Mov if pcm || ["aac", "ac3", "eac3", "mp3", "alac"].contains(&codec) => TrackAction::Copy,
            Container::Mp4 | Container::Mov if pcm || ["flac", "truehd", "wavpack", "tta"].contains(&codec) => {
                TrackAction::Convert("alac")
            }
            Container::Mp4 | Container::Mov => TrackAction::Convert("aac"),
            Container::WebM if ["opus", "vorbis"].contains(&codec) => TrackAction::Copy,
            Container::WebM => TrackAction::Convert("libopus"),
        }
    }

    fn action(self, track: &Track) -> TrackAction {
        match track.kind {
            TrackKind::Audio => self.audio(&track.codec),
            TrackKind::Subtitle => self.subtitle(&track.codec),
            TrackKind::Attachment if self == Container::Matroska => TrackAction::Copy,
            TrackKind::Cover if matches!(self, Container::Mp4 | Container::Mov) => TrackAction::Copy,
            TrackKind::Attachment | TrackKind::Cover => TrackAction::Drop,
        }
    }
}

/// What happens to a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrackAction {
    Copy,
    Convert(&'static str),
    Drop,
}

/// The tracks that the output keeps, and a line for each that it converts or drops.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TrackPlan {
    pub kept: Vec<KeptTrack>,
    pub losses: Vec<String>,
}

/// A track that the output keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptTrack {
    /// The index in the source.
    pub index: usize,
    pub kind: TrackKind,
    /// The encoder that converts it; `None` for a copy.
    pub encoder: Option<&'static str>,
}

/// Decides which of `tracks` a container keeps.
pub(crate) fn plan(tracks: &[Track], container: Container, options: &Options) -> TrackPlan {
    let mut plan = TrackPlan::default();
    for track in tracks {
        let (word, wanted) = match track.kind {
            TrackKind::Audio => ("audio", options.audio),
            TrackKind::Subtitle => ("subtitle", options.subtitles),
            TrackKind::Attachment => ("attachment", options.attachments),
            TrackKind::Cover => ("cover", options.attachments),
        };
        let Track { index, kind, codec } = track;
        let format = container.format();
        match container.action(track) {
            _ if !wanted => {}
            TrackAction::Copy => plan.kept.push(KeptTrack { index: *index, kind: *kind, encoder: None }),
            TrackAction::Convert(encoder) => {
                plan.kept.push(KeptTrack { index: *index, kind: *kind, encoder: Some(encoder) });
                plan.losses
                    .push(format!("{word} stream {index} ({codec}) does not fit {format}: converted to {encoder}"));
            }
            TrackAction::Drop => plan.losses.push(format!(
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
    fn tracks_are_copied_converted_or_dropped_by_container() {
        let track = |index, kind, codec: &str| Track { index, kind, codec: codec.to_owned() };
        let tracks = [
            track(1, TrackKind::Audio, "pcm_s16le"),
            track(2, TrackKind::Subtitle, "subrip"),
            track(3, TrackKind::Subtitle, "hdmv_pgs_subtitle"),
            track(4, TrackKind::Attachment, "ttf"),
        ];
        let kept = |container| {
            let plan = plan(&tracks, container, &Options::default());
            (plan.kept.iter().map(|track| (track.index, track.encoder)).collect::<Vec<_>>(), plan.losses.len())
        };
        assert_eq!(kept(Container::Matroska), (vec![(1, None), (2, None), (3, None), (4, None)], 0));
        assert_eq!(kept(Container::Mp4), (vec![(1, Some("alac")), (2, Some("mov_text"))], 4));
        assert_eq!(kept(Container::WebM), (vec![(1, Some("libopus")), (2, Some("webvtt"))], 4));
        let silent = Options { audio: false, subtitles: false, ..Options::default() };
        assert_eq!(plan(&tracks[..3], Container::Mp4, &silent), TrackPlan::default());
    }
}
