//! A video as a sink for frames.

use std::path::{Path, PathBuf};

use super::codec::Codec;
use super::encoder::{Encoder, Encoding};
use super::marks::Marks;
use super::mux::Mux;
use super::pixels::{Family, Pixels};
use super::segments::{SEGMENT_FRAMES, Work};
use super::spool::Spool;
use super::timeline::Clock;
use super::tools::Tools;
use super::tracks::Container;
use super::{Hdr, Options, Tags, Video};
use crate::error::{Error, Result};
use crate::frame::{Depth, Frame, Rate, Size};
use crate::partial::Partial;
use crate::planes::{Matrix, Planes};
use crate::stream::{Info, Kind, Sink};
use crate::y4m::{Chroma, Range};

/// Writes frames to a video, segment by segment.
pub struct Writer {
    path: PathBuf,
    encoding: Encoding,
    planes: Planes,
    buffer: Vec<u8>,
    options: Options,
    container: Container,
    codec: Codec,
    source: Option<Box<Video>>,
    /// The segment in hand, and the one before while its encoder ends. Declared before `work`, so that encoders end
    /// before their files are removed.
    current: Option<Encoder>,
    ending: Option<Encoder>,
    next: usize,
    spool: Option<Spool>,
    marks: Option<Marks>,
    /// Whether frames in the spool are still to be given to encoders.
    replays: bool,
    /// Frames that are yet to come and in finished segments already.
    ahead: usize,
    work: Work,
    partial: Partial,
}

impl Writer {
    /// A new video at `path`; what an interrupted run has left of it is removed.
    pub fn create(path: &Path, info: &Info, options: &Options) -> Result<Writer> {
        Writer::open(path, info, options, None)
    }

    /// Takes up what a run with the same arguments has left, behind its first `frames` frames.
    pub fn resume(path: &Path, info: &Info, options: &Options, frames: usize) -> Result<Writer> {
        Writer::open(path, info, options, Some(frames))
    }

    fn open(path: &Path, info: &Info, options: &Options, resume: Option<usize>) -> Result<Writer> {
        let expected = "a name ending in .mp4, .mkv, .mov, .webm or .y4m";
        let unknown = || Error::UnknownOutput { path: path.to_owned(), expected };
        let container = Container::of(path).ok_or_else(unknown)?;
        let tools = Tools::find()?;
        let origin = Origin::of(info);
        let codec = options.codec.unwrap_or(Codec::default_for(container, origin.pixels.bits));
        codec.check(path, container)?;
        let pixels = codec.pixels(origin.pixels, info.size, path)?;
        let missing = || Error::NoEncoder { codec: codec.to_string(), names: codec.encoders().join(" or ") };
        let encoder = tools.encoder(&codec.encoders()).ok_or_else(missing)?;
        let look = Look::new(&origin, pixels, info.size, codec);

        let (_, partial) = Partial::file(path)?;
        let work = Work::open(path, codec.segment_format(), resume.is_some())?;
        let spool = |written: usize| Spool::open(&work.folder, work.frames(), written);
        let spool = options.resumable.then(|| spool(resume.unwrap_or(0))).transpose()?;
        let marks = match &info.kind {
            Kind::Video(video) if options.resumable => Some(Marks::open(&work.folder, &video.timeline)?),
            _ => None,
        };
        let planes = Planes::new(info.size, pixels.layout(look.range, look.matrix, look.location.as_deref()));
        let encoding = Encoding {
            tools,
            output: path.to_owned(),
            size: info.size,
            pixels: pixels.name(),
            encoder_pixels: codec.encoder_pixels(pixels),
            filters: look.filters(origin.aspect),
            settings: codec.settings(&encoder, pixels, options, &origin.hdr),
            tags: look.options(),
            clock: origin.clock,
            format: codec.segment_format(),
        };
        let source = match &info.kind {
            Kind::Video(video) => Some(video.clone()),
            _ => None,
        };
        Ok(Writer {
            path: path.to_owned(),
            planes,
            encoding,
            buffer: Vec::new(),
            options: options.clone(),
            container,
            codec,
            source,
            current: None,
            ending: None,
            next: work.segments.len(),
            spool,
            marks,
            replays: resume.is_some(),
            ahead: resume.map_or(0, |frames| work.frames().saturating_sub(frames)),
            work,
            partial,
        })
    }

