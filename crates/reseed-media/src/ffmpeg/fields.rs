//! Finds out whether a video is interlaced: by the flags of its stream and frames, and by looking at its frames.

use std::path::Path;
use std::thread;

use super::tools::{self, Tools, file_url, words};
use crate::frame::Rate;
use crate::video::{Deinterlace, FieldAction, Parity};

/// Frames that are looked at in each place of a video.
pub(super) const SAMPLE: usize = 60;
/// No interlaced format has fewer rows.
const MIN_ROWS: usize = 80;
/// Seconds from which on a video is looked at in several places.
const LONG: f64 = 20.0;

/// What is known of the fields of a video before its frames are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags {
    /// The field order of the stream, if it is interlaced.
    pub stream: Option<Parity>,
    /// Frames of the sample with the flag of interlaced video, and all frames of the sample.
    pub frames: (usize, usize),
}

/// What ffmpeg's filter `idet` finds in the frames of a sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Looks {
    /// Frames whose top field, or whose bottom field, seems to be the earlier one.
    top: usize,
    bottom: usize,
    progressive: usize,
    frames: usize,
    /// For each frame, whether it repeats a field of the frame before it.
    repeats: Vec<bool>,
}

/// What is done with the fields of a video, and a line that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub action: FieldAction,
    pub note: Option<String>,
}

/// Decides what is done with the fields of a video.
pub(super) fn decide(
    choice: Deinterlace,
    flags: Flags,
    rate: Rate,
    looks: impl FnOnce() -> Vec<Looks>,
    is_combed: impl FnOnce() -> bool,
) -> Decision {
    let asked = |double, parity| {
        let action = FieldAction::Deinterlace { double, parity, flagged: false };
        Decision::new(action, rate, "as requested")
    };
    match choice {
        Deinterlace::Off => Decision { action: FieldAction::Keep, note: None },
        Deinterlace::InverseTelecine => Decision::new(FieldAction::InverseTelecine, rate, "as requested"),
        Deinterlace::Auto => automatic(flags, rate, &looks(), is_combed),
        Deinterlace::Bob | Deinterlace::Single => {
            let parity = flags.parity().unwrap_or_else(|| Looks::parity(&looks()));
            asked(choice == Deinterlace::Bob, parity)
        }
    }
}

fn automatic(flags: Flags, rate: Rate, samples: &[Looks], is_combed: impl FnOnce() -> bool) -> Decision {
    let sum = |of: fn(&Looks) -> usize| samples.iter().map(of).sum::<usize>();
    let combed = sum(|sample| sample.top + sample.bottom);
    let (frames, known) = (sum(|sample| sample.frames), combed + sum(|sample| sample.progressive));
    if is_video_rate(rate) && combed > 0 && samples.iter().any(Looks::is_telecined) {
        return Decision::new(FieldAction::InverseTelecine, rate, "3:2 pulldown found");
    }
    let single = |parity, flagged| FieldAction::Deinterlace { double: false, parity, flagged };
    // The fields of interlaced video always come in the same order.
    let order = sum(|sample| sample.top).max(sum(|sample| sample.bottom));
    let suspect = combed >= SAMPLE / 4 && 5 * combed >= 2 * frames && 20 * order >= 19 * combed;
    match flags.parity() {
        Some(_) if known >= SAMPLE / 2 && 20 * combed < known => {
            let note = "flagged as interlaced, but its frames are progressive: read as they are";
            Decision { action: FieldAction::Keep, note: Some(note.to_owned()) }
        }
        Some(parity) => Decision::new(single(parity, parity == Parity::Flags), rate, "flagged as interlaced"),
        None if suspect && is_combed() => {
            Decision::new(single(Looks::parity(samples), false), rate, "interlaced without a flag")
        }
        None => Decision { action: FieldAction::Keep, note: None },
    }
}

impl Flags {
    /// Which field comes first by the flags; `None` without a flag of interlaced video.
    pub fn parity(self) -> Option<Parity> {
        let (flagged, all) = self.frames;
        if 10 * flagged > all { Some(Parity::Flags) } else { self.stream }
    }
}

impl Decision {
    fn new(action: FieldAction, rate: Rate, reason: &str) -> Decision {
        let Rate { num, den } = action.rate(rate);
        let fps = (f64::from(num) / f64::from(den) * 1000.0).round() / 1000.0;
        let done = match action {
            FieldAction::Keep => "read as it is",
            FieldAction::Deinterlace { double: true, .. } => "deinterlaced, one frame per field",
            FieldAction::Deinterlace { double: false, .. } => "deinterlaced, one frame per two fields",
            FieldAction::InverseTelecine => "the frames of the film are restored",
        };
        Decision { action, note: Some(format!("{reason}: {done}, {fps} fps")) }
    }
}

