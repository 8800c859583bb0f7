//! The size of an output is the requested one, unless its format needs even sides.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use reseed::{Event, Existing, Job, JobSpec, Observer, Session, Settings, Target, Warning};
use reseed_media::video::Options;
use reseed_media::{Depth, Frame, Info, Kind, Size};

const SIZE: Size = Size { h: 5, w: 7 };

fn session() -> Session {
    Session::builder().model("formula:tiny").device("cpu").threads(1).open().unwrap()
}

/// Writes two frames of 7x5, or an image.
fn write_input(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let sample = reseed_media::sample();
    let kind = if name.ends_with("png") { Kind::Image } else { sample.info().kind.clone() };
    let count = if kind == Kind::Image { 1 } else { 2 };
    let info = Info { size: SIZE, frames: Some(count), kind, ..sample.info().clone() };
    let mut sink = reseed_media::create(&path, &info).unwrap();
    let unit: Vec<f32> = (0..3 * SIZE.pixels()).map(|i| i as f32 / 105.0).collect();
    (0..count).for_each(|_| sink.write(&Frame::from_unit(SIZE, &unit, Depth::Eight)).unwrap());
    sink.finish().unwrap();
    path
}

#[derive(Default)]
struct Warnings(Vec<Warning>);

impl Observer for Warnings {
    fn event(&mut self, event: &Event) {
        if let Event::Warning(warning) = event {
            self.0.push(warning.clone());
        }
    }
}

fn upscale(spec: JobSpec) -> (Size, Vec<Warning>) {
    let (output, mut warnings) = (spec.output.clone(), Warnings::default());
    Job::open(spec).unwrap().run(&session(), &mut warnings).unwrap();
    (reseed_media::open(&output).unwrap().info().size, warnings.0)
}

#[test]
fn odd_sides_stay_where_the_format_allows_them() {
    let folder = temp_dir::TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (image, video) = (write_input(folder.path(), "in.png"), write_input(folder.path(), "in.y4m"));
    let settings = Settings { target: Target::Scale(3.0), ..Settings::default() };
    let (odd, even) = (Size { h: 15, w: 21 }, Size { h: 14, w: 20 });
    assert_eq!(upscale(JobSpec::new(&image, path("a.png"), settings.clone())).0, odd);
    assert_eq!(upscale(JobSpec::new(&video, path("b.y4m"), settings.clone())).0, odd);
    assert_eq!(upscale(JobSpec::new(&image, path("c.jpg"), settings.clone())).0, odd);
    if cfg!(feature = "ffmpeg") {
        assert_eq!(upscale(JobSpec::new(&video, path("d.mp4"), settings)).0, even);
    }
    let (source, lossless) = (reseed_media::open(&video).unwrap(), Some("ffv1".parse().unwrap()));
    let even = |name: &str, codec| {
        let options = Options { codec, ..Options::default() };
        reseed_media::needs_even_sides(Path::new(name), source.info(), &options)
    };
    assert!(even("a.mp4", None) && even("a.webm", None) && even("a.mkv", Some("prores".parse().unwrap())));
    assert!(!even("a.mkv", lossless) && !even("a.y4m", None) && !even("a.png", None) && !even("folder", None));
}

#[test]
fn a_job_enlarges_unless_told_and_warns_where_it_shrinks() {
    let folder = temp_dir::TempDir::new().unwrap();
    let (input, output) = (write_input(folder.path(), "in.y4m"), folder.path().join("out.y4m"));
    let spec = |target: Option<Target>| {
        let settings = Settings { target: target.unwrap_or(Settings::default().target), ..Settings::default() };
        JobSpec { existing: Existing::Overwrite, ..JobSpec::new(&input, &output, settings) }
    };
    assert_eq!(upscale(spec(None)), (Size { h: 10, w: 14 }, Vec::new()));
    assert_eq!(upscale(spec(Some(Target::Scale(1.0)))), (SIZE, Vec::new()));
    let to = Size { h: 4, w: 5 };
    assert_eq!(upscale(spec(Some(Target::ShortSide(4)))), (to, vec![Warning::Shrinks { from: SIZE, to }]));
}
