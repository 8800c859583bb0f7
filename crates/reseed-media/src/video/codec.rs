//! Which encoder, with which settings. Settings are fixed, the number of threads among them, so that a segment's bytes
//! follow from its frames.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::pixels::{Family, Pixels};
use super::segments::SEGMENT_FRAMES;
use super::tracks::Container;
use super::{Hdr, Options};
use crate::error::{Error, Result};
use crate::frame::Size;

/// What a video is compressed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codec {
    kind: Kind,
    /// The hardware that does it, as ffmpeg's encoders are named after it.
    hardware: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    H264,
    Hevc,
    Av1,
    Ffv1,
    ProRes,
}

const KINDS: [(&str, Kind); 5] =
    [("h264", Kind::H264), ("hevc", Kind::Hevc), ("av1", Kind::Av1), ("ffv1", Kind::Ffv1), ("prores", Kind::ProRes)];
const HARDWARE: [&str; 4] = ["nvenc", "qsv", "amf", "videotoolbox"];

/// Names as they are typed: `hevc`, or `hevc-nvenc` for hardware.
impl FromStr for Codec {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Codec, String> {
        let (name, hardware) = match text.split_once(['-', '_']) {
            Some((name, hardware)) => (name, Some(hardware)),
            None => (text, None),
        };
        let unknown = || {
            format!(
                "`{text}` is none of h264, hevc, av1, ffv1 and prores, nor h264, hevc or av1 with -nvenc, -qsv, -amf or -videotoolbox"
            )
        };
        let alias = match name {
            "h265" => "hevc",
            "avc" => "h264",
            name => name,
        };
        let (_, kind) = *KINDS.iter().find(|(known, _)| *known == alias).ok_or_else(unknown)?;
        let lossy = matches!(kind, Kind::H264 | Kind::Hevc | Kind::Av1);
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
    /// What suits a container and a depth.
    pub(super) fn default_for(container: Container, bits: u8) -> Codec {
        let kind = match container {
            Container::WebM => Kind::Av1,
            _ if bits > 8 => Kind::Hevc,
            _ => Kind::H264,
        };
        Codec { kind, hardware: None }
    }

    fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name)
    }

    /// ffmpeg's encoders for it, best first.
    pub(super) fn encoders(self) -> Vec<String> {
        match (self.hardware, self.kind) {
            (Some(hardware), _) => vec![format!("{}_{hardware}", self.name())],
            (None, Kind::H264) => vec!["libx264".into()],
            (None, Kind::Hevc) => vec!["libx265".into()],
            (None, Kind::Av1) => vec!["libsvtav1".into(), "libaom-av1".into()],
            (None, Kind::Ffv1) => vec!["ffv1".into()],
            (None, Kind::ProRes) => vec!["prores_ks".into()],
        }
    }

    /// Refuses containers that do not hold it.
    pub(super) fn check(self, output: &Path, container: Container) -> Result<()> {
        let holds = match container {
            Container::Matroska => "h264, hevc, av1, ffv1 and prores",
            Container::Mp4 => "h264, hevc and av1",
            Container::Mov => "h264, hevc and prores",
            Container::WebM => "av1",
        };
        match holds.split([',', ' ']).any(|name| name == self.name()) {
            true => Ok(()),
            false => Err(Error::WrongContainer { path: output.to_owned(), codec: self.name(), holds }),
        }
    }

    /// Whether it stores codes of full range as they are.
    pub(super) fn keeps_range(self) -> bool {
        self.kind != Kind::ProRes
    }

    /// The kind of file its segments are.
    pub(super) fn segment_format(self) -> &'static str {
        if matches!(self.kind, Kind::Ffv1 | Kind::ProRes) { "mov" } else { "mp4" }
    }

    /// What it stores frames of these pixels as. 4:2:0 is what every player plays.
    pub(super) fn stored_pixels(self, input: Pixels) -> Pixels {
        match (self.kind, input.family) {
            (Kind::H264 | Kind::Hevc | Kind::Av1, _) => {
                Pixels { family: Family::Yuv420, bits: if input.bits > 8 { 10 } else { 8 } }
            }
            (Kind::ProRes, Family::Yuv444 | Family::Gbr) => Pixels { family: Family::Yuv444, bits: 10 },
            (Kind::ProRes, _) => Pixels { family: Family::Yuv422, bits: 10 },
            (Kind::Ffv1, _) => input,
        }
    }

    /// Bits that a pixel of a common film takes, about. Quality in steps of six doubles or halves what is lossy.
    pub(super) fn bits_per_pixel(self, pixels: Pixels, crf: Option<u32>) -> f64 {
        let samples = match pixels.family {
            Family::Yuv420 => 1.5,
            Family::Yuv422 => 2.0,
            Family::Yuv444 | Family::Gbr => 3.0,
            Family::Grey => 1.0,
        };
        let lossy = |bits: f64, usual: f64| bits * 2f64.powf((usual - crf.map_or(usual, f64::from)) / 6.0);
        match self.kind {
            Kind::H264 => lossy(0.2, 18.0),
            Kind::Hevc => lossy(0.12, 20.0),
            Kind::Av1 => lossy(0.08, 28.0),
            Kind::Ffv1 => 0.45 * samples * f64::from(pixels.bits),
            // As the makers of the codec give its rates.
            Kind::ProRes => 1.77 * samples,
        }
    }

    /// The same for frames of a size, which not every one can have.
    pub(super) fn pixels(self, input: Pixels, size: Size, output: &Path) -> Result<Pixels> {
        let pixels = self.stored_pixels(input);
        let odd = match pixels.family {
            Family::Yuv420 => size.w % 2 == 1 || size.h % 2 == 1,
            Family::Yuv422 => size.w % 2 == 1,
            _ => false,
        };
        match odd && self.kind != Kind::Ffv1 {
            true => Err(Error::OddSize { path: output.to_owned(), size, codec: self.name() }),
            false => Ok(pixels),
        }
    }

    /// ffmpeg's name for what this encoder takes; where it is another than ours, samples are only laid out anew.
    pub(super) fn encoder_pixels(self, pixels: Pixels) -> String {
        match (self.kind, self.hardware, pixels) {
            (_, Some("nvenc" | "qsv" | "amf" | "videotoolbox"), Pixels { bits: 10, .. }) => "p010le".into(),
            (_, Some("qsv" | "amf"), _) => "nv12".into(),
            (Kind::Ffv1, _, Pixels { family: Family::Gbr, bits: 8 }) => "bgr0".into(),
            _ => pixels.name(),
        }
    }

    /// The tag that players of Apple's look for.
    pub(super) fn tag(self, container: Container) -> Option<&'static str> {
        let apple = matches!(container, Container::Mp4 | Container::Mov);
        (self.kind == Kind::Hevc && apple).then_some("hvc1")
    }

    /// The encoder's settings, as arguments.
    pub(super) fn settings(self, encoder: &str, pixels: Pixels, options: &Options, hdr: &Hdr) -> Vec<String> {
        let crf = |default: u32| options.crf.unwrap_or(default).to_string();
        let mut words: Vec<String> = vec!["-c:v".into(), encoder.into(), "-g".into(), SEGMENT_FRAMES.to_string()];
        let mut add = |text: &str| words.extend(text.split_whitespace().map(str::to_owned));
        match encoder {
            "libx264" => add(&format!("-crf {} -preset medium -threads 8", crf(18))),
            "libx265" => {
                let tags = hdr.x265();
                add(&format!("-crf {} -preset medium -threads 4", crf(20)));
                add(&format!("-x265-params log-level=error:open-gop=0:keyint={SEGMENT_FRAMES}{tags}"));
            }
            "libsvtav1" => add(&format!("-crf {} -preset 8 -svtav1-params {}", crf(28), hdr.svt())),
            "libaom-av1" => add(&format!("-crf {} -b:v 0 -cpu-used 6 -row-mt 1 -threads 8", crf(26))),
            "ffv1" => add("-level 3 -slices 4 -slicecrc 1 -threads 4"),
            "prores_ks" => {
                let profile = if pixels.family == Family::Yuv444 { 4 } else { 3 };
                add(&format!("-profile:v {profile} -vendor apl0 -threads 8"));
            }
            name if name.ends_with("_nvenc") => add(&format!("-preset p5 -rc vbr -cq {} -b:v 0", crf(20))),
            name if name.ends_with("_qsv") => add(&format!("-global_quality {} -preset medium", crf(20))),
            name if name.ends_with("_amf") => add(&format!("-rc cqp -qp_i {0} -qp_p {0}", crf(20))),
            _ => add(&format!("-q:v {}", options.crf.unwrap_or(60))),
        }
        for (name, value) in &options.encoder_args {
            words.extend([format!("-{name}"), value.clone()]);
        }
        words
    }
}