/// Whether video at this rate may hold film with 3:2 pulldown.
fn is_video_rate(Rate { num, den }: Rate) -> bool {
    (f64::from(num) / f64::from(den) / (30_000.0 / 1001.0) - 1.0).abs() < 0.002
}

impl Looks {
    /// Which field comes first by the looks of the frames.
    fn parity(samples: &[Looks]) -> Parity {
        let sum = |of: fn(&Looks) -> usize| samples.iter().map(of).sum::<usize>();
        if sum(|sample| sample.top) >= sum(|sample| sample.bottom) { Parity::Top } else { Parity::Bottom }
    }

    /// Parses what the filter `metadata` prints.
    fn parse(text: &str) -> Looks {
        let mut looks = Looks::default();
        for (key, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
            match (key, value) {
                ("lavfi.idet.single.current_frame", order) => {
                    looks.frames += 1;
                    looks.top += usize::from(order == "tff");
                    looks.bottom += usize::from(order == "bff");
                    looks.progressive += usize::from(order == "progressive");
                }
                ("lavfi.idet.repeated.current_frame", kind) => looks.repeats.push(kind != "neither"),
                _ => {}
            }
        }
        looks
    }

    /// Whether two of five frames repeat a field, always the same two of a cycle.
    fn is_telecined(&self) -> bool {
        let mut cycle = [0; 5];
        self.repeats.iter().enumerate().filter(|(_, repeat)| **repeat).for_each(|(at, _)| cycle[at % 5] += 1);
        let all: usize = cycle.iter().sum();
        cycle.sort_unstable();
        let (frames, regular) = (self.repeats.len(), cycle[3] + cycle[4]);
        frames >= SAMPLE / 2 && 10 * all >= 3 * frames && 10 * all <= 5 * frames && 10 * regular >= 9 * all
    }
}

/// Looks at frames in one or several places of a video. A place that cannot be read shows nothing.
pub(super) struct Sampler<'a> {
    pub tools: &'a Tools,
    pub path: &'a Path,
    /// The index of the video stream.
    pub index: usize,
    pub rows: usize,
    /// The duration, if it is known.
    pub seconds: Option<f64>,
}

/// Columns of the frames that are looked at for combing; rows are kept.
const COLUMNS: usize = 128;

impl Sampler<'_> {
    /// Whether frames without flags may be interlaced at all.
    pub fn is_large_enough(&self) -> bool {
        self.rows >= MIN_ROWS
    }

    pub fn looks(&self) -> Vec<Looks> {
        let filter = r"idet=rep_thres=1.8,metadata=print:file=pipe\\:1";
        let printed = self.run(&["-vf", filter, "-f", "null", "-"]);
        printed.iter().map(|bytes| Looks::parse(&String::from_utf8_lossy(bytes))).collect()
    }

    /// Whether the frames are combed: where something moves, samples differ from both rows beside them rather than from
    /// both rows of the same field.
    pub fn is_combed(&self) -> bool {
        let scale = format!("scale={COLUMNS}:{}:flags=area,format=gray", self.rows);
        let planes = self.run(&["-vf", &scale, "-f", "rawvideo", "-pix_fmt", "gray", "pipe:1"]).concat();
        let frames: Vec<&[u8]> = planes.chunks_exact((COLUMNS * self.rows).max(1)).collect();
        let combed = frames.windows(2).filter(|pair| is_combed(pair[0], pair[1])).count();
        3 * combed > frames.len()
    }

    /// What ffmpeg writes to standard output for frames of each place.
    fn run(&self, output: &[&str]) -> Vec<Vec<u8>> {
        let seconds = self.seconds.filter(|seconds| *seconds >= LONG);
        let places: Vec<f64> = seconds.map_or(vec![0.0], |seconds| [0.2, 0.5, 0.8].map(|part| part * seconds).into());
        let frames = if places.len() == 1 { 2 * SAMPLE } else { SAMPLE };
        let run = |place: f64| {
            let mut command = tools::command(&self.tools.ffmpeg);
            command.args(words("-nostdin -hide_banner -v error -noautorotate -protocol_whitelist file"));
            if place > 0.0 {
                command.arg("-ss").arg(format!("{place:.3}"));
            }
            command.arg("-i").arg(file_url(self.path)).args(["-map", &format!("0:{}", self.index)]);
            command.args(["-frames:v", &frames.to_string()]).args(output);
            tools::output(command).ok().and_then(Result::ok).unwrap_or_default()
        };
        thread::scope(|scope| {
            let running: Vec<_> = places.iter().map(|place| scope.spawn(|| run(*place))).collect();
            running.into_iter().filter_map(|thread| thread.join().ok()).collect()
        })
    }
}

