//! Previews: one frame of a job, before and after.

use std::path::{Path, PathBuf};

use reseed::media::open_clip;
use reseed::{Error, Observer, Position};
use serde::Serialize;
use utoipa::ToSchema;

use crate::images::Images;
use crate::request::Checked;
use crate::sessions::SessionCache;

/// One frame of a job, before and after.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PreviewView {
    /// Names the preview.
    pub id: String,
    /// Index of the frame.
    pub frame: usize,
    /// Width of both images.
    pub width: usize,
    /// Height of both images.
    pub height: usize,
    /// Address of the input at the size of the result, as PNG.
    pub input: String,
    /// Address of the result, as PNG.
    pub output: String,
}

/// The image of a preview: `input` or `output`.
pub fn image(images: &Images, id: &str, side: &str) -> Option<PathBuf> {
    images.get(&name(id, side)).filter(|_| ["input", "output"].contains(&side))
}

fn name(id: &str, side: &str) -> String {
    format!("{id}-{side}")
}

/// Computes a preview with the batches of the job, so that its pixels are those of the job's output.
pub fn make(
    images: &Images,
    (id, wish, at): (&str, &Checked, Position),
    sessions: &mut SessionCache,
    observer: &mut dyn Observer,
) -> reseed::Result<PreviewView> {
    let mut source = open_clip(&wish.input, wish.chosen.clip).map_err(Error::Input)?;
    let settings = wish.settings_for(Path::new(&wish.output_name()));
    let session = sessions.get(&wish.model)?;
    let preview = session.preview(&mut *source, at, &settings, observer)?;
    for (side, frame) in [("input", &preview.input), ("output", &preview.output)] {
        images.add(&name(id, side), source.info(), frame)?;
    }
    let size = preview.output.size;
    let [input, output] = ["input", "output"].map(|side| format!("/v1/previews/{id}/{side}"));
    Ok(PreviewView { id: id.into(), frame: preview.number, width: size.w, height: size.h, input, output })
}
