//! `reseed demo`: an embedded clip and an embedded photograph, downscaled by four and restored by the embedded model,
//! beside bicubic and the originals.

use std::path::{Path, PathBuf};

use reseed::internals::memory;
use reseed::internals::quality::{self, Figures, resized};
use reseed::media::{Depth, Frame, Info, Kind, Samples, Size, Source};
use reseed::{Batching, MathMode, Report, Session, Settings, Target, models};
use serde_json::json;

use crate::bench::quality::figures_json;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::report::bytes;
use crate::vae::in_range;
use reseed_args::{ComputeArgs, DemoArgs, MathArgs};

/// The factor of downscaling.
const SCALE: usize = 4;
/// Frames of a batch.
const BATCH: usize = 5;
/// White pixels between frames side by side.
const GAP: usize = 8;

pub fn run(args: &DemoArgs) -> Result<()> {
    let output = &args.output;
    std::fs::create_dir_all(output).map_err(|e| Failure::Usage(format!("{}: {e}", output.display())))?;
    in_range(args, Path::new("embedded"), |args| &mut args.dtype, run_once)
}

fn run_once(args: &DemoArgs) -> Result<()> {
    let session = open_session(args)?;
    // Y4M is for machines without ffmpeg or without its encoder.
    let (photo, clip) = (reseed::media::demo::photo(), reseed::media::demo::clip());
    let shows = [("photo", photo, &["png"][..]), ("clip", clip, &["mp4", "y4m"])];
    for (name, source, extensions) in shows {
        let show = Show::new(&session, name, source, args)?;
        let written = show.write(&args.output, extensions)?;
        show.print(&session, &written, args.json)?;
    }
    let peak = memory::peak();
    let gpu = session.gpu_bytes();
    match args.json {
        true => say!("{}", json!({"event": "done", "command": "demo", "peak_bytes": peak, "gpu_peak_bytes": gpu})),
        false => {
            peak.iter().for_each(|peak| say!("peak memory {}", bytes(*peak)));
            gpu.iter().for_each(|peak| say!("peak GPU memory {}", bytes(*peak)));
            say!("nano is small; `reseed models pull 3b` downloads a much better model");
        }
    }
    Ok(())
}

fn open_session(args: &DemoArgs) -> Result<Session> {
    let DemoArgs { device, dtype, threads, json, .. } = args.clone();
    let precision = MathMode::default();
    let math = MathArgs { dtype, precision, threads };
    let compute = ComputeArgs { device, math, json, profile: false, tune: false };
    Ok(compute.builder(models::EMBEDDED, None)?.open()?)
}

/// A restored clip or photograph.
struct Show {
    name: &'static str,
    info: Info,
    small: Size,
    originals: Vec<Frame>,
    bicubic: Vec<Frame>,
    restored: Vec<Frame>,
    report: Report,
}

impl Show {
    fn new(session: &Session, name: &'static str, mut source: Box<dyn Source>, args: &DemoArgs) -> Result<Show> {
        let mut originals = Vec::new();
        while let Some(frame) = source.next().map_err(Failure::input)? {
            originals.push(frame);
        }
        originals.truncate(args.frames.into());
        let info = Info { frames: Some(originals.len()), ..source.info().clone() };
        let small = Size { h: info.size.h / SCALE, w: info.size.w / SCALE };
        let inputs = resized(&originals, small, Depth::Eight)?;
        let bicubic = resized(&inputs, info.size, Depth::Eight)?;
        let batching = Batching { size: BATCH.min(originals.len()), overlap: 0, uniform: false };
        let settings = Settings { target: Target::Exact(info.size), batching, ..Settings::default() };
        let mut progress = Progress::new(name, info.frames, args.json).of_session(session);
        let (restored, report) = quality::upscale(session, &inputs, Depth::Eight, &settings, &mut progress)?;
        Ok(Show { name, info, small, originals, bicubic, restored, report })
    }

