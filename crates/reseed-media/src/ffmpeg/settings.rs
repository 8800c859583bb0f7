//! The encoder of a codec and its settings. The settings are fixed, including the number of threads, so that the bytes
//! of a segment depend on its frames alone.

use std::path::Path;

use crate::error::{Error, Result};
use crate::frame::Size;
use crate::video::{Codec, CodecKind, Container, Family, Hdr, Options, Pixels, SEGMENT_FRAMES};

impl Codec {
    /// The names of ffmpeg's encoders for the codec and a pixel format, best first.
    pub(super) fn encoders(self, pixels: Pixels) -> Vec<String> {
        match (self.hardware, self.kind) {
            (Some(hardware), _) => vec![format!("{}_{hardware}", self.name())],
            // SVT-AV1 stores 4:2:0 only.
            (None, CodecKind::Av1) if pixels.family != Family::Yuv420 => vec!["libaom-av1".into()],
            (None, CodecKind::H264) => vec!["libx264".into()],
            (None, CodecKind::Hevc) => vec!["libx265".into()],
            (None, CodecKind::Av1) => vec!["libsvtav1".into(), "libaom-av1".into()],
            (None, CodecKind::Ffv1) => vec!["ffv1".into()],
            (None, CodecKind::ProRes) => vec!["prores_ks".into()],
        }
    }

    /// The error of an ffmpeg without an encoder for the codec.
    pub(super) fn no_encoder(self) -> Error {
        let pixels = Pixels { family: Family::Yuv420, bits: 8, alpha: false };
        Error::NoEncoder { codec: self.to_string(), names: self.encoders(pixels).join(" or ") }
    }

    /// Fails if the container cannot store the codec.
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

    /// Fails if the codec does not accept the quality setting.
    pub(super) fn check_crf(self, crf: Option<u32>) -> Result<()> {
        let range = self.crf_range();
        match crf.filter(|crf| !range.is_some_and(|(least, most)| (least..=most).contains(crf))) {
            Some(crf) => Err(Error::BadCrf { codec: self.to_string(), crf, range }),
            None => Ok(()),
        }
    }

    /// Whether the codec can store full range.
    pub(super) fn keeps_range(self) -> bool {
        self.kind != CodecKind::ProRes
    }

