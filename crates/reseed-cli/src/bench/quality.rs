//! `reseed bench quality`: how close a model comes to downscaled frames, clean and degraded, beside bicubic.

mod set;

use reseed::internals::low_band;
use reseed::internals::quality::{self, Figures, degrade, resized};
use reseed::media::{Depth, Frame, Size};
use reseed::{Batching, Color, Error, Geometry, Session, Settings, Target, models};
use serde_json::json;

use crate::args::bench::QualityArgs;
use crate::failure::Result;
use crate::report::merged;
use set::{Item, Set};

/// Frames of a batch.
const BATCH: usize = 5;
/// Factors of downscaling.
const SCALES: [usize; 2] = [2, 4];
/// All sides are multiples of it, so that every factor divides them.
const SIDE: usize = 4;
/// Depth of results, so that rounding costs nothing.
const DEPTH: Depth = Depth::Sixteen;

pub fn run(args: &QualityArgs) -> Result<()> {
    let set = Set::open(&args.data, args.limit.map(usize::from))?;
    let model = args.model.as_deref().unwrap_or(models::EMBEDDED);
    let session = args.compute.builder(model, None)?.open()?;
    let own = quality::low_band(&session)?;
    let band = match args.low_band {
        Some(value) if !(0.0..=1.0).contains(&value) => {
            return Err(Error::OutOfUnit { setting: "low band", value }.into());
        }
        Some(strength) => strength,
        None if own == 0.0 => 1.0,
        None => own,
    };
    let mut table = Table::default();
    for (kind, items) in [("photographs", set.photographs), ("clips", set.clips)] {
        for item in items {
            Case { session: &session, band, color: args.color.into() }.measure(kind, &item, &mut table)?;
            if args.compute.json {
                say!("{}", json!({"event": "progress", "name": item.name}));
            }
        }
    }
    table.print(model, args.compute.json);
    Ok(())
}

/// The measurement of one item.
struct Case<'a> {
    session: &'a Session,
    /// Strength of the low band.
    band: f32,
    color: Color,
}

impl Case<'_> {
    fn measure(&self, kind: &'static str, item: &Item, table: &mut Table) -> Result<()> {
        let originals = item.frames.iter().map(cropped).collect::<Vec<Frame>>();
        let size = originals[0].size;
        let settings = self.settings(size, originals.len());
        let reconstructed = quality::reconstruct(self.session, &originals, DEPTH, &settings)?;
        table.add(kind, "reconstruction", Method::Model, Figures::of(&reconstructed, &originals));
        for scale in SCALES {
            let small = Size { h: size.h / scale, w: size.w / scale };
            let clean = resized(&originals, small, Depth::Eight)?;
            let degraded = degrade::frames(&originals, scale);
            for (case, inputs) in [(format!("{scale}x"), clean), (format!("{scale}x degraded"), degraded)] {
                let figures = self.restore(&settings, &inputs, &originals)?;
                figures.into_iter().for_each(|(method, figures)| table.add(kind, &case, method, figures));
            }
        }
        Ok(())
    }

    fn restore(&self, settings: &Settings, inputs: &[Frame], originals: &[Frame]) -> Result<[(Method, Figures); 3]> {
        let bicubic = resized(inputs, originals[0].size, DEPTH)?;
        let (restored, _) = quality::upscale(self.session, inputs, DEPTH, settings, &mut ())?;
        let blended = self.with_low_band(&restored, inputs)?;
        let results = [(Method::Bicubic, bicubic), (Method::Model, restored), (Method::WithLowBand, blended)];
        Ok(results.map(|(method, frames)| (method, Figures::of(&frames, originals))))
    }

    /// Results with the low band of their inputs, as the pipeline makes them.
    fn with_low_band(&self, restored: &[Frame], inputs: &[Frame]) -> Result<Vec<Frame>> {
        let size = restored[0].size;
        let geometry = Geometry::new(inputs[0].size, Target::Exact(size), None)?;
        let signed = |frame: &Frame| frame.to_unit().iter().map(|value| 2.0 * value - 1.0).collect();
        let mut frames: Vec<Vec<f32>> = restored.iter().map(signed).collect();
        low_band::apply(self.band, &mut frames, inputs, &geometry);
        let unit = |frame: &Vec<f32>| frame.iter().map(|value| 0.5 * value + 0.5).collect::<Vec<f32>>();
        Ok(frames.iter().map(|frame| Frame::from_unit(size, &unit(frame), DEPTH)).collect())
    }

    /// For results of a size.
    fn settings(&self, size: Size, frames: usize) -> Settings {
        let batching = Batching { size: BATCH.min(frames), overlap: 0, uniform: false };
        let (target, color, low_band) = (Target::Exact(size), Some(self.color), Some(0.0));
        Settings { target, batching, color, low_band, detect_shots: false, ..Settings::default() }
    }
}

/// A frame cropped to sides that are multiples.
fn cropped(frame: &Frame) -> Frame {
    let Size { h, w } = frame.size;
    let size = Size { h: h / SIDE * SIDE, w: w / SIDE * SIDE };
    let unit = frame.to_unit();
    let rows = unit.chunks_exact(3 * w).take(size.h).flat_map(|row| &row[..3 * size.w]);
    Frame::from_unit(size, &rows.copied().collect::<Vec<f32>>(), frame.depth())
}

/// What restores frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Bicubic,
    Model,
    WithLowBand,
}

impl Method {
    fn name(self, model: &str) -> String {
        match self {
            Method::Bicubic => "bicubic".into(),
            Method::Model => model.into(),
            Method::WithLowBand => format!("{model} with low band"),
        }
    }
}

/// Kind of items, case and method.
type Row = (&'static str, String, Method);

/// Figures of every item by row.
#[derive(Default)]
struct Table(Vec<(Row, Vec<Figures>)>);

impl Table {
    fn add(&mut self, kind: &'static str, case: &str, method: Method, figures: Figures) {
        let row = (kind, case.to_string(), method);
        match self.0.iter_mut().find(|(other, _)| *other == row) {
            Some((_, each)) => each.push(figures),
            None => self.0.push((row, vec![figures])),
        }
    }

    fn print(&self, model: &str, as_json: bool) {
        if !as_json {
            say!("| | | items | PSNR-Y | PSNR | SSIM | GMSD | flicker |");
            say!("|---|---|---|---|---|---|---|---|");
        }
        for ((kind, case, method), each) in &self.0 {
            let (mean, moving, method) = (Figures::mean(each), *kind == "clips", method.name(model));
            if as_json {
                let line =
                    json!({"event": "quality", "kind": kind, "case": case, "method": method, "pictures": each.len()});
                say!("{}", merged(line, figures_json(&mean, moving)));
                continue;
            }
            let Figures { psnr, psnr_luma, ssim, gmsd, flicker } = mean;
            let flicker = if moving { format!("{flicker:.2}") } else { String::new() };
            say!(
                "| {kind} {case} | {method} | {} | {psnr_luma:.2} | {psnr:.2} | {ssim:.4} | {gmsd:.4} | {flicker} |",
                each.len()
            );
        }
    }
}

/// Figures as JSON, with the flicker of a clip.
pub fn figures_json(figures: &Figures, moving: bool) -> serde_json::Value {
    let Figures { psnr, psnr_luma, ssim, gmsd, flicker } = *figures;
    json!({"psnr": psnr, "psnr_luma": psnr_luma, "ssim": ssim, "gmsd": gmsd, "flicker": moving.then_some(flicker)})
}
