//! Image formats by extension and by content.

use std::path::Path;

use image::ImageFormat;

/// An image format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageCodec {
    Png,
    Jpeg,
    WebP,
    Tiff,
    Bmp,
    Pnm,
    Tga,
    /// These are decoded by ffmpeg.
    Avif,
    Heic,
    Jxl,
}

impl ImageCodec {
    pub fn from_extension(path: &Path) -> Option<ImageCodec> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "png" | "apng" => Some(ImageCodec::Png),
            "jpg" | "jpeg" => Some(ImageCodec::Jpeg),
            "webp" => Some(ImageCodec::WebP),
            "tif" | "tiff" => Some(ImageCodec::Tiff),
            "bmp" | "dib" => Some(ImageCodec::Bmp),
            "ppm" | "pgm" | "pbm" | "pnm" | "pam" => Some(ImageCodec::Pnm),
            "tga" => Some(ImageCodec::Tga),
            "avif" => Some(ImageCodec::Avif),
            "heic" | "heif" => Some(ImageCodec::Heic),
            "jxl" => Some(ImageCodec::Jxl),
            _ => None,
        }
    }

    /// The format that an output of this name is written in.
    pub fn for_output(path: &Path) -> Option<ImageCodec> {
        let written = [ImageCodec::Png, ImageCodec::Jpeg, ImageCodec::WebP, ImageCodec::Tiff];
        ImageCodec::from_extension(path).filter(|codec| written.contains(codec))
    }

    pub fn from_content(head: &[u8]) -> Option<ImageCodec> {
        match head {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(ImageCodec::Png),
            [0xff, 0xd8, 0xff, ..] => Some(ImageCodec::Jpeg),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(ImageCodec::WebP),
            [b'I', b'I', b'*' | b'+', 0, ..] | [b'M', b'M', 0, b'*' | b'+', ..] => Some(ImageCodec::Tiff),
            // The four bytes before the last are reserved and zero.
            [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => Some(ImageCodec::Bmp),
            [b'P', b'1'..=b'7', b' ' | b'\n' | b'\r' | b'\t' | b'#', ..] => Some(ImageCodec::Pnm),
            [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f' | b's', ..] => Some(ImageCodec::Avif),
            [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] if is_heic(brand) => Some(ImageCodec::Heic),
            [0xff, 0x0a, ..] | [0, 0, 0, 12, b'J', b'X', b'L', b' ', ..] => Some(ImageCodec::Jxl),
            _ => None,
        }
    }

    /// The format of a file. TGA has no mark at its start, so that its extension decides.
    pub fn detect(head: &[u8], path: &Path) -> Option<ImageCodec> {
        let tga = || ImageCodec::from_extension(path).filter(|codec| *codec == ImageCodec::Tga && !head.is_empty());
        ImageCodec::from_content(head).or_else(tga)
    }

    pub fn name(self) -> &'static str {
        match self {
            ImageCodec::Png => "PNG",
            ImageCodec::Jpeg => "JPEG",
            ImageCodec::WebP => "WebP",
            ImageCodec::Tiff => "TIFF",
            ImageCodec::Bmp => "BMP",
            ImageCodec::Pnm => "PNM",
            ImageCodec::Tga => "TGA",
            ImageCodec::Avif => "AVIF",
            ImageCodec::Heic => "HEIC",
            ImageCodec::Jxl => "JPEG XL",
        }
    }

    /// The format in the `image` crate; `None` for those that ffmpeg decodes.
    pub fn format(self) -> Option<ImageFormat> {
        match self {
            ImageCodec::Png => Some(ImageFormat::Png),
            ImageCodec::Jpeg => Some(ImageFormat::Jpeg),
            ImageCodec::WebP => Some(ImageFormat::WebP),
            ImageCodec::Tiff => Some(ImageFormat::Tiff),
            ImageCodec::Bmp => Some(ImageFormat::Bmp),
            ImageCodec::Pnm => Some(ImageFormat::Pnm),
            ImageCodec::Tga => Some(ImageFormat::Tga),
            ImageCodec::Avif | ImageCodec::Heic | ImageCodec::Jxl => None,
        }
    }

    pub fn has_alpha(self) -> bool {
        self != ImageCodec::Jpeg
    }

    pub fn has_grey(self) -> bool {
        self != ImageCodec::WebP
    }

    pub fn has_sixteen_bits(self) -> bool {
        matches!(self, ImageCodec::Png | ImageCodec::Tiff)
    }
}

/// Whether the major brand is one of still images or bursts in HEIF.
fn is_heic(brand: &[u8]) -> bool {
    [b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1"].iter().any(|known| brand.starts_with(*known))
}
