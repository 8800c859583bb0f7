//! The colour tags of an output, and what else it copies from its source.

use crate::format::{Chroma, Matrix, Range};
use crate::frame::{Rate, Size};
use crate::stream::{Info, Kind};
use crate::video::{Clock, Codec, Family, Hdr, Pixels, Tags};

/// The properties of a source that its output copies.
pub(super) struct SourceFormat {
    pub pixels: Pixels,
    pub tags: Option<Tags>,
    pub hdr: Hdr,
    pub aspect: Option<Rate>,
    pub clock: Clock,
}

impl SourceFormat {
    pub fn of(info: &Info) -> SourceFormat {
        let (pixels, regular) = (info.pixels(), Clock::new(info.rate, 1));
        match &info.kind {
            Kind::Video(video) => SourceFormat {
                pixels,
                tags: Some(video.tags.clone()),
                hdr: video.hdr.clone(),
                aspect: video.aspect,
                clock: video.timeline.clock(),
            },
            Kind::Y4m(format) => {
                let location = match format.chroma {
                    Chroma::Jpeg420 => Some("center"),
                    Chroma::Mpeg420 => Some("left"),
                    Chroma::Paldv420 => Some("topleft"),
                    Chroma::Yuv422 | Chroma::Yuv444 | Chroma::Mono => None,
                };
                let location = location.map(str::to_owned);
                let (space, primaries, transfer) = (None, None, None);
                let matrix = Matrix::for_size(info.size);
                let tags = Tags { range: format.range(), matrix, space, primaries, transfer, location };
                let aspect = format.aspect.as_deref().and_then(ratio);
                SourceFormat { pixels, tags: Some(tags), hdr: Hdr::default(), aspect, clock: regular }
            }
            Kind::Animation(animation) => {
                let clock = animation.timeline().clock();
                SourceFormat { pixels, tags: None, hdr: Hdr::default(), aspect: None, clock }
            }
            Kind::Image | Kind::Pages | Kind::Folder => {
                SourceFormat { pixels, tags: None, hdr: Hdr::default(), aspect: None, clock: regular }
            }
        }
    }
}

fn ratio(text: &str) -> Option<Rate> {
    let (num, den) = text.split_once(':')?;
    let (num, den) = (num.parse().ok()?, den.parse().ok()?);
    (num > 0 && den > 0).then_some(Rate { num, den })
}

/// The colour tags of an output.
pub(super) struct OutputColor {
    pub range: Range,
    pub matrix: Matrix,
    space: String,
    primaries: Option<String>,
    transfer: Option<String>,
    pub location: Option<String>,
}

impl OutputColor {
    pub fn new(source: &SourceFormat, pixels: Pixels, size: Size, codec: Codec) -> OutputColor {
        let tagged = source.tags.as_ref().filter(|_| source.pixels.family != Family::Gbr);
        let known = tagged.and_then(|tags| Some((tags.matrix, tags.space.clone()?)));
        let (matrix, space) = known.unwrap_or_else(|| {
            let matrix = Matrix::for_size(size);
            (matrix, matrix.tag().to_owned())
        });
        let range = tagged.filter(|_| codec.keeps_range()).map_or(Range::Limited, |tags| tags.range);
        let both_420 = pixels.family == Family::Yuv420 && source.pixels.family == Family::Yuv420;
        let tag = |of: fn(&Tags) -> &Option<String>| source.tags.as_ref().and_then(|tags| of(tags).clone());
        let rgb = pixels.family == Family::Gbr;
        OutputColor {
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

    /// Filters that set the tags of frames before the encoder, so that ffmpeg inserts no conversion.
    pub fn filters(&self, aspect: Option<Rate>) -> String {
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

    /// Options that set the tags of the stream. Two transfer curves have other names here than in filters.
    pub fn options(&self) -> Vec<String> {
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
