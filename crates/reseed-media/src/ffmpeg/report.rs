//! The description of a video from the reports of ffprobe. A report of a damaged file may hold any value.

use std::path::PathBuf;

use serde_json::Value;

use super::fields::{Decision, Flags};
use crate::error::{Error, Result};
use crate::format::{Matrix, Range};
use crate::frame::{Rate, Size};
use crate::stream::{ImageTags, Info, Kind};
use crate::video::{Chapter, Clip, Hdr, Parity, Pipe, Tags, Timeline, Track, TrackKind, Video};

/// Frame rates that are believed.
const RATES: std::ops::RangeInclusive<f64> = 1e-5..=1000.0;
/// The longest duration that is believed, in seconds.
const MAX_SECONDS: f64 = 1e9;

/// The streams, the container and the chapters of a file.
pub(super) struct Report {
    report: Value,
    /// The position of the video stream in the report.
    video: usize,
}

impl Report {
    /// Finds the first video stream that is not a cover image; `None` if the file has none.
    pub fn new(report: Value) -> Option<Report> {
        let is_video = |stream: &Value| stream["codec_type"] == "video" && stream["disposition"]["attached_pic"] != 1;
        let video = streams(&report).iter().position(is_video)?;
        Some(Report { report, video })
    }

    fn stream(&self) -> &Value {
        &streams(&self.report)[self.video]
    }

    /// The index of the video stream in the file.
    pub fn index(&self) -> usize {
        self.stream()["index"].as_u64().unwrap_or(self.video as u64) as usize
    }

    /// The name of the container in ffmpeg, such as `mov,mp4,m4a,3gp,3g2,mj2`.
    pub fn format(&self) -> &str {
        text(&self.report["format"], "format_name").unwrap_or_default()
    }

    /// The start and the duration in the header of the container, in seconds.
    pub fn span(&self) -> (f64, Option<f64>) {
        let format = &self.report["format"];
        (seconds(&format["start_time"]).unwrap_or(0.0), seconds(&format["duration"]))
    }

    /// Replaces the number of frames in the header.
    pub fn set_frame_count(&mut self, frames: u64) {
        self.report["streams"][self.video]["nb_frames"] = frames.into();
    }

    /// The frame rate of the stream.
    pub fn rate(&self) -> Rate {
        rate(self.stream())
    }

    /// The rows of stored frames, within the limits for files.
    pub fn rows(&self) -> usize {
        (self.stream()["height"].as_u64().unwrap_or(0) as usize).min(Size::MAX_SIDE)
    }

    /// The flags of interlaced video: of the stream, and of the first frames.
    pub fn flags(&self, frames: &[Value]) -> Flags {
        let stream = match text(self.stream(), "field_order") {
            Some("tt" | "bt") => Some(Parity::Top),
            Some("bb" | "tb") => Some(Parity::Bottom),
            _ => None,
        };
        let flagged = frames.iter().filter(|frame| frame["interlaced_frame"] == 1).count();
        Flags { stream, frames: (flagged, frames.len()) }
    }

    /// Describes the video, whose first frame ffprobe describes as `frame`.
    pub fn describe(&self, path: PathBuf, frame: &Value, clip: Clip, fields: Decision) -> Result<Info> {
        let stream = self.stream();
        let unsized_stream = || Error::Unreadable { path: path.clone(), reason: "the stream has no size".to_owned() };
        let size = size(stream, frame).ok_or_else(unsized_stream)?;
        if !size.is_plausible() {
            return Err(Error::TooLarge { path, size });
        }
        let rate = fields.action.rate(self.rate());
        let alpha_decoder = alpha_decoder(stream);
        let format = text(frame, "pix_fmt").or(text(stream, "pix_fmt")).unwrap_or_default();
        let pipe = Pipe::for_format(if alpha_decoder.is_some() { "yuva420p" } else { format });
        let time_base = fraction(&stream["time_base"]).unwrap_or(Rate { num: 1, den: 90_000 });
        let tags = Tags::of(frame, stream, size, &pipe);
        let layout = pipe.pixels.layout(tags.range, tags.matrix, tags.location.as_deref());
        let others = streams(&self.report).iter().enumerate().filter(|(at, _)| *at != self.video);
        let aspect = fraction(&stream["sample_aspect_ratio"]);
        let names = ["title", "language"].into_iter();
        let video = Video {
            path,
            index: self.index(),
            format: self.format().to_owned(),
            clip,
            fields: fields.action,
            field_note: fields.note,
            time_base,
            alpha_decoder,
            pipe,
            layout,
            tags,
            hdr: Hdr::of(frame, stream),
            aspect: aspect.map(|sar| if is_rotated(stream) { inverse(sar) } else { sar }),
            tracks: others.filter_map(|(_, other)| track(other)).collect(),
            chapters: self.chapters(),
            names: names.filter_map(|name| Some((name.to_owned(), text(&stream["tags"], name)?.to_owned()))).collect(),
            timecode: self.timecode(),
            timeline: Timeline::new(rate, fields.action.base(time_base)),
            early: (self.span().0.min(0.0) * -1e6).round() as i64,
        };
        let (depth, alpha) = (video.layout.depth(), video.layout.alpha);
        let stored = frame_count(stream, length(stream).or(self.span().1), self.rate(), clip);
        let frames = stored.map(|frames| fields.action.frames(frames));
        let kind = Kind::Video(Box::new(video));
        Ok(Info { size, frames, rate, depth, alpha, kind, names: Vec::new(), tags: ImageTags::default() })
    }
}

