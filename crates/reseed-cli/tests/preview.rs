//! A preview has the pixels of the whole job.
#![allow(clippy::unwrap_used)]

use std::fs;

use reseed::{Batching, Session, Settings, Target};
use reseed_media::{Depth, Frame, Size};

use crate::common::video::{make, times};
use crate::common::{Lab, frames};

const JOB: &str = "--model formula:tiny --device cpu --scale 1.5 --batch-size 5 --overlap 2";
const SIZE: Size = Size { h: 15, w: 22 };

/// A y4m clip of 4:2:0 with a cut: 14 frames at 25 per second, and its frames as they are read.
fn y4m(lab: &Lab) -> Vec<Frame> {
    let source = "-f lavfi -i testsrc2=size=44x30:rate=25:duration=0.32 -f lavfi -i mandelbrot=size=44x30:rate=25 \
                  -filter_complex [1]trim=duration=0.24[b];[0][b]concat,scale=22:15,format=yuv420p";
    make(&lab.path(""), source, "in.y4m");
    let clip = frames(&lab.path("in.y4m")).1;
    assert_eq!((clip.len(), clip[0].size), (14, SIZE));
    clip
}

fn settings() -> Settings {
    let batching = Batching { size: 5, overlap: 2, uniform: false };
    Settings { target: Target::Scale(1.5), batching, ..Settings::default() }
}

fn image(lab: &Lab, name: &str) -> Frame {
    let mut images = frames(&lab.path(name)).1;
    assert_eq!(images.len(), 1);
    images.remove(0)
}

#[test]
fn previews_of_y4m_are_the_frames_of_the_job() {
    let lab = Lab::new();
    let clip = y4m(&lab);
    let session = Session::builder().model("formula:tiny").device("cpu").open().unwrap();
    let whole = session.upscale_frames(clip, &settings(), &mut ()).unwrap();
    // The first, a middle and the last batch, by number and by time.
    for n in [0, 3, 6, 8, 13] {
        let place = if n % 2 == 0 { format!("--frame {n}") } else { format!("--at {}", f64::from(n) / 25.0 + 0.013) };
        let run = lab.succeed(&format!("preview in.y4m {place} -o {n}.png {JOB}"));
        assert!(run.text().starts_with(&format!("{n}.png: frame {n}, 33x23")), "{}", run.text());
        assert!(image(&lab, &format!("{n}.png")) == whole[n as usize], "frame {n}");
    }
    // The exact time of a frame, rounded down, is that frame.
    lab.succeed(&format!("preview in.y4m --at 0.04 -o exact.png {JOB} --no-shot-detection"));
    let settings = Settings { detect_shots: false, ..settings() };
    let whole = session.upscale_frames(frames(&lab.path("in.y4m")).1, &settings, &mut ()).unwrap();
    assert!(image(&lab, "exact.png") == whole[1]);
    lab.succeed(&format!("preview in.y4m --frame 9 -o skipped.png {JOB} --no-shot-detection"));
    assert!(image(&lab, "skipped.png") == whole[9]);
}

#[test]
fn previews_of_videos_are_the_frames_of_the_job() {
    let lab = Lab::new();
    let source = "-f lavfi -i testsrc2=size=32x24:rate=25:duration=0.4 -f lavfi -i mandelbrot=size=32x24:rate=25 \
                  -filter_complex [1]trim=duration=0.36[b];[0][b]concat,setpts=(N+0.02*N*N)*0.04/TB \
                  -vsync passthrough -c:v libx264 -preset ultrafast -pix_fmt yuv420p";
    make(&lab.path(""), source, "in.mkv");
    lab.succeed(&format!("upscale in.mkv whole {JOB}"));
    let (whole, times) = (frames(&lab.path("whole")).1, times(&lab.path(""), "in.mkv"));
    assert_eq!((whole.len(), times.len()), (19, 19));
    // Newer versions of ffmpeg store a duration of one millisecond for the last frame.
    for (n, after) in [(0, 2000), (7, 2000), (12, 2000), (18, 500)] {
        let at = (times[n] + after) as f64 / 1e6;
        let run = lab.succeed(&format!("preview in.mkv --at {at} -o {n}.png {JOB}"));
        assert!(run.text().starts_with(&format!("{n}.png: frame {n}, 48x36")), "{}", run.text());
        assert!(image(&lab, &format!("{n}.png")) == whole[n], "frame {n} at {at} s");
    }
    // A part of the clip has its own batches.
    let start = (times[4] - 1000) as f64 / 1e6;
    lab.succeed(&format!("upscale in.mkv part {JOB} --start {start}"));
    let at = (times[9] + 2000) as f64 / 1e6;
    lab.succeed(&format!("preview in.mkv --at {at} -o part.png {JOB} --start {start}"));
    assert!(image(&lab, "part.png") == frames(&lab.path("part")).1[5]);
}

