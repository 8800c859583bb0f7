//! Joins the segments and copies the other tracks of the source. Only tracks that the container cannot hold are
//! encoded.

use std::fs;
use std::path::Path;

use super::tools::{self, Tools, file_url, words};
use super::work_folder::WorkFolder;
use crate::error::{Error, Result};
use crate::video::{
    Clock, Codec, Container, Options, SEGMENT_FRAMES, SEGMENT_LIST, Timeline, TrackKind, Video, plan_tracks,
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

impl Mux<'_> {
    /// Joins the segments of `work` into the file `to`; error messages name `output`.
    pub fn run(&self, work: &WorkFolder, to: &Path, output: &Path) -> Result<()> {
        let timeline = self.timeline;
        let list = work.path.join(SEGMENT_LIST);
        fs::write(&list, self.list(work, timeline)).map_err(|cause| Error::Write { path: list, cause })?;
        let to = std::path::absolute(to).map_err(|cause| Error::Write { path: output.to_owned(), cause })?;

        let mut command = tools::command(&self.tools.ffmpeg);
        command.current_dir(&work.path).args(words("-nostdin -hide_banner -v error -y"));
        let start = timeline.map_or(0, |timeline| self.clock.micros(timeline.time(0)));
        command.arg("-itsoffset").arg(format!("{start}us"));
        command.args(words("-f concat -safe 0 -i")).arg(file_url(Path::new(SEGMENT_LIST)));
        command.args(self.source_input()).args(words("-map 0:v:0")).args(self.tracks());
        command.args(self.video_tags()).args(self.container_options()).arg(file_url(&to));
        tools::run(command)?.map_err(|reason| Error::EncoderFailed { path: output.to_owned(), reason })
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

    fn source_input(&self) -> Vec<std::ffi::OsString> {
        let Some(video) = self.source else { return Vec::new() };
        let mut input: Vec<std::ffi::OsString> = vec!["-protocol_whitelist".into(), "file".into()];
        for (option, time) in [("-ss", video.clip.start), ("-to", video.clip.end)] {
            if let Some(time) = time {
                input.extend([option.into(), format!("{}us", time.as_micros()).into()]);
            }
        }
        input.extend(["-i".into(), file_url(&video.path)]);
        input
    }

    /// Arguments that map the other tracks, each copied or converted.
    fn tracks(&self) -> Vec<String> {
        let Some(video) = self.source else { return ["-c", "copy"].map(str::to_owned).into() };
        let kept = plan_tracks(&video.tracks, self.container, self.options).kept;
        let mut args: Vec<String> = Vec::new();
        for (index, ..) in &kept {
            args.extend(["-map".into(), format!("1:{index}")]);
        }
        args.extend(["-c".into(), "copy".into()]);
        for (i, (_, kind, encoder)) in kept.iter().enumerate() {
            if let Some(encoder) = encoder {
                args.extend([format!("-c:{}", i + 1), (*encoder).to_owned()]);
                if *kind == TrackKind::Audio && *encoder != "alac" {
                    args.extend([format!("-b:{}", i + 1), "256k".into()]);
                }
            }
        }
        let from = |wanted: bool| if wanted { "1" } else { "-1" }.to_owned();
        args.extend(["-map_metadata".into(), from(self.options.metadata)]);
        args.extend(["-map_chapters".into(), from(self.options.chapters)]);
        for (name, value) in video.names.iter().filter(|_| self.options.metadata) {
            args.extend(["-metadata:s:v:0".into(), format!("{name}={value}")]);
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
            text += &format!(" -video_track_timescale {} -movflags +faststart", self.clock.per_second);
        }
        text += &format!(" -f {}", self.container.format());
        text.split(' ').map(str::to_owned).collect()
    }
}
