//! `reseed bench quality`: how near a model comes to pictures that were made smaller, clean and degraded, beside bicubic.

mod degrade;
mod set;

use reseed::batch::Batching;
use reseed::{Color, Geometry, Settings, Target, low_band};
use reseed_media::{Depth, Frame, Size};
use serde_json::json;

use crate::args::bench::QualityArgs;
use crate::failure::Result;
use crate::trial::{Engine, Figures, Ready, resized};
use crate::upscale;
use set::{Item, Set};

/// Frames of a batch.
const BATCH: usize = 5;
/// How much smaller the pictures are made.
const SCALES: [usize; 2] = [2, 4];
/// All sides are multiples of it, so that every scale divides them.
const SIDE: usize = 4;
/// Of results, so that rounding them costs nothing.
const DEPTH: Depth = Depth::Sixteen;

pub fn run(args: &QualityArgs) -> Result<()> {
    let set = Set::open(&args.data, args.limit.map(usize::from))?;
    let model = args.model.as_deref().unwrap_or(reseed_model::nano::NAME);
    let engine = Engine::new(model, &args.compute)?;
    let own = engine.weights.low_band()?;
    let band = match args.low_band {
        Some(strength) => upscale::low_band(strength)?,
        None if own == 0.0 => 1.0,
        None => own,
    };
    let mut table = Table::default();
    for (kind, items) in [("photographs", set.photographs), ("clips", set.clips)] {
        for item in items {
            Case { engine: &engine, band, color: args.color.into() }.measure(kind, &item, &mut table)?;
            if args.compute.json {
                say!("{}", json!({"event": "progress", "name": item.name}));
            }
        }
    }
    table.tell(model, args.compute.json);
    Ok(())
}

/// What every picture goes through.
struct Case<'a> {
    engine: &'a Engine,
    /// Strength of the low band.
    band: f32,
    color: Color,
}

impl Case<'_> {
    fn measure(&self, kind: &'static str, item: &Item, table: &mut Table) -> Result<()> {
        let originals = item.frames.iter().map(cropped).collect::<Vec<Frame>>();
        let (size, frames) = (originals[0].size, originals.len());
        let ready = self.engine.ready(size, BATCH.min(frames))?;
        let reconstructed = ready.reconstruct(&originals, DEPTH, self.settings())?;
        table.add(kind, "reconstruction", Method::Model, Figures::of(&reconstructed, &originals));
        for scale in SCALES {
            let small = Size { h: size.h / scale, w: size.w / scale };
            let clean = resized(&originals, small, Depth::Eight)?;
            let degraded = degrade::frames(&originals, scale)?;
            for (case, inputs) in [(format!("{scale}x"), clean), (format!("{scale}x degraded"), degraded)] {
                let figures = self.restore(&ready, &inputs, &originals)?;
                figures.into_iter().for_each(|(method, figures)| table.add(kind, &case, method, figures));
            }
        }
        Ok(())
    }

    fn restore(&self, ready: &Ready, inputs: &[Frame], originals: &[Frame]) -> Result<[(Method, Figures); 3]> {
        let bicubic = resized(inputs, originals[0].size, DEPTH)?;
        let (restored, _) = ready.restore(inputs, DEPTH, self.settings(), &mut ())?;
        let given = self.given_back(&restored, inputs)?;
        let results = [(Method::Bicubic, bicubic), (Method::Model, restored), (Method::WithLowBand, given)];
        Ok(results.map(|(method, frames)| (method, Figures::of(&frames, originals))))
    }

    /// Results with the low band of their inputs, as the pipeline would have made them.
    fn given_back(&self, restored: &[Frame], inputs: &[Frame]) -> Result<Vec<Frame>> {
        let size = restored[0].size;
        let geometry = Geometry::new(inputs[0].size, Target::Exact(size), None)?;
        let signed = |frame: &Frame| frame.to_unit().iter().map(|value| 2.0 * value - 1.0).collect();
        let mut pictures: Vec<Vec<f32>> = restored.iter().map(signed).collect();
        low_band::apply(self.band, &mut pictures, inputs, &geometry);
        let unit = |picture: &Vec<f32>| picture.iter().map(|value| 0.5 * value + 0.5).collect::<Vec<f32>>();
        Ok(pictures.iter().map(|picture| Frame::from_unit(size, &unit(picture), DEPTH)).collect())
    }

    fn settings(&self) -> Settings {
        let batching = Batching { size: BATCH, overlap: 0, uniform: false };
        Settings { batching, color: self.color, detect_shots: false, ..Settings::default() }
    }
}

/// A frame without what keeps its sides from being multiples.
fn cropped(frame: &Frame) -> Frame {
    let Size { h, w } = frame.size;
    let size = Size { h: h / SIDE * SIDE, w: w / SIDE * SIDE };
    let unit = frame.to_unit();
    let rows = unit.chunks_exact(3 * w).take(size.h).flat_map(|row| &row[..3 * size.w]);
    Frame::from_unit(size, &rows.copied().collect::<Vec<f32>>(), frame.depth())
}

/// What brings pictures back.
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

/// Kind of pictures, case and method.
type Row = (&'static str, String, Method);

/// Figures of every picture, by row, in the order in which they came.
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

    fn tell(&self, model: &str, as_json: bool) {
        if !as_json {
            say!("| | | pictures | PSNR-Y | PSNR | SSIM | GMSD | flicker |");
            say!("|---|---|---|---|---|---|---|---|");
        }
        for ((kind, case, method), each) in &self.0 {
            let (mean, moving, method) = (Figures::mean(each), *kind == "clips", method.name(model));
            if as_json {
                let mut line =
                    json!({"event": "quality", "kind": kind, "case": case, "method": method, "pictures": each.len()});
                let figures = mean.json(moving);
                line.as_object_mut().expect("an object").extend(figures.as_object().expect("an object").clone());
                say!("{line}");
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