impl Hdr {
    /// As x265 takes it, behind its other parameters.
    fn x265(&self) -> String {
        let mut text = String::new();
        if let Some([gx, gy, bx, by, rx, ry, wx, wy, most, least]) = self.mastering {
            text += &format!(":master-display=G({gx},{gy})B({bx},{by})R({rx},{ry})WP({wx},{wy})L({most},{least})");
        }
        if let Some([pixel, frame]) = self.light {
            text += &format!(":max-cll={pixel},{frame}");
        }
        if text.is_empty() { text } else { format!("{text}:hdr10=1:repeat-headers=1") }
    }

    /// As SVT-AV1 takes it, behind the number of threads.
    fn svt(&self) -> String {
        let mut text = String::from("lp=4");
        if let Some([gx, gy, bx, by, rx, ry, wx, wy, most, least]) = self.mastering {
            let c = |v: u32| f64::from(v) / 50_000.0;
            let l = |v: u32| f64::from(v) / 10_000.0;
            text += &format!(
                ":mastering-display=G({},{})B({},{})R({},{})WP({},{})L({},{})",
                c(gx),
                c(gy),
                c(bx),
                c(by),
                c(rx),
                c(ry),
                c(wx),
                c(wy),
                l(most),
                l(least)
            );
        }
        if let Some([pixel, frame]) = self.light {
            text += &format!(":content-light={pixel},{frame}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn codecs_are_named_as_people_name_them() {
        for name in ["h264", "hevc", "av1", "ffv1", "prores", "hevc-nvenc", "av1-qsv"] {
            assert_eq!(name.parse::<Codec>().unwrap().to_string(), name);
        }
        assert_eq!("h265".parse::<Codec>().unwrap().to_string(), "hevc");
        assert_eq!("hevc_nvenc".parse::<Codec>().unwrap().encoders(), ["hevc_nvenc"]);
        assert!(["", "mpeg4", "ffv1-nvenc", "hevc-", "hevc-magic"].iter().all(|name| name.parse::<Codec>().is_err()));
    }

    #[test]
    fn deep_video_stays_deep() {
        let size = Size { h: 2, w: 2 };
        let output = Path::new("a.mkv");
        let deep = Pixels { family: Family::Yuv444, bits: 12 };
        let stored = |name: &str| name.parse::<Codec>().unwrap().pixels(deep, size, output).unwrap().name();
        assert_eq!(["hevc", "ffv1", "prores"].map(stored), ["yuv420p10le", "yuv444p12le", "yuv444p10le"]);
    }
}
