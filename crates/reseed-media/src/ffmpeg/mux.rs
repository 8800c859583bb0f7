//! Joins the segments and copies the other tracks of the source. Only tracks that the container cannot hold are
//! encoded.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::cut::{Cut, text_format};
use super::decoder::unused;
use super::opus::missing_delay;
use super::tools::{self, Tools, file_url, words};
use super::work_folder::WorkFolder;
use crate::error::{Error, Result};
use crate::video::{
    Clock, Codec, Container, KeptTrack, Options, SEGMENT_FRAMES, SEGMENT_LIST, Timeline, Track, TrackKind, Video,
    plan_tracks,
};

/// The arguments of the mux step.
pub(super) struct Mux<'a> {
    pub tools: &'a Tools,
    pub container: Container,
    pub codec: Codec,
    pub options: &'a Options,
    pub source: Option<&'a Video>,
    /// The times of the frames; `None` for a constant rate.
    pub timeline: Option<&'a Timeline>,
    pub clock: Clock,
    /// Colour tags of the stream.
    pub tags: &'a [String],
}

/// A track of the output that has an input of its own.
struct ExtraInput {
    /// The number of the track in the output.
    number: usize,
    origin: ExtraOrigin,
}

enum ExtraOrigin {
    /// A file of cut subtitles in the work folder.
    Subtitles(String),
    /// The source itself, so many microseconds later.
    Later(i64),
}

/// Everything that the arguments depend on.
struct Inputs {
    cut: Cut,
    kept: Vec<KeptTrack>,
    /// Inputs from number 2 on.
    extra: Vec<ExtraInput>,
    /// Converted tracks that are written later: number in the output, and microseconds.
    delays: Vec<(usize, i64)>,
    /// Whether a file of cut chapters is the last input.
    chapters: bool,
}

/// The name of the file of cut chapters in the work folder.
const CHAPTERS_FILE: &str = "000000-chapters.txt";
/// Units per second in the header of MP4 and MOV: edit lists are exact to less than a sample.
const MOVIE_TIMESCALE: u32 = 90_000;

