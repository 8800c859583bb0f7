//! A TIFF file with several pages, as a source and as a sink.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use super::codec::ImageCodec;
use super::guard::Retry;
use super::pages::{self, Page};
use super::tiff;
use super::{Decoded, encode_error, identify, interleaved, probe_page, read_page, with_size};
use crate::error::{Error, Result};
use crate::frame::{Frame, Rate, Size};
use crate::partial::Partial;
use crate::problem::Problem;
use crate::stream::{ImageTags, Info, Kind, Sink, Source};

/// The pages of a TIFF file; empty for other formats.
pub(super) fn pages(path: &Path) -> Result<Vec<Page>> {
    if identify(path)? != ImageCodec::Tiff {
        return Ok(Vec::new());
    }
    let file = File::open(path).map_err(|cause| Error::Read { path: path.to_owned(), cause })?;
    // An error here occurs again when the image is read.
    Ok(pages::pages(&mut BufReader::new(Retry(file))).unwrap_or_default())
}

/// A source of pages.
pub(crate) struct PagesSource {
    path: PathBuf,
    pages: Vec<Page>,
    info: Info,
    read: usize,
    problems: Vec<Problem>,
}

impl PagesSource {
    /// Reads the headers of all pages, so that a bad page is found before the job starts.
    pub fn open(path: &Path, pages: Vec<Page>) -> Result<PagesSource> {
        let mut all = Vec::new();
        for page in &pages {
            all.push(probe_page(path, *page)?);
        }
        let size = all[0].size;
        if let Some(other) = all.iter().position(|headers| headers.size != size) {
            let (path, other_size, page) = (path.to_owned(), all[other].size, other + 1);
            return Err(Error::MixedPages { path, first_size: size, page, other_size });
        }
        let depth = all.iter().map(|headers| headers.depth).max().unwrap_or(all[0].depth);
        let alpha = all.iter().any(|headers| headers.alpha);
        let tags = ImageTags { source: Some(path.to_owned()), ..all.swap_remove(0).tags };
        let (kind, frames, rate) = (Kind::Pages, Some(pages.len()), Rate::default());
        let info = Info { size, frames, rate, depth, alpha, kind, names: Vec::new(), tags };
        Ok(PagesSource { path: path.to_owned(), pages, info, read: 0, problems: Vec::new() })
    }
}

impl Source for PagesSource {
    fn info(&self) -> &Info {
        &self.info
    }

    fn next(&mut self) -> Result<Option<Frame>> {
        let Some(page) = self.pages.get(self.read) else { return Ok(None) };
        let Decoded { frame, problem, .. } = read_page(&self.path, *page)?;
        self.read += 1;
        let damage = problem.map(|problem| format!("page {}: {problem}", self.read));
        self.problems.extend(damage.map(|damage| Problem::Image { path: self.path.clone(), damage }));
        Ok(Some(frame))
    }

    fn problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems)
    }
}

/// A sink that writes the pages of a TIFF file.
pub(crate) struct PagesSink {
    path: PathBuf,
    size: Size,
    tags: ImageTags,
    /// The pages of the source, whose tags are copied.
    sources: Vec<Page>,
    written: usize,
    /// Without a buffer, because the encoder cannot flush one. Declared before `partial`, so that the file closes
    /// before it is removed.
    output: tiff::Pages<'static>,
    partial: Partial,
}

impl PagesSink {
    pub fn create(path: &Path, info: &Info) -> Result<PagesSink> {
        let (file, partial) = Partial::file(path)?;
        let output = tiff::Pages::new(file);
        let output = output.map_err(|cause| encode_error(path, ImageCodec::Tiff, cause))?;
        let sources = info.tags.source.as_deref().and_then(|source| pages(source).ok()).unwrap_or_default();
        let (size, tags) = (info.size, info.tags.clone());
        Ok(PagesSink { path: path.to_owned(), size, tags, sources, written: 0, output, partial })
    }

    /// The tags of the page that is written next.
    fn page_tags(&self) -> ImageTags {
        let (source, page) = (self.tags.source.as_deref(), self.sources.get(self.written));
        let tags = source.zip(page).and_then(|(path, page)| Some(probe_page(path, *page).ok()?.tags));
        tags.unwrap_or_else(|| self.tags.clone())
    }
}

impl Sink for PagesSink {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        frame.assert_fits(self.size);
        let tags = with_size(&self.page_tags(), self.size);
        let (samples, color) = interleaved(frame, ImageCodec::Tiff, tags.grey);
        let written = self.output.write(self.size, color, samples.as_bytes(), &tags);
        self.written += 1;
        written.map_err(|cause| encode_error(&self.path, ImageCodec::Tiff, cause))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        assert!(self.written > 0, "a file needs a page");
        let PagesSink { output, partial, .. } = *self;
        drop(output);
        partial.commit()
    }
}
