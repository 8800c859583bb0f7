//! The inputs of the quality benchmark: originals that are downscaled, clean and degraded.

use std::fs;
use std::path::Path;

use reseed_media::{Depth, Frame, ImageTags, Info, Kind, Rate, Size};

use super::set::{CLIPS, Item, PHOTOGRAPHS, Set};
use super::{degrade, resized};
use crate::error::{Error, Result};

/// Factors of downscaling.
const SCALES: [usize; 2] = [2, 4];
/// All sides are multiples of it, so that every factor divides them.
const SIDE: usize = 4;

/// The frames of an item, cropped to sides that every factor divides.
pub fn originals(item: &Item) -> Vec<Frame> {
    item.frames.iter().map(cropped).collect()
}

/// Every case and its inputs.
pub fn inputs(originals: &[Frame]) -> Result<Vec<(String, Vec<Frame>)>> {
    let size = originals[0].size;
    let mut cases = Vec::new();
    for scale in SCALES {
        let small = Size { h: size.h / scale, w: size.w / scale };
        cases.push((format!("{scale}x"), resized(originals, small, Depth::Eight)?));
        cases.push((format!("{scale}x degraded"), degrade::frames(originals, scale)));
    }
    Ok(cases)
}

/// The folder of a case.
pub fn folder_of(case: &str) -> String {
    case.replace(' ', "-")
}

/// Writes the inputs of a set as PNG files, for another program: `CASE/img/NAME.png` and `CASE/vid/CLIP/000.png`.
pub fn write_inputs(set: &Set, root: &Path) -> Result<()> {
    for item in set.photographs.iter().chain(&set.clips) {
        for (case, inputs) in inputs(&originals(item))? {
            let folder = root.join(folder_of(&case));
            for (i, frame) in inputs.iter().enumerate() {
                let path = match item.moving {
                    true => folder.join(CLIPS).join(&item.name).join(format!("{i:03}.png")),
                    false => folder.join(PHOTOGRAPHS).join(format!("{}.png", item.stem())),
                };
                write(&path, frame)?;
            }
        }
    }
    Ok(())
}

fn write(path: &Path, frame: &Frame) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    let wrong = |error: std::io::Error| Error::Unusable { path: folder.into(), reason: error.to_string() };
    fs::create_dir_all(folder).map_err(wrong)?;
    let (names, tags) = (Vec::new(), ImageTags::default());
    let (rate, depth, kind) = (Rate { num: 1, den: 1 }, frame.depth(), Kind::Image);
    let info = Info { size: frame.size, frames: Some(1), rate, depth, alpha: false, kind, names, tags };
    let mut sink = reseed_media::create(path, &info).map_err(Error::Output)?;
    sink.write(frame).and_then(|()| sink.finish()).map_err(Error::Output)
}

/// A frame cropped to sides that are multiples.
fn cropped(frame: &Frame) -> Frame {
    let Size { h, w } = frame.size;
    let size = Size { h: h / SIDE * SIDE, w: w / SIDE * SIDE };
    let unit = frame.to_unit();
    let rows = unit.chunks_exact(3 * w).take(size.h).flat_map(|row| &row[..3 * size.w]);
    Frame::from_unit(size, &rows.copied().collect::<Vec<f32>>(), frame.depth())
}