    /// Gives encoders those frames again that are in no segment. Not before another comes: only then are their times
    /// known, since the source is read anew.
    fn replay(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.replays) {
            return Ok(());
        }
        let Some(spool) = self.spool.take() else { return Ok(()) };
        let replayed = spool.replay(self.work.frames(), self.planes.frame_bytes(), |planes| self.append(planes));
        self.spool = Some(spool);
        replayed
    }

    /// Gives the encoder in hand, or a new one, a frame's planes.
    fn append(&mut self, planes: &[u8]) -> Result<()> {
        if self.ending.as_mut().is_some_and(Encoder::has_ended) {
            self.settle()?;
        }
        let mut encoder = match self.current.take() {
            Some(encoder) => encoder,
            None => {
                self.next += 1;
                self.encoding.start(&self.work, self.next - 1)?
            }
        };
        self.encoding.write(&mut encoder, planes)?;
        let full = encoder.frames == SEGMENT_FRAMES;
        self.current = Some(encoder);
        if full { self.close() } else { Ok(()) }
    }

    /// Gives the segment before the one in hand its name, once its encoder has ended.
    fn settle(&mut self) -> Result<()> {
        match self.ending.take() {
            Some(encoder) => {
                let timeline = self.source.as_ref().map(|video| &video.timeline);
                self.encoding.finish(encoder, &mut self.work, timeline)
            }
            None => Ok(()),
        }
    }

    /// Lets the encoder in hand come to its end while the next begins.
    fn close(&mut self) -> Result<()> {
        self.settle()?;
        self.ending = self.current.take().map(Encoder::close);
        Ok(())
    }
}

impl Sink for Writer {
    fn write(&mut self, frame: &Frame) -> Result<()> {
        self.replay()?;
        let mut planes = std::mem::take(&mut self.buffer);
        self.planes.encode(frame, &mut planes);
        match self.ahead {
            0 => self.append(&planes)?,
            _ => self.ahead -= 1,
        }
        self.spool.as_mut().map_or(Ok(()), |spool| spool.append(&planes))?;
        self.buffer = planes;
        Ok(())
    }

    fn secure(&mut self) -> Result<usize> {
        if self.ending.as_mut().is_some_and(Encoder::has_ended) {
            self.settle()?;
        }
        let Some(spool) = &mut self.spool else { return Ok(0) };
        let written = spool.secure()?;
        if let Some((marks, video)) = self.marks.as_mut().zip(self.source.as_ref()) {
            marks.secure(&video.timeline)?;
        }
        self.work.sync()?;
        spool.forget(self.work.frames());
        Ok(written)
    }

    fn keep_unfinished(&mut self) {
        self.work.keep = true;
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.replay()?;
        self.close()?;
        self.settle()?;
        let mux = Mux {
            tools: &self.encoding.tools,
            container: self.container,
            codec: self.codec,
            options: &self.options,
            source: self.source.as_deref(),
            clock: self.encoding.clock,
            tags: &self.encoding.tags,
        };
        mux.run(&self.work, self.partial.path(), &self.path)?;
        let Writer { mut work, partial, .. } = *self;
        partial.commit()?;
        work.keep = false;
        Ok(())
    }
}

/// Bits of a pixel that an output would take, about.
pub(crate) fn bits_per_pixel(info: &Info, options: &Options) -> f64 {
    let (codec, pixels) = stored(info, options);
    codec.bits_per_pixel(pixels, options.crf)
}

/// Bytes of a frame on its way to the encoder.
pub(crate) fn plane_bytes(info: &Info, options: &Options) -> usize {
    let pixels = stored(info, options).1;
    Planes::new(info.size, pixels.layout(Range::Limited, Matrix::Bt709, None)).frame_bytes()
}

/// What an output is compressed with unless its name asks for something else, and its pixels.
fn stored(info: &Info, options: &Options) -> (Codec, Pixels) {
    let pixels = Origin::of(info).pixels;
    let codec = options.codec.unwrap_or(Codec::default_for(Container::Matroska, pixels.bits));
    (codec, codec.stored_pixels(pixels))
}

/// What an output takes over from whatever was opened.
struct Origin {
    pixels: Pixels,
    tags: Option<Tags>,
    hdr: Hdr,
    aspect: Option<Rate>,
    clock: Clock,
}