/// Whether a grey frame of [`COLUMNS`] columns is combed where it differs from the frame before it.
fn is_combed(before: &[u8], frame: &[u8]) -> bool {
    let rows = frame.len() / COLUMNS;
    let moves = |at: usize| before[at].abs_diff(frame[at]) > 10;
    let apart = |at: usize, distance: usize| {
        let value = |at: usize| i32::from(frame[at]);
        let (here, above, below) = (value(at), value(at - distance * COLUMNS), value(at + distance * COLUMNS));
        // Rows that differ from each other too are an edge.
        (here - above) * (here - below) > 150 && (above - below).abs() < 10
    };
    let inner = 2 * COLUMNS..rows.saturating_sub(2) * COLUMNS;
    let count = |distance: usize| inner.clone().filter(|at| moves(*at) && apart(*at, distance)).count();
    let (combed, detailed) = (count(1), count(2));
    1000 * combed > frame.len() && 2 * combed > 3 * detailed
}

#[cfg(test)]
mod tests {
    use super::*;

    const NTSC: Rate = Rate { num: 30_000, den: 1001 };
    const UNFLAGGED: Flags = Flags { stream: None, frames: (0, 60) };

    fn looks(top: usize, bottom: usize, progressive: usize) -> Looks {
        Looks { top, bottom, progressive, frames: top + bottom + progressive, repeats: Vec::new() }
    }

    #[test]
    fn two_repeated_fields_in_five_frames_are_pulldown() {
        let cycle = |text: &str, times: usize| Looks {
            repeats: text.repeat(times).chars().map(|c| c != 'n').collect(),
            ..looks(30, 0, 30)
        };
        let film = cycle("nntnb", 12);
        let action = |rate, sample: &Looks| automatic(UNFLAGGED, rate, std::slice::from_ref(sample), || false).action;
        assert_eq!(action(NTSC, &film), FieldAction::InverseTelecine);
        assert_eq!(action(Rate { num: 25, den: 1 }, &film), FieldAction::Keep, "PAL has no such pulldown");
        assert_eq!(action(NTSC, &cycle("nnnbnnntnntnnbn", 4)), FieldAction::Keep, "no cycle");
        assert_eq!(action(NTSC, &cycle("n", 60)), FieldAction::Keep);
    }

    #[test]
    fn flags_decide_unless_the_frames_are_clearly_progressive() {
        let flagged = Flags { stream: Some(Parity::Bottom), frames: (0, 60) };
        let decide = |flags, sample, combed| automatic(flags, NTSC, &[sample], || combed).action;
        let single = |parity, flagged| FieldAction::Deinterlace { double: false, parity, flagged };
        assert_eq!(decide(flagged, looks(0, 0, 0), false), single(Parity::Bottom, false));
        assert_eq!(decide(flagged, looks(0, 0, 60), false), FieldAction::Keep);
        let frames = Flags { stream: Some(Parity::Bottom), frames: (40, 60) };
        assert_eq!(decide(frames, looks(50, 0, 3), false), single(Parity::Flags, true));
        assert_eq!(decide(UNFLAGGED, looks(50, 0, 10), true), single(Parity::Top, false));
        assert_eq!(decide(UNFLAGGED, looks(50, 0, 10), false), FieldAction::Keep, "no combing");
        assert_eq!(decide(UNFLAGGED, looks(30, 20, 10), true), FieldAction::Keep, "no order");
    }

    #[test]
    fn rows_of_two_moments_are_combed() {
        // An edge that moves by eight columns from one field to the next.
        let frame = |number: usize, interlaced: bool| -> Vec<u8> {
            let edge = |row: usize| 40 + 16 * number + if interlaced && row % 2 == 1 { 8 } else { 0 };
            (0..96 * COLUMNS).map(|i| if i % COLUMNS > edge(i / COLUMNS) { 200 } else { 30 }).collect()
        };
        assert!(is_combed(&frame(0, true), &frame(1, true)));
        assert!(!is_combed(&frame(0, false), &frame(1, false)));
        assert!(!is_combed(&frame(1, true), &frame(1, true)), "nothing moves");
        let lines = |first: usize| -> Vec<u8> {
            (0..96 * COLUMNS).map(|i| if (i / COLUMNS + first).is_multiple_of(4) { 200 } else { 30 }).collect()
        };
        assert!(!is_combed(&lines(0), &lines(1)), "thin lines are no combing");
    }
}