impl Mux<'_> {
    /// Joins the segments of `work` into the file `to`; error messages name `output`.
    pub fn run(&self, work: &WorkFolder, to: &Path, output: &Path) -> Result<()> {
        let timeline = self.timeline;
        write(&work.path.join(SEGMENT_LIST), &self.list(work, timeline))?;
        let to = std::path::absolute(to).map_err(|cause| Error::Write { path: output.to_owned(), cause })?;
        let inputs = self.source.map(|video| self.inputs(video, work)).transpose()?;

        let mut command = tools::command(&self.tools.ffmpeg);
        command.current_dir(&work.path).args(words("-nostdin -hide_banner -v error -y"));
        let start = timeline.map_or(0, |timeline| self.clock.micros(timeline.time(0)));
        let offset = inputs.as_ref().map_or(0, |inputs| inputs.cut.preroll - inputs.cut.origin);
        command.arg("-itsoffset").arg(format!("{}us", start + offset));
        command.args(words("-f concat -safe 0 -i")).arg(file_url(Path::new(SEGMENT_LIST)));
        match self.source.zip(inputs.as_ref()) {
            Some((video, inputs)) => {
                command.args(self.source_inputs(video, inputs)).args(words("-map 0:v:0"));
                command.args(self.tracks(video, inputs)).args(cut_options(&inputs.cut));
            }
            None => drop(command.args(words("-map 0:v:0 -c copy"))),
        }
        command.args(self.video_tags()).args(self.container_options()).arg(file_url(&to));
        if let Some((video, inputs)) = self.source.zip(inputs.as_ref()) {
            command.args(clock_streams(video, inputs));
        }
        tools::run(command)?.map_err(|reason| Error::EncoderFailed { path: output.to_owned(), reason })
    }

    /// Decides what is read from where, and writes the files of a clip.
    fn inputs(&self, video: &Video, work: &WorkFolder) -> Result<Inputs> {
        let cut = Cut::new(video, self.clock, self.container, work.frames());
        let kept = plan_tracks(&video.tracks, self.container, self.options).kept;
        let (mut extra, mut delays) = (Vec::new(), Vec::new());
        for (number, track) in kept.iter().enumerate().map(|(i, track)| (i + 1, track)) {
            match missing_delay(self.tools, &work.path, self.container, video, track) {
                Some(micros) if track.encoder.is_some() => delays.push((number, micros)),
                Some(micros) => extra.push(ExtraInput { number, origin: ExtraOrigin::Later(micros) }),
                None => {}
            }
        }
        if cut.is_whole() {
            return Ok(Inputs { cut, kept, extra, delays, chapters: false });
        }
        let track = |kept: &KeptTrack| video.tracks.iter().find(|track| track.index == kept.index);
        let texts = kept.iter().enumerate().filter_map(|(i, kept)| Some((i + 1, track(kept)?)));
        let (numbers, texts): (Vec<_>, Vec<_>) = texts.filter(|(_, track)| text_format(track).is_some()).unzip();
        let files = cut.write_subtitles(self.tools, video, &texts, &work.path)?;
        let subtitle = |(number, file)| ExtraInput { number, origin: ExtraOrigin::Subtitles(file) };
        extra.extend(numbers.into_iter().zip(files).map(subtitle));
        write(&work.path.join(CHAPTERS_FILE), &cut.chapters(&video.chapters))?;
        Ok(Inputs { cut, kept, extra, delays, chapters: true })
    }

    /// The segments and their durations, as a script for ffmpeg's concat demuxer.
    fn list(&self, work: &WorkFolder, timeline: Option<&Timeline>) -> String {
        let time = |frame: usize| match timeline {
            Some(timeline) => timeline.time(frame as i64),
            None => frame as i64 * i64::from(self.clock.frame),
        };
        let mut list = String::from("ffconcat version 1.0\n");
        for (i, segment) in work.segments.iter().enumerate() {
            let first = i * SEGMENT_FRAMES;
            let length = self.clock.micros(time(first + segment.frames)) - self.clock.micros(time(first));
            list += &format!("file {}\nduration {length}us\n", segment.name);
        }
        list
    }

    /// Input 1 is the source, then come the inputs of single tracks, and the file of chapters is the last.
    fn source_inputs(&self, video: &Video, inputs: &Inputs) -> Vec<OsString> {
        let Cut { origin, preroll, .. } = inputs.cut;
        let mut args: Vec<OsString> = Vec::new();
        let mut add = |offset: i64, path: &Path| {
            args.extend(["-itsoffset".into(), format!("{offset}us").into()]);
            args.extend(["-protocol_whitelist", "file"].map(OsString::from));
            if path == video.path {
                args.extend(video.format_guard());
            }
            args.extend(["-i".into(), file_url(path)]);
        };
        add(preroll - origin, &video.path);
        for input in &inputs.extra {
            match &input.origin {
                ExtraOrigin::Subtitles(file) => add(preroll, Path::new(file)),
                ExtraOrigin::Later(micros) => add(preroll - origin + micros, &video.path),
            }
        }
        if inputs.chapters {
            args.extend(["-f".into(), "ffmetadata".into(), "-i".into(), file_url(Path::new(CHAPTERS_FILE))]);
        }
        args
    }

    /// Arguments that map the other tracks, each copied or converted.
    fn tracks(&self, video: &Video, inputs: &Inputs) -> Vec<String> {
        let mut args: Vec<String> = Vec::new();
        let mut codecs: Vec<String> = vec!["-c".into(), "copy".into()];
        for (number, track) in inputs.kept.iter().enumerate().map(|(i, track)| (i + 1, track)) {
            let source = video.tracks.iter().find(|source| source.index == track.index);
            let extra = inputs.extra.iter().enumerate().find(|(_, input)| input.number == number);
            let from = match extra {
                Some((at, ExtraInput { origin: ExtraOrigin::Subtitles(_), .. })) => {
                    codecs.extend(self.cut_subtitle(number, track, source));
                    format!("{}:0", at + 2)
                }
                other => {
                    let delay = inputs.delays.iter().find(|(delayed, _)| *delayed == number).map(|(_, micros)| *micros);
                    codecs.extend(cut_or_converted(number, track, source, &inputs.cut, delay));
                    format!("{}:{}", other.map_or(1, |(at, _)| at + 2), track.index)
                }
            };
            args.extend(["-map".into(), from]);
        }
        args.extend(codecs);
        let from = |wanted: bool, input: usize| if wanted { input.to_string() } else { "-1".to_owned() };
        args.extend(["-map_metadata".into(), from(self.options.metadata, 1)]);
        let chapters = if inputs.chapters { 2 + inputs.extra.len() } else { 1 };
        args.extend(["-map_chapters".into(), from(self.options.chapters, chapters)]);
        for (name, value) in video.names.iter().filter(|_| self.options.metadata) {
            args.extend(["-metadata:s:v:0".into(), format!("{name}={value}")]);
        }
        args
    }

    /// The encoder of a cut subtitle, and its names, which its file does not have.
    fn cut_subtitle(&self, number: usize, track: &KeptTrack, source: Option<&Track>) -> Vec<String> {
        let encoder = match self.container {
            Container::Matroska if source.and_then(text_format) == Some("ass") => "copy",
            Container::Matroska => "srt",
            Container::Mp4 | Container::Mov => "mov_text",
            Container::WebM => "webvtt",
        };
        let mut args = vec![format!("-c:{number}"), encoder.to_owned()];
        if self.options.metadata {
            args.extend([format!("-map_metadata:s:{number}"), format!("1:s:{}", track.index)]);
        }
        args
    }

    /// Tags of the video stream. Frames are already upright, so the rotation tag is cleared.
    fn video_tags(&self) -> Vec<String> {
        let mut args: Vec<String> =
            ["-metadata:s:v:0", "rotate=", "-disposition:v:0", "default"].map(str::to_owned).into();
        args.extend(self.tags.iter().cloned());
        args.extend(self.codec.tag(self.container).into_iter().flat_map(|tag| ["-tag:v".into(), tag.into()]));
        args
    }

    fn container_options(&self) -> Vec<String> {
        let mut text = String::from("-strict experimental -max_interleave_delta 0 -fflags +bitexact -flags +bitexact");
        if matches!(self.container, Container::Mp4 | Container::Mov) {
            let ticks = self.clock.per_second;
            text += &format!(" -video_track_timescale {ticks} -movie_timescale {MOVIE_TIMESCALE} -movflags +faststart");
        }
        text += &format!(" -f {}", self.container.format());
        text.split(' ').map(str::to_owned).collect()
    }
}

