//! Video codecs: their names, the pixel formats they store, and the size of their output.

use std::fmt;
use std::str::FromStr;

use super::container::Container;
use super::pixels::{Family, Pixels};

/// A video codec, in software or on an encoder of the GPU or CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codec {
    pub(crate) kind: CodecKind,
    /// The hardware encoder, with the suffix that ffmpeg uses.
    pub(crate) hardware: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodecKind {
    H264,
    Hevc,
    Av1,
    Ffv1,
    ProRes,
}

const KINDS: [(&str, CodecKind); 5] = [
    ("h264", CodecKind::H264),
    ("hevc", CodecKind::Hevc),
    ("av1", CodecKind::Av1),
    ("ffv1", CodecKind::Ffv1),
    ("prores", CodecKind::ProRes),
];
const HARDWARE: [&str; 4] = ["nvenc", "qsv", "amf", "videotoolbox"];

/// Parses names such as `hevc`, and `hevc-nvenc` for a hardware encoder.
impl FromStr for Codec {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Codec, String> {
        let (name, hardware) = match text.split_once(['-', '_']) {
            Some((name, hardware)) => (name, Some(hardware)),
            None => (text, None),
        };
        let unknown = || {
            format!(
                "unknown codec `{text}`; choose h264, hevc, av1, ffv1 or prores, \
                 or h264, hevc or av1 followed by -nvenc, -qsv, -amf or -videotoolbox"
            )
        };
        let alias = match name {
            "h265" => "hevc",
            "avc" => "h264",
            name => name,
        };
        let (_, kind) = *KINDS.iter().find(|(known, _)| *known == alias).ok_or_else(unknown)?;
        let lossy = matches!(kind, CodecKind::H264 | CodecKind::Hevc | CodecKind::Av1);
        let hardware = match hardware {
            None => None,
            Some(named) => Some(*HARDWARE.iter().find(|known| lossy && **known == named).ok_or_else(unknown)?),
        };
        Ok(Codec { kind, hardware })
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.hardware.map_or(Ok(()), |hardware| write!(f, "-{hardware}"))
    }
}

impl Codec {
    /// The default codec of a container and a depth.
    pub(crate) fn default_for(container: Container, bits: u8) -> Codec {
        let kind = match container {
            Container::WebM => CodecKind::Av1,
            _ if bits > 8 => CodecKind::Hevc,
            _ => CodecKind::H264,
        };
        Codec { kind, hardware: None }
    }

    pub(crate) fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name)
    }

    /// The pixel format that the codec stores for an input format. The software encoders keep 4:2:2 and 4:4:4. RGB
    /// becomes 4:2:0, because all players support it.
    pub(crate) fn stored_pixels(self, input: Pixels) -> Pixels {
        let Pixels { family, bits, alpha } = input;
        match (self.kind, family) {
            (CodecKind::H264 | CodecKind::Hevc | CodecKind::Av1, _) => {
                let keeps = self.hardware.is_none() && matches!(family, Family::Yuv422 | Family::Yuv444);
                let family = if keeps { family } else { Family::Yuv420 };
                Pixels { family, bits: if bits > 8 { 10 } else { 8 }, alpha: false }
            }
            (CodecKind::ProRes, Family::Yuv444 | Family::Gbr) => Pixels { family: Family::Yuv444, bits: 10, alpha },
            (CodecKind::ProRes, _) if alpha => Pixels { family: Family::Yuv444, bits: 10, alpha },
            (CodecKind::ProRes, _) => Pixels { family: Family::Yuv422, bits: 10, alpha },
            // FFV1 has no YUV with alpha at these depths.
            (CodecKind::Ffv1, _) if alpha && family != Family::Gbr && [12, 14].contains(&bits) => {
                Pixels { bits: 16, ..input }
            }
            (CodecKind::Ffv1, _) => input,
        }
    }

    /// Whether both sides of a frame must be even for an input format.
    pub(crate) fn needs_even_sides(self, input: Pixels) -> bool {
        let subsampled = matches!(self.stored_pixels(input).family, Family::Yuv420 | Family::Yuv422);
        subsampled && self.kind != CodecKind::Ffv1
    }

    /// Whether the codec stores alpha.
    #[cfg(feature = "ffmpeg")]
    pub(crate) fn keeps_alpha(self) -> bool {
        matches!(self.kind, CodecKind::Ffv1 | CodecKind::ProRes)
    }

    /// The least and the greatest CRF; `None` if the codec has no such setting.
    #[cfg(feature = "ffmpeg")]
    pub(crate) fn crf_range(self) -> Option<(u32, u32)> {
        match (self.hardware, self.kind) {
            (Some("videotoolbox"), _) => Some((1, 100)),
            (Some("qsv"), _) => Some((1, 51)),
            (None, CodecKind::Av1) => Some((0, 63)),
            (_, CodecKind::H264 | CodecKind::Hevc | CodecKind::Av1) => Some((0, 51)),
            (_, CodecKind::Ffv1 | CodecKind::ProRes) => None,
        }
    }

    /// Estimated bits per pixel of typical material. A CRF step of six halves or doubles the size of a lossy codec.
    pub(crate) fn bits_per_pixel(self, pixels: Pixels, crf: Option<u32>) -> f64 {
        let samples = match pixels.family {
            Family::Yuv420 => 1.5,
            Family::Yuv422 => 2.0,
            Family::Yuv444 | Family::Gbr => 3.0,
            Family::Grey => 1.0,
        };
        let lossy = |bits: f64, default: f64| bits * 2f64.powf((default - crf.map_or(default, f64::from)) / 6.0);
        match self.kind {
            CodecKind::H264 => lossy(0.2, 18.0),
            CodecKind::Hevc => lossy(0.12, 20.0),
            CodecKind::Av1 => lossy(0.08, 28.0),
            CodecKind::Ffv1 => 0.45 * samples * f64::from(pixels.bits),
            // The data rate that Apple publishes.
            CodecKind::ProRes => 1.77 * samples,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn codec_names_parse_and_display() {
        for name in ["h264", "hevc", "av1", "ffv1", "prores", "hevc-nvenc", "av1-qsv"] {
            assert_eq!(name.parse::<Codec>().unwrap().to_string(), name);
        }
        assert_eq!("h265".parse::<Codec>().unwrap().to_string(), "hevc");
        assert!(["", "mpeg4", "ffv1-nvenc", "hevc-", "hevc-magic"].iter().all(|name| name.parse::<Codec>().is_err()));
    }
}
