//! `reseed bench quality`: how close a model comes to downscaled frames, clean and degraded, beside bicubic and other
//! programs.

use reseed::internals::quality::peer::Peer;
use reseed::internals::quality::set::Set;
use reseed::internals::quality::{Figures, Measurement, Method, asks_for_low_band, write_inputs};
use reseed::{Error, models};
use serde_json::json;

use crate::failure::Result;
use crate::report::merged;
use reseed_args::bench::QualityArgs;

pub fn run(args: &QualityArgs) -> Result<()> {
    let set = Set::open(&args.data, args.limit.map(usize::from))?;
    if let Some(folder) = &args.write_inputs {
        return Ok(write_inputs(&set, folder)?);
    }
    let peers = args.results.iter().map(|(name, folder)| Ok(Peer::open(name, folder)?)).collect::<Result<_>>()?;
    let model = args.model.as_deref().unwrap_or(models::EMBEDDED);
    let session = args.compute.builder(model, None)?.open()?;
    let strength = match args.strength {
        Some(value) if !(0.0..=1.0).contains(&value) => {
            return Err(Error::OutOfUnit { setting: "strength", value }.into());
        }
        None if !asks_for_low_band(&session)? => Some(0.0),
        chosen => chosen,
    };
    let measurement = Measurement { session: &session, strength, color: args.color.into(), peers };
    let mut table = Table::default();
    for (kind, items) in [("photographs", set.photographs), ("clips", set.clips)] {
        for item in items {
            for (case, method, figures) in measurement.run(&item)? {
                table.add(kind, &case, method_name(method, model, &measurement.peers), figures);
            }
            if args.compute.json {
                say!("{}", json!({"event": "progress", "name": item.name}));
            }
        }
    }
    table.print(args.compute.json);
    Ok(())
}

fn method_name(method: Method, model: &str, peers: &[Peer]) -> String {
    match method {
        Method::Bicubic => "bicubic".into(),
        Method::Model => model.into(),
        Method::WithLowBand => format!("{model} with low band"),
        Method::Peer(i) => peers[i].name.clone(),
    }
}

/// Kind of items, case and method.
type Row = (&'static str, String, String);

/// Figures of every item by row.
#[derive(Default)]
struct Table(Vec<(Row, Vec<Figures>)>);

impl Table {
    fn add(&mut self, kind: &'static str, case: &str, method: String, figures: Figures) {
        let row = (kind, case.to_string(), method);
        match self.0.iter_mut().find(|(other, _)| *other == row) {
            Some((_, each)) => each.push(figures),
            None => self.0.push((row, vec![figures])),
        }
    }

    fn print(&self, as_json: bool) {
        if !as_json {
            say!("| | | items | PSNR-Y | PSNR | SSIM | GMSD | detail | flicker | pulse |");
            say!("|---|---|---|---|---|---|---|---|---|---|");
        }
        for ((kind, case, method), each) in &self.0 {
            let (mean, moving) = (Figures::mean(each), *kind == "clips");
            if as_json {
                let line =
                    json!({"event": "quality", "kind": kind, "case": case, "method": method, "frames": each.len()});
                say!("{}", merged(line, figures_json(&mean, moving)));
                continue;
            }
            let Figures { psnr, psnr_luma, ssim, gmsd, detail, flicker, pulse } = mean;
            let flicker = if moving { format!("{flicker:.2} | {:.1}%", 100.0 * pulse) } else { " |".into() };
            say!(
                "| {kind} {case} | {method} | {} | {psnr_luma:.2} | {psnr:.2} | {ssim:.4} | {gmsd:.4} | {detail:.3} | \
                 {flicker} |",
                each.len()
            );
        }
    }
}

/// Figures as JSON, with the flicker of a clip.
pub fn figures_json(figures: &Figures, moving: bool) -> serde_json::Value {
    let Figures { psnr, psnr_luma, ssim, gmsd, detail, flicker, pulse } = *figures;
    json!({"psnr": psnr, "psnr_luma": psnr_luma, "ssim": ssim, "gmsd": gmsd, "detail": detail,
           "flicker": moving.then_some(flicker), "pulse": moving.then_some(pulse)})
}
