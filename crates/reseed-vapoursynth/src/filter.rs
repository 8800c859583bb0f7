//! The filter: finds batches, requests their frames, computes them and keeps their results.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reseed::media::planes::Layout;
use reseed::media::y4m::Format;
use reseed::media::{Frame, ImageTags, Info, Kind, Rate};
use reseed::{BatchGrid, Event, Observer, RangeJob, Session, Target};

use crate::api::VsVideoInfo;
use crate::args::Arguments;
use crate::cache::BatchCache;
use crate::format::ClipFormat;
use crate::host::{FrameRef, Host, Map, Node, Request};
use crate::sessions;

/// Frames that are requested at once to look for cuts: they are in memory together.
const SCANNED: usize = 32;

/// What the request of a frame remembers: the frames of the source that it asked for.
#[derive(Clone, Debug, Default)]
pub struct FrameState {
    /// The frames.
    pub available: Range<usize>,
}

/// `Upscale` on a clip.
pub struct Filter {
    source: Node,
    format: ClipFormat,
    output: VsVideoInfo,
    frames: usize,
    session: Arc<Session>,
    /// Locked for as long as a batch is computed, by one frame at a time.
    job: Mutex<RangeJob>,
    /// Locked for moments only.
    found: Mutex<Found>,
    warned: Mutex<HashSet<String>>,
}

/// What is known so far.
struct Found {
    grid: BatchGrid,
    results: BatchCache<FrameRef>,
}

impl Filter {
    /// Reads the arguments and opens the model. Networks are loaded by the first frame.
    pub fn new(host: Host, map: &Map) -> Result<Filter, String> {
        let source = map.node(c"clip").ok_or("clip is missing")?;
        let Arguments { session, mut settings, cache } = Arguments::read(map)?;
        let info = source.info();
        let format = ClipFormat::new(host, &info)?;
        settings.even_sides = format.is_subsampled();
        let input = described(&info, &format);
        let geometry = settings.geometry(&input).map_err(|error| error.to_string())?;
        if format.is_subsampled() && (geometry.output.w % 2 > 0 || geometry.output.h % 2 > 0) {
            return Err(format!("size {}: {} needs even sides", geometry.output, host.format_name(&info.format)));
        }
        let format = format.with_output(geometry.output, matches!(settings.target, Target::Exact(_)));
        let session = sessions::open(&session).map_err(|error| error.to_string())?;
        let job = RangeJob::new(&session, &input, &settings).map_err(|error| error.to_string())?;
        let found = Found { grid: job.grid().clone(), results: BatchCache::new(cache) };
        let [width, height] = format.output();
        let filter = Filter {
            source,
            format,
            output: VsVideoInfo { width, height, ..info },
            frames: info.num_frames as usize,
            session,
            job: Mutex::new(job),
            found: Mutex::new(found),
            warned: Mutex::default(),
        };
        let warnings = filter.session.warnings().map_err(|error| error.to_string())?;
        warnings.iter().for_each(|warning| filter.warn(host, &warning.to_string()));
        Ok(filter)
    }

    /// What the output is.
    pub fn output_info(&self) -> VsVideoInfo {
        self.output
    }

    /// The clip whose frames are requested.
    pub fn source(&self) -> &Node {
        &self.source
    }

    /// A frame, or nothing after the frames that it needs were requested. No frame of the source is waited for.
    pub fn frame(&self, n: usize, state: &mut FrameState, request: Request) -> Result<Option<FrameRef>, String> {
        let done = self.found().results.get(n);
        if done.is_some() {
            return Ok(done);
        }
        self.scan(state.available.clone(), request)?;
        let next = match self.needed(n) {
            Some(needed) if is_within(&needed, &state.available) => return self.compute(n, needed, request).map(Some),
            Some(needed) => needed,
            None => self.unscanned(n),
        };
        if next.is_empty() {
            return Err(format!("internal error: the batches of frame {n} are not known"));
        }
        // Long clips have more frames than memory holds.
        state.available.clone().filter(|n| !next.contains(n)).for_each(|n| request.release(&self.source, n));
        request.request(&self.source, next.clone());
        state.available = next;
        Ok(None)
    }

