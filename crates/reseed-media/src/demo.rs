//! What demonstrations show: a real clip and a photograph that travel inside the program. `assets/README.md` says whose they
//! are.

use std::path::Path;

use crate::error::Result;
use crate::frame::{Depth, Frame, Rate};
use crate::picture;
use crate::stream::{Info, Kind, Source};
use crate::y4m::Format;

const CLIP: &[u8] = include_bytes!("../assets/demo/clip.mjpeg");
const PHOTO: &[u8] = include_bytes!("../assets/demo/photo.jpg");
const CLIP_RATE: Rate = Rate { num: 20, den: 1 };

/// A cockatoo that turns its head: forty frames of 480x272, two seconds.
pub fn clip() -> Box<dyn Source> {
    let kind = Kind::Y4m(Format::for_depth(Depth::Eight));
    Box::new(Pictures::new("clip.mjpeg", pictures(CLIP), kind, CLIP_RATE))
}

/// A motorcycle in a garage: 448x448.
pub fn photo() -> Box<dyn Source> {
    Box::new(Pictures::new("photo.jpg", vec![PHOTO], Kind::Image, Rate::default()))
}

/// JPEG pictures, decoded when their turn comes.
struct Pictures {
    name: &'static Path,
    pictures: std::vec::IntoIter<&'static [u8]>,
    info: Info,
}

impl Pictures {
    fn new(name: &'static str, pictures: Vec<&'static [u8]>, kind: Kind, rate: Rate) -> Pictures {
        let name = Path::new(name);
        let size = picture::from_bytes(pictures[0], name).expect("embedded pictures are whole").size;
        let (frames, depth, names, icc) = (Some(pictures.len()), Depth::Eight, Vec::new(), None);
        let info = Info { size, frames, rate, depth, alpha: false, kind, names, icc };
        Pictures { name, pictures: pictures.into_iter(), info }
    }
}

impl Source for Pictures {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        self.pictures.next().map(|bytes| picture::from_bytes(bytes, self.name)).transpose()
    }
}

/// The pictures of a stream of them: each ends with a marker that cannot stand inside one, and the next begins behind it.
fn pictures(mut stream: &'static [u8]) -> Vec<&'static [u8]> {
    const SEAM: &[u8] = &[0xff, 0xd9, 0xff, 0xd8];
    let mut pictures = Vec::new();
    while let Some(seam) = stream.windows(SEAM.len()).position(|bytes| bytes == SEAM) {
        let (picture, rest) = stream.split_at(seam + 2);
        pictures.push(picture);
        stream = rest;
    }
    pictures.push(stream);
    pictures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Size;
    use crate::metrics;

    #[test]
    fn the_clip_is_two_seconds_of_motion() {
        let mut clip = clip();
        let info = clip.info().clone();
        assert_eq!((info.size, info.frames, info.rate), (Size { h: 272, w: 480 }, Some(40), CLIP_RATE));
        let frames: Vec<Frame> = std::iter::from_fn(|| clip.next().unwrap()).collect();
        assert_eq!(frames.len(), 40);
        let steps: Vec<f64> = frames.windows(2).map(|pair| metrics::psnr(&pair[0], &pair[1])).collect();
        assert!(steps.iter().all(|step| step.is_finite() && *step > 10.0), "{steps:?}");
    }

    #[test]
    fn the_photograph_is_one_picture() {
        let mut photo = photo();
        assert_eq!((photo.info().size, photo.info().kind.clone()), (Size { h: 448, w: 448 }, Kind::Image));
        assert!(photo.next().unwrap().is_some() && photo.next().unwrap().is_none());
    }
}