/// The decoder of a stream whose alpha the default decoder ignores.
fn alpha_decoder(stream: &Value) -> Option<&'static str> {
    let tagged = ["alpha_mode", "ALPHA_MODE"].iter().any(|name| stream["tags"][name] == "1");
    match text(stream, "codec_name").filter(|_| tagged)? {
        "vp8" => Some("libvpx"),
        "vp9" => Some("libvpx-vp9"),
        _ => None,
    }
}

impl Report {
    /// The timecode in the tags of the stream, or else of the file.
    fn timecode(&self) -> Option<String> {
        let tagged = [self.stream(), &self.report["format"]].into_iter();
        let mut tags = tagged.flat_map(|of| ["timecode", "TIMECODE"].map(|name| text(&of["tags"], name)));
        tags.find_map(|tag| tag.map(str::to_owned))
    }

    fn chapters(&self) -> Vec<Chapter> {
        let start = self.span().0;
        let micros = |value: &Value| Some(((seconds(value)? - start) * 1e6).round() as i64);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let chapter = |chapter: &Value| {
            let tags = chapter["tags"].as_object().into_iter().flatten();
            let tags = tags.filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect();
            Some(Chapter { start: micros(&chapter["start_time"])?, end: micros(&chapter["end_time"])?, tags })
        };
        self.report["chapters"].as_array().into_iter().flatten().filter_map(chapter).collect()
    }
}

fn streams(report: &Value) -> &[Value] {
    report["streams"].as_array().map_or(&[], Vec::as_slice)
}

/// Height and width of the decoded frames, which ffmpeg rotates by the rotation tag.
fn size(stream: &Value, frame: &Value) -> Option<Size> {
    let side = |key: &str| frame[key].as_u64().or(stream[key].as_u64()).filter(|side| *side > 0);
    let (w, h) = (side("width")? as usize, side("height")? as usize);
    Some(if is_rotated(stream) { Size { h: w, w: h } } else { Size { h, w } })
}

fn is_rotated(stream: &Value) -> bool {
    let sides = stream["side_data_list"].as_array().map_or(&[][..], Vec::as_slice);
    let angle = sides.iter().find_map(|side| side["rotation"].as_f64()).unwrap_or(0.0);
    let angle = angle.rem_euclid(180.0);
    (89.0..91.0).contains(&angle)
}

/// The base frame rate if it is within 1 % of the average; otherwise the average.
fn rate(stream: &Value) -> Rate {
    let fps = |rate: Rate| f64::from(rate.num) / f64::from(rate.den);
    let rate = |key: &str| fraction(&stream[key]).filter(|rate| RATES.contains(&fps(*rate)));
    let (base, average) = (rate("r_frame_rate"), rate("avg_frame_rate"));
    match (base, average) {
        (Some(base), Some(average)) if (fps(base) / fps(average) - 1.0).abs() < 0.01 => base,
        (_, Some(average)) => average,
        (Some(base), None) => base,
        _ => Rate::default(),
    }
}

/// The number of frames, estimated from the header.
fn frame_count(stream: &Value, seconds: Option<f64>, rate: Rate, clip: Clip) -> Option<usize> {
    let fps = f64::from(rate.num) / f64::from(rate.den);
    match (number(&stream["nb_frames"]), seconds.filter(|seconds| *seconds > 0.0)) {
        (Some(frames), _) if clip.is_whole() && (1.0..1e12).contains(&frames) => Some(frames as usize),
        (_, Some(seconds)) => {
            let end = clip.end.map_or(seconds, |end| end.as_secs_f64().min(seconds));
            let start = clip.start.unwrap_or_default().as_secs_f64();
            Some(((end - start).max(0.0) * fps).round() as usize)
        }
        _ => None,
    }
}