    /// Writes the result, and a comparison with bicubic and the original; gives their paths.
    fn write(&self, folder: &Path, extensions: &[&str]) -> Result<[PathBuf; 2]> {
        let compared = self.bicubic.iter().zip(&self.restored).zip(&self.originals);
        let compared: Vec<Frame> = compared.map(|((a, b), c)| side_by_side(&[a, b, c])).collect();
        let result = self.write_as(&folder.join(self.name), extensions, &self.restored)?;
        let compare = self.write_as(&folder.join(format!("{}-compare", self.name)), extensions, &compared)?;
        Ok([result, compare])
    }

    /// Writes frames with the first extension that can be written.
    fn write_as(&self, stem: &Path, extensions: &[&str], frames: &[Frame]) -> Result<PathBuf> {
        let info = Info { size: frames[0].size, ..self.info.clone() };
        let create = |extension: &&str| {
            let path = stem.with_extension(extension);
            reseed::media::create(&path, &info).map(|sink| (path, sink))
        };
        let (last, others) = extensions.split_last().expect("an extension");
        let first = others.iter().find_map(|extension| create(extension).ok());
        let (path, mut sink) = first.map_or_else(|| create(last), Ok).map_err(Failure::output)?;
        frames.iter().try_for_each(|frame| sink.write(frame)).map_err(Failure::output)?;
        sink.finish().map_err(Failure::output)?;
        Ok(path)
    }

    fn print(&self, session: &Session, [result, compare]: &[PathBuf; 2], as_json: bool) -> Result<()> {
        let [bicubic, restored] = [&self.bicubic, &self.restored].map(|frames| Figures::of(frames, &self.originals));
        let (moving, seconds) = (self.info.kind != Kind::Image, self.report.times.total.as_secs_f64());
        let (size, small, frames) = (self.info.size, self.small, self.report.frames);
        if as_json {
            say!(
                "{}",
                json!({"event": "demo", "name": self.name, "device": session.device()?, "frames": frames,
                       "width": size.w, "height": size.h, "seconds": seconds, "fps": self.report.fps(),
                       "bicubic": figures_json(&bicubic, moving), "nano": figures_json(&restored, moving),
                       "output": result.to_string_lossy(), "compare": compare.to_string_lossy()})
            );
            return Ok(());
        }
        let pace = if moving { format!(", {:.2} fps", self.report.fps()) } else { String::new() };
        let count = if moving { format!("{frames} frames ") } else { String::new() };
        let device = session.device()?;
        say!("{}: {count}{small} to {size} in {seconds:.1} s{pace} on {device}", self.name);
        for (name, figures) in [("bicubic", &bicubic), ("nano", &restored)] {
            let flicker = if moving { format!(", flicker {:.2}", figures.flicker) } else { String::new() };
            let Figures { psnr, ssim, gmsd, .. } = figures;
            say!("  {name:<8} PSNR {psnr:.2} dB, SSIM {ssim:.4}, GMSD {gmsd:.4}{flicker}");
        }
        say!("  {}", result.display());
        say!("  {}: bicubic, nano, original", compare.display());
        Ok(())
    }
}

/// Frames of one size from left to right.
fn side_by_side(frames: &[&Frame]) -> Frame {
    let Size { h, w } = frames[0].size;
    let size = Size { h, w: frames.len() * (w + GAP) - GAP };
    let mut samples = vec![u8::MAX; 3 * size.pixels()];
    for (i, frame) in frames.iter().enumerate() {
        let Samples::U8(from) = &frame.samples else { unreachable!("frames of eight bits") };
        for (to, from) in samples.chunks_exact_mut(3 * size.w).zip(from.chunks_exact(3 * w)) {
            to[3 * i * (w + GAP)..][..3 * w].copy_from_slice(from);
        }
    }
    Frame { size, samples: Samples::U8(samples), alpha: None }
}
