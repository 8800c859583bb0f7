//! Previews: the last few are kept as images.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use reseed::media::{Frame, ImageTags, Info, Kind, create, open_clip};
use reseed::{Error, Position};
use serde::Serialize;
use utoipa::ToSchema;

use crate::request::Checked;
use crate::sessions::SessionCache;

const FOLDER: &str = "previews";
/// Previews that are kept.
const KEPT: usize = 32;

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

/// The images of previews.
pub struct Previews {
    folder: PathBuf,
    kept: Mutex<VecDeque<String>>,
}

impl Previews {
    /// An empty folder: previews do not survive a restart.
    pub fn open(data: &Path) -> io::Result<Previews> {
        let folder = data.join(FOLDER);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        Ok(Previews { folder, kept: Mutex::default() })
    }

    /// The image of a preview: `input` or `output`.
    pub fn image(&self, id: &str, side: &str) -> Option<PathBuf> {
        let known = self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|kept| kept == id);
        (known && ["input", "output"].contains(&side)).then(|| self.path(id, side))
    }

    fn path(&self, id: &str, side: &str) -> PathBuf {
        self.folder.join(format!("{id}-{side}.png"))
    }

    /// Computes a preview with the batches of the job, so that its pixels are those of the job's output.
    pub fn make(
        &self,
        id: &str,
        wish: &Checked,
        at: Position,
        sessions: &mut SessionCache,
    ) -> reseed::Result<PreviewView> {
        let mut source = open_clip(&wish.input, wish.chosen.clip).map_err(Error::Input)?;
        let settings = wish.settings_for(Path::new(&wish.output_name()));
        let session = sessions.get(&wish.model)?;
        let preview = session.preview(&mut *source, at, &settings, &mut ())?;
        for (side, frame) in [("input", &preview.input), ("output", &preview.output)] {
            write(&self.path(id, side), source.info(), frame)?;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(id.to_owned());
        if kept.len() > KEPT
            && let Some(old) = kept.pop_front()
        {
            ["input", "output"].iter().for_each(|side| drop(fs::remove_file(self.path(&old, side))));
        }
        let size = preview.output.size;
        let [input, output] = ["input", "output"].map(|side| format!("/v1/previews/{id}/{side}"));
        Ok(PreviewView { id: id.into(), frame: preview.number, width: size.w, height: size.h, input, output })
    }
}

fn write(path: &Path, input: &Info, frame: &Frame) -> reseed::Result<()> {
    let (kind, frames, names, tags) = (Kind::Image, Some(1), Vec::new(), ImageTags::default());
    let info = Info { kind, frames, names, tags, size: frame.size, alpha: frame.alpha.is_some(), ..input.clone() };
    let mut sink = create(path, &info).map_err(Error::Output)?;
    sink.write(frame).and_then(|()| sink.finish()).map_err(Error::Output)
}
