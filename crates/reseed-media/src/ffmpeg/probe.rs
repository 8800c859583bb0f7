//! Describes a video file through ffprobe.

use std::path::{Path, PathBuf};
use std::thread;

use serde_json::Value;

use super::tools::{self, Tools, file_url, words};
use crate::error::{Error, Result};
use crate::format::{Matrix, Range};
use crate::frame::{Rate, Size};
use crate::stream::{ImageTags, Info, Kind};
use crate::video::{Clip, Hdr, Pipe, Tags, Timeline, Track, TrackKind, Video};

/// Seconds that may be missing at the end of a video before it counts as incomplete.
const TOLERANCE: f64 = 1.0;

/// Describes the first video stream of `path` that is not a cover image.
pub(super) fn probe(tools: &Tools, path: &Path, clip: Clip) -> Result<Info> {
    let path = std::path::absolute(path).map_err(|cause| Error::Read { path: path.to_owned(), cause })?;
    let file = File { tools, path };
    let report = file.query("-show_streams -show_format -show_chapters")?;
    let streams: &[Value] = report["streams"].as_array().map_or(&[], Vec::as_slice);
    let is_video = |stream: &&Value| stream["codec_type"] == "video" && stream["disposition"]["attached_pic"] != 1;
    let Some(stream) = streams.iter().find(is_video) else {
        return Err(Error::NoVideo { path: file.path });
    };
    let index = stream["index"].as_u64().unwrap_or(0);
    let (frame, complete) = file.first_frame_and_end(index, &report["format"], clip);
    let frame = frame?["frames"].get(0).cloned().unwrap_or_default();

    let size = size(stream, &frame).ok_or_else(|| file.unreadable("the stream has no size"))?;
    if !size.is_plausible() {
        return Err(Error::TooLarge { path: file.path, size });
    }
    let rate = rate(stream);
    let pipe = Pipe::for_format(text(&frame, "pix_fmt").or(text(stream, "pix_fmt")).unwrap_or_default());
    let time_base = fraction(&stream["time_base"]).unwrap_or(Rate { num: 1, den: 90_000 });
    let seconds = length(stream).or(number(&report["format"]["duration"]));
    complete?;
    let tags = Tags::of(&frame, stream, size, &pipe);
    let layout = pipe.pixels.layout(tags.range, tags.matrix, tags.location.as_deref());
    let video = Video {
        path: file.path,
        index: index as usize,
        clip,
        pipe,
        layout,
        tags,
        hdr: Hdr::of(&frame, stream),
        aspect: fraction(&stream["sample_aspect_ratio"]).map(|sar| if is_rotated(stream) { inverse(sar) } else { sar }),
        tracks: streams.iter().filter(|other| other["index"] != index).filter_map(track).collect(),
        names: ["title", "language"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), text(&stream["tags"], name)?.to_owned())))
            .collect(),
        timeline: Timeline::new(rate, time_base),
    };
    let (depth, alpha) = (video.layout.depth(), video.layout.alpha);
    let frames = frame_count(stream, seconds, rate, clip);
    let kind = Kind::Video(Box::new(video));
    Ok(Info { size, frames, rate, depth, alpha, kind, names: Vec::new(), tags: ImageTags::default() })
}

struct File<'a> {
    tools: &'a Tools,
    path: PathBuf,
}

impl File<'_> {
    fn query(&self, options: &str) -> Result<Value> {
        let mut command = tools::command(&self.tools.ffprobe);
        command.args(words("-v error -of json -protocol_whitelist file")).args(words(options));
        command.arg(file_url(&self.path));
        let json = tools::output(command)?.map_err(|reason| self.unreadable(&reason))?;
        serde_json::from_slice(&json).map_err(|cause| self.unreadable(&cause.to_string()))
    }

    fn unreadable(&self, reason: &str) -> Error {
        let name = file_url(&self.path);
        // The message of ffmpeg repeats the file name; ours already begins with it.
        let reason = reason.strip_prefix(&*name.to_string_lossy()).map_or(reason, |rest| rest.trim_start_matches(": "));
        Error::Unreadable { path: self.path.clone(), reason: reason.to_owned() }
    }

    /// Queries the first frame of a stream and checks that the end of the file exists. The two processes run
    /// concurrently, because each takes long to start.
    fn first_frame_and_end(&self, index: u64, format: &Value, clip: Clip) -> (Result<Value>, Result<()>) {
        let first = || self.query(&format!("-select_streams {index} -show_frames -read_intervals %+#1"));
        thread::scope(|scope| {
            let complete = scope.spawn(|| self.check_complete(format, clip));
            (first(), complete.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    /// Compares the duration in the header with the last packets, so that an interrupted copy is found before the job
    /// starts.
    fn check_complete(&self, format: &Value, clip: Clip) -> Result<()> {
        let exact = text(format, "format_name").is_some_and(|name| name.contains("mov") || name.contains("matroska"));
        let Some(seconds) = number(&format["duration"]).filter(|_| exact) else { return Ok(()) };
        let needed = clip.end.map_or(seconds, |end| end.as_secs_f64().min(seconds));
        let end = number(&format["start_time"]).unwrap_or(0.0) + needed;
        let from = end - TOLERANCE;
        if needed < 2.0 * TOLERANCE {
            return Ok(());
        }
        let packets = self.query(&format!("-show_entries packet=pts_time -read_intervals {from}%{end}"));
        let packets = packets.unwrap_or_default();
        let packets: &[Value] = packets["packets"].as_array().map_or(&[], Vec::as_slice);
        match packets.iter().filter_map(|packet| number(&packet["pts_time"])).reduce(f64::max) {
            Some(last) if last >= from - TOLERANCE => Ok(()),
            _ => Err(Error::Incomplete { path: self.path.clone(), seconds }),
        }
    }
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
    let (base, average) = (fraction(&stream["r_frame_rate"]), fraction(&stream["avg_frame_rate"]));
    let fps = |rate: Rate| f64::from(rate.num) / f64::from(rate.den);
    match (base, average) {
        (Some(base), Some(average)) if (fps(base) / fps(average) - 1.0).abs() < 0.01 => base,
        (_, Some(average)) => average,
        (Some(base), None) if fps(base) <= 1000.0 => base,
        _ => Rate::default(),
    }
}

/// The number of frames, estimated from the header.
fn frame_count(stream: &Value, seconds: Option<f64>, rate: Rate, clip: Clip) -> Option<usize> {
    let fps = f64::from(rate.num) / f64::from(rate.den);
    match (number(&stream["nb_frames"]), seconds) {
        (Some(frames), _) if clip == Clip::default() && frames > 0.0 => Some(frames as usize),
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
    number(&stream["duration"]).or_else(|| {
        let mut parts = text(&stream["tags"], "DURATION")?.splitn(3, ':').map(str::parse::<f64>);
        let (h, m, s) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
        Some(3600.0 * h + 60.0 * m + s - number(&stream["start_time"]).unwrap_or(0.0))
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
            _ => Matrix::for_height(size.h),
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
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|number: &f64| number.is_finite())
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
