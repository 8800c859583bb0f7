//! The names of pixel formats in ffmpeg, and the format in which a pipe carries each of them.

use super::pixels::{Family, Pixels};
use crate::format::{Chroma, Matrix, Range};
use crate::planes::{Layout, Model};

/// The format in which ffmpeg delivers frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pipe {
    pub pixels: Pixels,
    /// The name in ffmpeg.
    pub name: String,
    /// Whether the file has another format, which ffmpeg converts to this one.
    pub repacked: bool,
    /// Whether the name implies full range.
    pub full: bool,
}

impl Pixels {
    /// The name in ffmpeg.
    pub fn name(self) -> String {
        let stem = match (self.family, self.alpha) {
            (Family::Yuv420, false) => "yuv420p",
            (Family::Yuv422, false) => "yuv422p",
            (Family::Yuv444, false) => "yuv444p",
            (Family::Gbr, false) => "gbrp",
            (Family::Yuv420, true) => "yuva420p",
            (Family::Yuv422, true) => "yuva422p",
            (Family::Yuv444, true) => "yuva444p",
            // No planar format has grey and alpha alone.
            (Family::Gbr | Family::Grey, true) => "gbrap",
            (Family::Grey, false) => "gray",
        };
        if self.bits == 8 { stem.to_owned() } else { format!("{stem}{}le", self.bits) }
    }

    /// The format that ffmpeg calls `name`, if this crate converts it.
    pub fn parse(name: &str) -> Option<Pixels> {
        let families = [Family::Yuv420, Family::Yuv422, Family::Yuv444, Family::Gbr, Family::Grey];
        let depths = families.into_iter().flat_map(|family| [8, 9, 10, 12, 14, 16].map(|bits| (family, bits)));
        let mut all = depths.flat_map(|(family, bits)| [false, true].map(|alpha| Pixels { family, bits, alpha }));
        all.find(|pixels| pixels.name() == name)
    }

    /// The layout for a converter.
    pub fn layout(self, range: Range, matrix: Matrix, location: Option<&str>) -> Layout {
        let yuv = |chroma| Model::Yuv { chroma, range, matrix };
        let model = match (self.family, location) {
            (Family::Yuv420, Some("center")) => yuv(Chroma::Jpeg420),
            (Family::Yuv420, Some("topleft")) => yuv(Chroma::Paldv420),
            // Video codecs default to chroma on the left.
            (Family::Yuv420, _) => yuv(Chroma::Mpeg420),
            (Family::Yuv422, _) => yuv(Chroma::Yuv422),
            (Family::Yuv444, _) => yuv(Chroma::Yuv444),
            (Family::Grey, _) => yuv(Chroma::Mono),
            (Family::Gbr, _) => Model::Gbr,
        };
        Layout { model, bits: self.bits, alpha: self.alpha }
    }
}

impl Pipe {
    /// The pipe that carries frames of this pixel format without loss of colour.
    pub fn for_format(name: &str) -> Pipe {
        if let Some(pixels) = Pixels::parse(name) {
            return Pipe { pixels, name: name.to_owned(), repacked: false, full: false };
        }
        if let Some(pixels) = name.strip_prefix("yuvj").and_then(|rest| Pixels::parse(&format!("yuv{rest}"))) {
            return Pipe { pixels, name: name.to_owned(), repacked: false, full: true };
        }
        let alpha = ["yuva", "gbrap", "ya8", "ya16", "rgba", "bgra", "argb", "abgr", "ayuv", "vuya"];
        let alpha = alpha.iter().any(|prefix| name.starts_with(prefix));
        let Pixels { family, bits, .. } = repacked(name.trim_end_matches("le").trim_end_matches("be"));
        let family = if alpha && family == Family::Grey { Family::Gbr } else { family };
        let pixels = Pixels { family, bits, alpha };
        Pipe { pixels, name: pixels.name(), repacked: true, full: false }
    }
}