#[test]
fn comparisons_show_the_input_beside_the_result() {
    let lab = Lab::new();
    y4m(&lab);
    let shown = |options: &str| {
        lab.succeed(&format!("preview in.y4m --frame 3 -o out.png --overwrite {options}"));
        image(&lab, "out.png")
    };
    let bicubic = shown("--model identity --scale 1.5 --color none").to_unit();
    let result = shown(JOB);
    let unit = result.to_unit();
    let rows = |frame: &[f32], w: usize| frame.chunks_exact(3 * w).map(<[f32]>::to_vec).collect::<Vec<_>>();
    let Size { h, w } = result.size;
    let side = shown(&format!("{JOB} --compare side"));
    assert_eq!(side.size, Size { h, w: 2 * w });
    for ((side, before), after) in rows(&side.to_unit(), 2 * w).iter().zip(rows(&bicubic, w)).zip(rows(&unit, w)) {
        assert!(side[..3 * w] == before[..] && side[3 * w..] == after[..]);
    }
    let wipe = shown(&format!("{JOB} --compare wipe"));
    assert_eq!(wipe.size, result.size);
    let half = w / 2;
    for ((wipe, before), after) in rows(&wipe.to_unit(), w).iter().zip(rows(&bicubic, w)).zip(rows(&unit, w)) {
        assert!(wipe[..3 * (half - 1)] == before[..3 * (half - 1)], "the input is on the left");
        assert!(wipe[3 * (half - 1)..3 * (half + 1)] == [1.0; 6], "a white line is between them");
        assert!(wipe[3 * (half + 1)..] == after[3 * (half + 1)..], "the result is on the right");
    }
}

#[test]
fn deep_video_gives_a_deep_image_and_json_says_which_frame() {
    let lab = Lab::new();
    let source = "-f lavfi -i testsrc2=size=16x16:rate=25:duration=0.2 -pix_fmt yuv444p10le -c:v ffv1";
    make(&lab.path(""), source, "in.mkv");
    let run = lab.succeed(&format!("preview in.mkv --frame 4 -o out.png --json {JOB}"));
    let done = &run.events()[0];
    assert_eq!((&done["event"], &done["frame"], &done["width"]), (&"done".into(), &4.into(), &24.into()));
    assert_eq!(image(&lab, "out.png").depth(), Depth::Sixteen);
}

#[test]
fn wrong_requests_are_one_line_and_write_nothing() {
    let lab = Lab::new();
    y4m(&lab);
    lab.write_frames("still.png", SIZE, 1);
    fs::write(lab.path("there.png"), "something").unwrap();
    let before = lab.names();
    let cases = [
        (
            format!("in.y4m --at 0.57 -o a.png {JOB}"),
            2,
            "in.y4m: 0.570 s: beyond the end; the clip has 14 frames and is 0.560 s long",
        ),
        (format!("in.y4m --frame 14 -o a.png {JOB}"), 2, "in.y4m: frame 14: beyond the end; the clip has 14 frames"),
        (
            format!("in.y4m --frame 14 -o a.png {JOB} --no-shot-detection"),
            2,
            "in.y4m: frame 14: beyond the end; the clip has 14 frames",
        ),
        (format!("still.png --at 0 -o a.png {JOB}"), 2, "still.png: a still image; use `reseed image`"),
        (format!("in.y4m --at 0 -o there.png {JOB}"), 2, "there.png: already exists"),
        (format!("in.y4m --at 0 -o a.mp4 {JOB}"), 2, "a.mp4: "),
        (format!("nothing.mkv --at 0 -o a.png {JOB}"), 3, "nothing.mkv: "),
    ];
    for (args, code, expected) in cases {
        let run = lab.run(&format!("preview {args}"));
        assert_eq!(run.code, Some(code), "{args}: {}", run.stderr);
        let line = run.stderr.strip_prefix("reseed: ").unwrap_or_else(|| panic!("{}", run.stderr));
        assert!(line.starts_with(expected) && line.lines().count() == 1, "{args}: {line}");
        assert_eq!(lab.names(), before, "{args}");
    }
    assert_eq!(fs::read_to_string(lab.path("there.png")).unwrap(), "something");
    let run = lab.run(&format!("preview in.y4m -o a.png {JOB}"));
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("--at <TIME>|--frame <N>"), "{}", run.stderr);
}
