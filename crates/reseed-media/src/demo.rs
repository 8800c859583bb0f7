//! An embedded video clip and photograph for demonstrations. `assets/README.md` lists their sources and licences.

use std::path::Path;

use crate::error::Result;
use crate::format::Format;
use crate::frame::{Depth, Frame, Rate};
use crate::image_file;
use crate::stream::{ImageTags, Info, Kind, Source};

const CLIP: &[u8] = include_bytes!("../assets/demo/clip.mjpeg");
const PHOTO: &[u8] = include_bytes!("../assets/demo/photo.jpg");
const CLIP_RATE: Rate = Rate { num: 20, den: 1 };

/// A clip of a cockatoo: 40 frames of 480x272, two seconds.
pub fn clip() -> Box<dyn Source> {
    let kind = Kind::Y4m(Format::for_depth(Depth::Eight));
    Box::new(JpegFrames::new("clip.mjpeg", split_jpegs(CLIP), kind, CLIP_RATE))
}

/// A photograph of a motorcycle: 448x448.
pub fn photo() -> Box<dyn Source> {
    Box::new(JpegFrames::new("photo.jpg", vec![PHOTO], Kind::Image, Rate::default()))
}

/// A source that decodes embedded JPEG images.
struct JpegFrames {
    name: &'static Path,
    images: std::vec::IntoIter<&'static [u8]>,
    info: Info,
}

impl JpegFrames {
    fn new(name: &'static str, images: Vec<&'static [u8]>, kind: Kind, rate: Rate) -> JpegFrames {
        let name = Path::new(name);
        let size = image_file::from_bytes(images[0], name).expect("embedded images are valid").size;
        let (frames, depth, names, tags) = (Some(images.len()), Depth::Eight, Vec::new(), ImageTags::default());
        let info = Info { size, frames, rate, depth, alpha: false, kind, names, tags };
        JpegFrames { name, images: images.into_iter(), info }
    }
}

impl Source for JpegFrames {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        self.images.next().map(|bytes| image_file::from_bytes(bytes, self.name)).transpose()
    }
}

/// Splits concatenated JPEG images. An end marker followed by a start marker occurs only between images.
fn split_jpegs(mut stream: &'static [u8]) -> Vec<&'static [u8]> {
    const BOUNDARY: &[u8] = &[0xff, 0xd9, 0xff, 0xd8];
    let mut images = Vec::new();
    while let Some(boundary) = stream.windows(BOUNDARY.len()).position(|bytes| bytes == BOUNDARY) {
        let (image, rest) = stream.split_at(boundary + 2);
        images.push(image);
        stream = rest;
    }
    images.push(stream);
    images
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Size;
    use crate::metrics;

    #[test]
    fn the_clip_has_forty_different_frames() {
        let mut clip = clip();
        let info = clip.info().clone();
        assert_eq!((info.size, info.frames, info.rate), (Size { h: 272, w: 480 }, Some(40), CLIP_RATE));
        let frames: Vec<Frame> = std::iter::from_fn(|| clip.next().unwrap()).collect();
        assert_eq!(frames.len(), 40);
        let steps: Vec<f64> = frames.windows(2).map(|pair| metrics::psnr(&pair[0], &pair[1])).collect();
        assert!(steps.iter().all(|step| step.is_finite() && *step > 10.0), "{steps:?}");
    }

    #[test]
    fn the_photograph_is_one_frame() {
        let mut photo = photo();
        assert_eq!((photo.info().size, photo.info().kind.clone()), (Size { h: 448, w: 448 }, Kind::Image));
        assert!(photo.next().unwrap().is_some() && photo.next().unwrap().is_none());
    }
}