    /// The container format of segments.
    pub(super) fn segment_format(self) -> &'static str {
        if matches!(self.kind, CodecKind::Ffv1 | CodecKind::ProRes) { "mov" } else { "mp4" }
    }

    /// Fails if the size does not suit the chroma subsampling of the codec.
    pub(super) fn check_size(self, pixels: Pixels, size: Size, output: &Path) -> Result<()> {
        let odd = match pixels.family {
            Family::Yuv420 => size.w % 2 == 1 || size.h % 2 == 1,
            Family::Yuv422 => size.w % 2 == 1,
            _ => false,
        };
        match odd && self.kind != CodecKind::Ffv1 {
            true => Err(Error::OddSize { path: output.to_owned(), size, codec: self.name() }),
            false => Ok(()),
        }
    }

    /// The name of the encoder's input format. ffmpeg repacks samples where it differs from ours.
    pub(super) fn encoder_pixels(self, pixels: Pixels) -> String {
        match (self.kind, self.hardware, pixels) {
            (_, Some("nvenc" | "qsv" | "amf" | "videotoolbox"), Pixels { bits: 10, .. }) => "p010le".into(),
            (_, Some("qsv" | "amf"), _) => "nv12".into(),
            (CodecKind::Ffv1, _, Pixels { family: Family::Gbr, bits: 8, alpha }) => {
                if alpha { "bgra" } else { "bgr0" }.into()
            }
            _ => pixels.name(),
        }
    }

    /// The codec tag that Apple players require.
    pub(super) fn tag(self, container: Container) -> Option<&'static str> {
        let apple = matches!(container, Container::Mp4 | Container::Mov);
        (self.kind == CodecKind::Hevc && apple).then_some("hvc1")
    }

    /// The encoder and its settings, as arguments of ffmpeg.
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
                if pixels.alpha {
                    add("-alpha_bits 16");
                }
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
    /// Parameters for x265, with a leading separator.
    fn x265(&self) -> String {
        let mut text = String::new();
        if let Some([gx, gy, bx, by, rx, ry, wx, wy, max, min]) = self.mastering {
            text += &format!(":master-display=G({gx},{gy})B({bx},{by})R({rx},{ry})WP({wx},{wy})L({max},{min})");
        }
        if let Some([pixel, frame]) = self.light {
            text += &format!(":max-cll={pixel},{frame}");
        }
        if text.is_empty() { text } else { format!("{text}:hdr10=1:repeat-headers=1") }
    }

    /// Parameters for SVT-AV1, with the number of threads.
    fn svt(&self) -> String {
        let mut text = String::from("lp=4");
        if let Some([gx, gy, bx, by, rx, ry, wx, wy, max, min]) = self.mastering {
            let chroma = |v: u32| f64::from(v) / 50_000.0;
            let light = |v: u32| f64::from(v) / 10_000.0;
            text += &format!(
                ":mastering-display=G({},{})B({},{})R({},{})WP({},{})L({},{})",
                chroma(gx),
                chroma(gy),
                chroma(bx),
                chroma(by),
                chroma(rx),
                chroma(ry),
                chroma(wx),
                chroma(wy),
                light(max),
                light(min)
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
    fn a_hardware_codec_uses_the_encoder_of_that_name() {
        let pixels = Pixels { family: Family::Yuv420, bits: 8, alpha: false };
        assert_eq!("hevc_nvenc".parse::<Codec>().unwrap().encoders(pixels), ["hevc_nvenc"]);
    }

    #[test]
    fn a_quality_outside_the_range_of_the_codec_is_refused() {
        let check = |name: &str, crf| name.parse::<Codec>().unwrap().check_crf(Some(crf)).map_err(|e| e.to_string());
        assert_eq!([check("h264", 51), check("av1", 63), check("hevc-videotoolbox", 100)], [Ok(()), Ok(()), Ok(())]);
        let line = "a CRF of 52 is not possible with hevc, which takes 0 to 51; choose another value or another codec";
        assert_eq!(check("hevc", 52), Err(line.to_owned()));
        assert!(check("ffv1", 3).is_err_and(|line| line.contains("which takes none")));
        assert!("ffv1".parse::<Codec>().unwrap().check_crf(None).is_ok());
    }

    #[test]
    fn deep_video_is_stored_with_ten_bits_or_more() {
        let deep = Pixels { family: Family::Yuv444, bits: 12, alpha: false };
        let stored = |name: &str| name.parse::<Codec>().unwrap().stored_pixels(deep).name();
        assert_eq!(["hevc", "ffv1", "prores"].map(stored), ["yuv444p10le", "yuv444p12le", "yuv444p10le"]);
    }

    #[test]
    fn chroma_and_alpha_are_kept_where_the_codec_stores_them() {
        let stored = |codec: &str, pixels: &str| {
            codec.parse::<Codec>().unwrap().stored_pixels(Pixels::parse(pixels).unwrap()).name()
        };
        for (codec, input, output) in [
            ("h264", "yuv422p", "yuv422p"),
            ("h264", "yuv444p12le", "yuv444p10le"),
            ("h264", "gbrp", "yuv420p"),
            ("hevc-nvenc", "yuv444p", "yuv420p"),
            ("av1", "yuva444p", "yuv444p"),
            ("prores", "yuva420p", "yuva444p10le"),
            ("prores", "yuv420p", "yuv422p10le"),
            ("ffv1", "yuva444p12le", "yuva444p16le"),
            ("ffv1", "gbrap12le", "gbrap12le"),
        ] {
            assert_eq!(stored(codec, input), output, "{codec} {input}");
        }
    }
}