impl Origin {
    fn of(info: &Info) -> Origin {
        let regular = Clock::new(info.rate, 1);
        match &info.kind {
            Kind::Video(video) => Origin {
                pixels: video.pipe.pixels,
                tags: Some(video.tags.clone()),
                hdr: video.hdr.clone(),
                aspect: video.aspect,
                clock: video.timeline.clock(),
            },
            Kind::Y4m(format) => {
                let (family, location) = match format.chroma {
                    Chroma::Jpeg420 => (Family::Yuv420, Some("center")),
                    Chroma::Mpeg420 => (Family::Yuv420, Some("left")),
                    Chroma::Paldv420 => (Family::Yuv420, Some("topleft")),
                    Chroma::Yuv422 => (Family::Yuv422, None),
                    Chroma::Yuv444 => (Family::Yuv444, None),
                    Chroma::Mono => (Family::Grey, None),
                };
                let location = location.map(str::to_owned);
                let (space, primaries, transfer) = (None, None, None);
                let matrix = Matrix::for_height(info.size.h);
                let tags = Tags { range: format.range(), matrix, space, primaries, transfer, location };
                let aspect = format.aspect.as_deref().and_then(ratio);
                let pixels = Pixels { family, bits: format.bits };
                Origin { pixels, tags: Some(tags), hdr: Hdr::default(), aspect, clock: regular }
            }
            Kind::Image | Kind::Folder => {
                let bits = if info.depth == Depth::Eight { 8 } else { 16 };
                let pixels = Pixels { family: Family::Gbr, bits };
                Origin { pixels, tags: None, hdr: Hdr::default(), aspect: None, clock: regular }
            }
        }
    }
}

fn ratio(text: &str) -> Option<Rate> {
    let (num, den) = text.split_once(':')?;
    let (num, den) = (num.parse().ok()?, den.parse().ok()?);
    (num > 0 && den > 0).then_some(Rate { num, den })
}

/// The colours of an output, each named.
struct Look {
    range: Range,
    matrix: Matrix,
    space: String,
    primaries: Option<String>,
    transfer: Option<String>,
    location: Option<String>,
}

impl Look {
    fn new(origin: &Origin, pixels: Pixels, size: Size, codec: Codec) -> Look {
        let tagged = origin.tags.as_ref().filter(|_| origin.pixels.family != Family::Gbr);
        let known = tagged.and_then(|tags| Some((tags.matrix, tags.space.clone()?)));
        let (matrix, space) = known.unwrap_or_else(|| {
            let matrix = Matrix::for_height(size.h);
            (matrix, matrix.tag().to_owned())
        });
        let range = tagged.filter(|_| codec.keeps_range()).map_or(Range::Limited, |tags| tags.range);
        let both_420 = pixels.family == Family::Yuv420 && origin.pixels.family == Family::Yuv420;
        let tag = |of: fn(&Tags) -> &Option<String>| origin.tags.as_ref().and_then(|tags| of(tags).clone());
        let rgb = pixels.family == Family::Gbr;
        Look {
            range: if rgb { Range::Full } else { range },
            matrix,
            space: if rgb { "rgb".to_owned() } else { space },
            primaries: tag(|tags| &tags.primaries),
            transfer: tag(|tags| &tags.transfer),
            location: tag(|tags| &tags.location).filter(|_| both_420),
        }
    }

    fn range_tag(&self) -> &'static str {
        if self.range == Range::Full { "pc" } else { "tv" }
    }

    /// Filters that tag frames on their way to the encoder, so that nothing on that way converts them.
    fn filters(&self, aspect: Option<Rate>) -> String {
        let space = if self.space == "rgb" { "gbr" } else { &self.space };
        let mut filters = format!("setparams=range={}:colorspace={space}", self.range_tag());
        if let Some(primaries) = &self.primaries {
            filters += &format!(":color_primaries={primaries}");
        }
        if let Some(transfer) = &self.transfer {
            filters += &format!(":color_trc={transfer}");
        }
        let Rate { num, den } = aspect.unwrap_or(Rate { num: 1, den: 1 });
        filters + &format!(",setsar={num}/{den}")
    }

    /// The same for the stream. ffmpeg calls two of the oldest curves otherwise here.
    fn options(&self) -> Vec<String> {
        let mut args = vec!["-color_range", self.range_tag(), "-colorspace", &self.space];
        if let Some(primaries) = &self.primaries {
            args.extend(["-color_primaries", primaries]);
        }
        if let Some(transfer) = &self.transfer {
            let name = match transfer.as_str() {
                "bt470m" => "gamma22",
                "bt470bg" => "gamma28",
                other => other,
            };
            args.extend(["-color_trc", name]);
        }
        if let Some(location) = &self.location {
            args.extend(["-chroma_sample_location", location]);
        }
        args.into_iter().map(str::to_owned).collect()
    }
}