/// Arguments for the streams of the source that the output does not use. The decoder counted time with them too.
fn clock_streams(video: &Video, inputs: &Inputs) -> Vec<String> {
    let extra_of = |track: usize| inputs.extra.iter().find(|input| inputs.kept[input.number - 1].index == track);
    let is_kept = |stream: &usize| inputs.kept.iter().any(|track| track.index == *stream);
    let mut args = unused(1, video.clock_streams().filter(|stream| !is_kept(stream) || extra_of(*stream).is_some()));
    for (at, input) in inputs.extra.iter().enumerate() {
        if let ExtraOrigin::Later(_) = input.origin {
            let own = inputs.kept[input.number - 1].index;
            args.extend(unused(at + 2, video.clock_streams().filter(|stream| *stream != own)));
        }
    }
    args
}

/// Options that drop everything outside of a clip.
fn cut_options(cut: &Cut) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    if cut.starts {
        args.extend(["-copypriorss:a", "0", "-copypriorss:s", "0"].map(str::to_owned));
    }
    if cut.preroll > 0 {
        args.extend(["-output_ts_offset".into(), format!("-{}us", cut.preroll)]);
    }
    if let Some(length) = cut.length {
        args.extend(["-t".into(), format!("{}us", cut.preroll + length)]);
    }
    args
}

/// The encoder of a track that is converted, or that is cut to the sample without loss, and its filters.
fn cut_or_converted(
    number: usize,
    track: &KeptTrack,
    source: Option<&Track>,
    cut: &Cut,
    delay: Option<i64>,
) -> Vec<String> {
    let audio = track.kind == TrackKind::Audio;
    let lossless = source.map(|source| source.codec.as_str()).filter(|_| audio && !cut.is_whole());
    let lossless = lossless.filter(|codec| LOSSLESS.contains(codec));
    let Some(encoder) = track.encoder.or(lossless) else { return Vec::new() };
    let mut args = vec![format!("-c:{number}"), encoder.to_owned()];
    let trim = (audio && !cut.is_whole()).then(|| cut.audio_filter());
    let later = delay.map(|micros| format!("asetpts=PTS+{:.6}/TB", micros as f64 / 1e6));
    let filters: Vec<String> = trim.into_iter().chain(later).collect();
    if !filters.is_empty() {
        args.extend([format!("-filter:{number}"), filters.join(",")]);
    }
    if audio && track.encoder.is_some_and(|encoder| encoder != "alac") {
        args.extend([format!("-b:{number}"), "256k".into()]);
    }
    args
}

/// Audio codecs that ffmpeg decodes and encodes again without any change.
const LOSSLESS: [&str; 14] = [
    "pcm_u8",
    "pcm_s8",
    "pcm_s16le",
    "pcm_s16be",
    "pcm_s24le",
    "pcm_s24be",
    "pcm_s32le",
    "pcm_s32be",
    "pcm_f32le",
    "pcm_f32be",
    "pcm_f64le",
    "pcm_f64be",
    "flac",
    "alac",
];

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|cause| Error::Write { path: path.to_owned(), cause })
}