/// The planar format of the same family and depth without alpha; RGB of sixteen bits for an unknown name.
fn repacked(name: &str) -> Pixels {
    let bits = |digits: &str| digits.parse().ok().filter(|bits| [9, 10, 12, 14, 16].contains(bits));
    let planar = |prefix: &str, family| {
        let rest = name.strip_prefix(prefix)?;
        let bits = if rest.is_empty() { 8 } else { bits(rest)? };
        Some(Pixels { family, bits, alpha: false })
    };
    let known = [
        ("yuv420p", Family::Yuv420),
        ("yuva420p", Family::Yuv420),
        ("yuv422p", Family::Yuv422),
        ("yuva422p", Family::Yuv422),
        ("yuv444p", Family::Yuv444),
        ("yuva444p", Family::Yuv444),
        ("yuv440p", Family::Yuv444),
        ("yuv411p", Family::Yuv444),
        ("yuv410p", Family::Yuv444),
        ("yuvj440p", Family::Yuv444),
        ("yuvj411p", Family::Yuv444),
        ("gray", Family::Grey),
        ("gbrp", Family::Gbr),
        ("gbrap", Family::Gbr),
    ];
    if let Some(pixels) = known.into_iter().find_map(|(prefix, family)| planar(prefix, family)) {
        return pixels;
    }
    let (family, bits) = match name {
        "nv12" | "nv21" => (Family::Yuv420, 8),
        "p010" => (Family::Yuv420, 10),
        "p012" => (Family::Yuv420, 12),
        "p016" => (Family::Yuv420, 16),
        "nv16" | "yuyv422" | "uyvy422" | "yvyu422" => (Family::Yuv422, 8),
        "nv20" | "p210" | "y210" => (Family::Yuv422, 10),
        "p212" | "y212" => (Family::Yuv422, 12),
        "p216" | "y216" => (Family::Yuv422, 16),
        "nv24" | "nv42" | "vuya" | "vuyx" | "ayuv" | "uyyvyy411" => (Family::Yuv444, 8),
        "p410" | "xv30" | "v30x" => (Family::Yuv444, 10),
        "p412" | "xv36" => (Family::Yuv444, 12),
        "p416" | "xv48" | "ayuv64" => (Family::Yuv444, 16),
        "ya8" | "monow" | "monob" => (Family::Grey, 8),
        "ya16" => (Family::Grey, 16),
        "x2rgb10" | "x2bgr10" => (Family::Gbr, 10),
        "rgb24" | "bgr24" | "rgba" | "bgra" | "argb" | "abgr" | "rgb0" | "bgr0" | "0rgb" | "0bgr" | "pal8"
        | "rgb565" | "bgr565" | "rgb555" | "bgr555" | "rgb444" | "bgr444" | "rgb8" | "bgr8" | "rgb4" | "bgr4" => {
            (Family::Gbr, 8)
        }
        _ => (Family::Gbr, 16),
    };
    Pixels { family, bits, alpha: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planar_formats_are_not_repacked() {
        let names = "yuv420p yuv422p10le yuv444p12le yuvj420p gray gray16le gbrp gbrp12le yuva444p12le gbrap16le";
        for name in names.split_whitespace() {
            let pipe = Pipe::for_format(name);
            assert_eq!((pipe.name.as_str(), pipe.repacked), (name, false));
        }
        assert!(Pipe::for_format("yuvj444p").full);
    }

    #[test]
    fn other_formats_keep_their_family_and_depth() {
        let pipe = |name| Pipe::for_format(name).name;
        assert_eq!(
            ["nv12", "p010le", "yuva444p10be", "rgb24", "rgba64be", "yuv411p", "ya8", "bgra"].map(pipe),
            ["yuv420p", "yuv420p10le", "yuva444p10le", "gbrp", "gbrap16le", "yuv444p", "gbrap", "gbrap"]
        );
        assert!(Pipe::for_format("yuva420p").pixels.alpha && !Pipe::for_format("bgr0").pixels.alpha);
        assert_eq!(pipe("something new"), "gbrp16le");
    }

    #[test]
    fn frame_bytes_match_the_converter() {
        use crate::frame::Size;
        use crate::planes::Planes;
        let names = "yuv420p yuv420p10le yuv422p yuv444p12le gray gbrp gbrp16le yuva420p yuva444p10le gbrap";
        for pixels in names.split_whitespace().map(|name| Pixels::parse(name).unwrap()) {
            for size in [Size { h: 4, w: 6 }, Size { h: 5, w: 7 }, Size { h: 1, w: 1 }] {
                let planes = Planes::new(size, pixels.layout(Range::Limited, Matrix::Bt709, None));
                assert_eq!(pixels.frame_bytes(size), planes.frame_bytes(), "{pixels:?} {size}");
            }
        }
    }
}
