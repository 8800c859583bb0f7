//! `reseed demo`: an embedded clip and an embedded photograph, made four times smaller and brought back by the embedded model,
//! beside bicubic and the originals.

use std::path::{Path, PathBuf};

use reseed::{Color, Report, Settings, memory};
use reseed_media::{Depth, Frame, Info, Kind, Samples, Size, Source};
use reseed_model::nano;
use serde_json::json;

use crate::args::{ComputeArgs, DemoArgs};
use crate::ending;
use crate::engine;
use crate::failure::{Failure, Result};
use crate::job::Watch;
use crate::progress::Progress;
use crate::report::bytes;
use crate::trial::{Engine, Figures, resized};

/// How much smaller the originals are made.
const SCALE: usize = 4;
/// Frames of a batch.
const BATCH: usize = 5;
/// White pixels between pictures side by side.
const GAP: usize = 8;

pub fn run(args: &DemoArgs) -> Result<()> {
    let output = &args.output;
    std::fs::create_dir_all(output).map_err(|e| Failure::Usage(format!("{}: {e}", output.display())))?;
    engine::in_range(args, Path::new("embedded"), |args| &mut args.dtype, once)
}

fn once(args: &DemoArgs) -> Result<()> {
    ending::catch_ctrl_c();
    let engine = engine(args)?;
    // What needs ffmpeg, and an encoder in it, has something that does not behind it.
    let (photo, clip) = (reseed_media::demo::photo(), reseed_media::demo::clip());
    let shows = [("photo", photo, &["png"][..]), ("clip", clip, &["mp4", "y4m"])];
    for (name, source, extensions) in shows {
        let show = Show::new(&engine, name, source, args.json)?;
        let written = show.write(&args.output, extensions)?;
        show.tell(&engine, &written, args.json);
    }
    let peak = memory::peak();
    let card = engine.devices.device.card.as_ref().map(|card| card.peak_bytes());
    match args.json {
        true => say!("{}", json!({"event": "done", "command": "demo", "peak_bytes": peak, "card_peak_bytes": card})),
        false => {
            peak.iter().for_each(|peak| say!("peak memory {}", bytes(*peak)));
            card.iter().for_each(|peak| say!("card: {} of its memory", bytes(*peak)));
            say!("nano is small; `reseed models pull 3b` gets a model that makes far more of a picture");
        }
    }
    Ok(())
}

fn engine(args: &DemoArgs) -> Result<Engine> {
    let DemoArgs { device, dtype, threads, json, .. } = args.clone();
    Engine::new(nano::NAME, &ComputeArgs { device, dtype, threads, json, profile: false, tune: false })
}

/// One of the two, restored.
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
    fn new(engine: &Engine, name: &'static str, mut source: Box<dyn Source>, json: bool) -> Result<Show> {
        let info = source.info().clone();
        let mut originals = Vec::new();
        while let Some(frame) = source.next().map_err(Failure::input)? {
            originals.push(frame);
        }
        let small = Size { h: info.size.h / SCALE, w: info.size.w / SCALE };
        let inputs = resized(&originals, small, Depth::Eight)?;
        let bicubic = resized(&inputs, info.size, Depth::Eight)?;
        let settings = Settings { low_band: engine.weights.low_band()?, color: Color::None, ..Settings::default() };
        let progress = Progress::new(name, info.frames, json).on(engine.devices.device.card.clone());
        let ready = engine.ready(info.size, BATCH.min(originals.len()))?;
        let (restored, report) = ready.restore(&inputs, Depth::Eight, settings, &mut Watch::plain(progress))?;
        Ok(Show { name, info, small, originals, bicubic, restored, report })
    }

    /// Writes the result, and it between what it is to be compared with; gives their names.
    fn write(&self, folder: &Path, extensions: &[&str]) -> Result<[PathBuf; 2]> {
        let compared = self.bicubic.iter().zip(&self.restored).zip(&self.originals);
        let compared: Vec<Frame> = compared.map(|((a, b), c)| side_by_side(&[a, b, c])).collect();
        let result = self.write_as(&folder.join(self.name), extensions, &self.restored)?;
        let compare = self.write_as(&folder.join(format!("{}-compare", self.name)), extensions, &compared)?;
        Ok([result, compare])
    }

    /// Writes frames under the first of these extensions that can be written.
    fn write_as(&self, stem: &Path, extensions: &[&str], frames: &[Frame]) -> Result<PathBuf> {
        let info = Info { size: frames[0].size, ..self.info.clone() };
        let create = |extension: &&str| {
            let path = stem.with_extension(extension);
            reseed_media::create(&path, &info).map(|sink| (path, sink))
        };
        let (last, others) = extensions.split_last().expect("an extension");
        let first = others.iter().find_map(|extension| create(extension).ok());
        let (path, mut sink) = first.map_or_else(|| create(last), Ok).map_err(Failure::output)?;
        frames.iter().try_for_each(|frame| sink.write(frame)).map_err(Failure::output)?;
        sink.finish().map_err(Failure::output)?;
        Ok(path)
    }

    fn tell(&self, engine: &Engine, [result, compare]: &[PathBuf; 2], as_json: bool) {
        let [bicubic, restored] = [&self.bicubic, &self.restored].map(|frames| Figures::of(frames, &self.originals));
        let (moving, seconds) = (self.info.kind != Kind::Image, self.report.times.total.as_secs_f64());
        let (size, small, frames) = (self.info.size, self.small, self.report.frames);
        if as_json {
            say!(
                "{}",
                json!({"event": "demo", "name": self.name, "device": engine.devices.device.ops.name(), "frames": frames,
                       "width": size.w, "height": size.h, "seconds": seconds, "fps": self.report.fps(),
                       "bicubic": bicubic.json(moving), "nano": restored.json(moving),
                       "output": result.to_string_lossy(), "compare": compare.to_string_lossy()})
            );
            return;
        }
        let pace = if moving { format!(", {:.2} fps", self.report.fps()) } else { String::new() };
        let count = if moving { format!("{frames} frames ") } else { String::new() };
        let device = engine.devices.device.ops.name();
        say!("{}: {count}{small} to {size} in {seconds:.1} s{pace} on {device}", self.name);
        for (name, figures) in [("bicubic", &bicubic), ("nano", &restored)] {
            let flicker = if moving { format!(", flicker {:.2}", figures.flicker) } else { String::new() };
            let Figures { psnr, ssim, gmsd, .. } = figures;
            say!("  {name:<8} PSNR {psnr:.2} dB, SSIM {ssim:.4}, GMSD {gmsd:.4}{flicker}");
        }
        say!("  {}", result.display());
        say!("  {}: bicubic, nano, original", compare.display());
    }
}

/// Pictures of one size from left to right.
fn side_by_side(pictures: &[&Frame]) -> Frame {
    let Size { h, w } = pictures[0].size;
    let size = Size { h, w: pictures.len() * (w + GAP) - GAP };
    let mut samples = vec![u8::MAX; 3 * size.pixels()];
    for (i, picture) in pictures.iter().enumerate() {
        let Samples::U8(from) = &picture.samples else { unreachable!("pictures of eight bits") };
        for (to, from) in samples.chunks_exact_mut(3 * size.w).zip(from.chunks_exact(3 * w)) {
            to[3 * i * (w + GAP)..][..3 * w].copy_from_slice(from);
        }
    }
    Frame { size, samples: Samples::U8(samples), alpha: None }
}