/// Seconds from the first frame of a stream to its end.
fn length(stream: &Value) -> Option<f64> {
    seconds(&stream["duration"]).or_else(|| {
        let mut parts = text(&stream["tags"], "DURATION")?.splitn(3, ':').map(str::parse::<f64>);
        let (h, m, s) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
        let length = 3600.0 * h + 60.0 * m + s - seconds(&stream["start_time"]).unwrap_or(0.0);
        (0.0..MAX_SECONDS).contains(&length).then_some(length)
    })
}

fn track(stream: &Value) -> Option<Track> {
    let cover = stream["disposition"]["attached_pic"] == 1;
    let kind = match text(stream, "codec_type")? {
        "audio" => TrackKind::Audio,
        "subtitle" => TrackKind::Subtitle,
        "attachment" => TrackKind::Attachment,
        "video" if cover => TrackKind::Cover,
        _ => return None,
    };
    let codec = text(stream, "codec_name").unwrap_or("unknown").to_owned();
    Some(Track { index: stream["index"].as_u64()? as usize, kind, codec })
}

impl Tags {
    /// The tags of the frame, or else of the stream. A missing range or matrix gets a default, because conversion needs
    /// both; other missing tags stay empty.
    fn of(frame: &Value, stream: &Value, size: Size, pipe: &Pipe) -> Tags {
        let tag = |key: &str| {
            let get = |from: &Value| text(from, key).filter(|tag| is_known(tag)).map(str::to_owned);
            get(frame).or_else(|| get(stream))
        };
        let range = match tag("color_range").as_deref() {
            Some("pc") => Range::Full,
            Some("tv") => Range::Limited,
            _ if pipe.full => Range::Full,
            _ => Range::Limited,
        };
        let space = tag("color_space");
        let matrix = match space.as_deref() {
            Some("bt709") => Matrix::Bt709,
            Some("bt470bg" | "smpte170m") => Matrix::Bt601,
            Some("bt2020nc" | "bt2020c" | "ictcp") => Matrix::Bt2020,
            Some("smpte240m") => Matrix::Smpte240m,
            Some("fcc") => Matrix::Fcc,
            _ => Matrix::for_size(size),
        };
        Tags {
            range,
            matrix,
            space,
            primaries: tag("color_primaries"),
            transfer: tag("color_transfer"),
            location: tag("chroma_location"),
        }
    }
}

impl Hdr {
    fn of(frame: &Value, stream: &Value) -> Hdr {
        let sides = |from: &Value| from["side_data_list"].as_array().cloned().unwrap_or_default();
        let all: Vec<Value> = sides(frame).into_iter().chain(sides(stream)).collect();
        let find = |kind: &str| all.iter().find(|side| side["side_data_type"] == kind);
        let mastering = find("Mastering display metadata").and_then(|side| {
            let chroma = |key: &str| scaled(&side[key], 50_000.0);
            let light = |key: &str| scaled(&side[key], 10_000.0);
            Some([
                chroma("green_x")?,
                chroma("green_y")?,
                chroma("blue_x")?,
                chroma("blue_y")?,
                chroma("red_x")?,
                chroma("red_y")?,
                chroma("white_point_x")?,
                chroma("white_point_y")?,
                light("max_luminance")?,
                light("min_luminance")?,
            ])
        });
        let light = find("Content light level metadata")
            .and_then(|side| Some([side["max_content"].as_u64()? as u32, side["max_average"].as_u64()? as u32]));
        Hdr { mastering, light }
    }
}

/// Parses a fraction such as `34000/50000` and returns it in units of `1 / units`.
fn scaled(value: &Value, units: f64) -> Option<u32> {
    let (num, den) = value.as_str()?.split_once('/')?;
    let (num, den): (f64, f64) = (num.parse().ok()?, den.parse().ok()?);
    (den > 0.0).then(|| (num / den * units).round() as u32)
}

fn text<'v>(from: &'v Value, key: &str) -> Option<&'v str> {
    from[key].as_str()
}

/// Whether a tag has a known value that is safe in a filter argument.
fn is_known(tag: &str) -> bool {
    let plain = tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    plain && !["unknown", "unspecified", "reserved", ""].contains(&tag)
}

/// A JSON number, or a string that holds one.
pub(super) fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|number: &f64| number.is_finite())
}

/// A time in seconds that is believed.
fn seconds(value: &Value) -> Option<f64> {
    number(value).filter(|seconds| seconds.abs() < MAX_SECONDS)
}

/// Parses `24000/1001` or `4:3`; `None` if a side is zero.
fn fraction(value: &Value) -> Option<Rate> {
    let (num, den) = value.as_str()?.split_once(['/', ':'])?;
    let (num, den) = (num.parse().ok()?, den.parse().ok()?);
    (num > 0 && den > 0).then_some(Rate { num, den })
}

fn inverse(rate: Rate) -> Rate {
    Rate { num: rate.den, den: rate.num }
}

#[cfg(test)]
mod tests;