    /// The frames that a frame is computed from, if its batches are known.
    fn needed(&self, n: usize) -> Option<Range<usize>> {
        self.found().grid.input_of(n..n + 1)
    }

    /// The next frames to look for cuts in, until the batches of a frame are known.
    fn unscanned(&self, n: usize) -> Range<usize> {
        let found = self.found();
        let (next, enough) = (found.grid.pushed(), found.grid.enough_for(n..n + 1).min(self.frames));
        next..enough.min(next + SCANNED)
    }

    /// Adds available frames to the grid.
    fn scan(&self, available: Range<usize>, request: Request) -> Result<(), String> {
        for n in available {
            if self.found().grid.frames().is_some() || self.found().grid.pushed() != n {
                continue;
            }
            let frame = self.convert(&request.frame(&self.source, n))?;
            let mut found = self.found();
            // Another request may have been faster.
            if found.grid.pushed() == n {
                found.grid.push(&frame);
            }
            if found.grid.pushed() == self.frames {
                found.grid.finish();
            }
        }
        Ok(())
    }

    /// Computes the batch of a frame, of which all input frames are available.
    fn compute(&self, n: usize, needed: Range<usize>, request: Request) -> Result<FrameRef, String> {
        let mut job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        // The frame that computed the same batch meanwhile.
        let (done, grid) = {
            let mut found = self.found();
            (found.results.get(n), found.grid.clone())
        };
        if let Some(done) = done {
            return Ok(done);
        }
        let sources: Vec<FrameRef> = needed.clone().map(|n| request.frame(&self.source, n)).collect();
        let layouts: Result<Vec<Layout>, String> = sources.iter().map(|frame| self.layout(frame)).collect();
        let layouts = layouts?;
        let range = grid.covering(n..n + 1).ok_or("internal error: the batches are not known")?;
        *job.grid_mut() = grid;
        let mut provider = |n: usize| {
            let at = n - needed.start;
            Ok(self.format.to_frame(&sources[at], layouts[at]))
        };
        let mut observer = Warnings { filter: self, host: request.host() };
        let frames = job.frames(&self.session, range.clone(), &mut provider, &mut observer);
        let frames = frames.map_err(|error| error.to_string())?;
        let output = |(n, frame): (usize, &Frame)| {
            let at = n - needed.start;
            self.format.from_frame(request.host(), frame, &sources[at], layouts[at])
        };
        let results: Vec<FrameRef> = range.clone().zip(&frames).map(output).collect();
        let result = results[n - range.start].clone();
        self.found().results.put(range, results);
        Ok(result)
    }

    fn convert(&self, frame: &FrameRef) -> Result<Frame, String> {
        Ok(self.format.to_frame(frame, self.layout(frame)?))
    }

    fn layout(&self, frame: &FrameRef) -> Result<Layout, String> {
        let size = self.format.input();
        let [width, height] = frame.size();
        match [width as usize, height as usize] == [size.w, size.h] {
            true => self.format.layout(&frame.properties()),
            false => Err(format!("a frame has {width}x{height} pixels instead of {size}")),
        }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows each message once.
    fn warn(&self, host: Host, message: &str) {
        if self.warned.lock().unwrap_or_else(PoisonError::into_inner).insert(message.to_owned()) {
            host.warn(message);
        }
    }
}

/// The clip as the library describes it.
fn described(info: &VsVideoInfo, format: &ClipFormat) -> Info {
    let rate = u32::try_from(info.fps_num).ok().zip(u32::try_from(info.fps_den).ok());
    let rate = rate.filter(|(num, den)| *num > 0 && *den > 0).map(|(num, den)| Rate { num, den });
    let depth = format.depth();
    Info {
        size: format.input(),
        frames: Some(info.num_frames as usize),
        rate: rate.unwrap_or_default(),
        depth,
        alpha: false,
        kind: Kind::Y4m(Format::for_depth(depth)),
        names: Vec::new(),
        tags: ImageTags::default(),
    }
}

fn is_within(inner: &Range<usize>, outer: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Passes warnings on.
struct Warnings<'a> {
    filter: &'a Filter,
    host: Host,
}

impl Observer for Warnings<'_> {
    fn event(&mut self, event: &Event) {
        if let Event::Warning(warning) = event {
            self.filter.warn(self.host, &warning.to_string());
        }
    }
}
