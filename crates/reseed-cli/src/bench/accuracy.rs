//! `reseed bench accuracy`: how far the networks in every mode of `--precision` are from f32, on this machine.

mod transformer;

use reseed::internals::model::SliceData;
use reseed::internals::model::plan::slices;
use reseed::internals::model::weights::formula::uniform;
use reseed::internals::{self, CoderClip, ComputeOptions, Direction, load_coder, vae_weights};
use reseed::media::{Depth, Samples};
use reseed::{EncodedClip, Hw, MathMode, Precision, Session, VaeSettings, models};
use serde_json::json;

use crate::failure::{Failure, Result};
use reseed_args::ComputeArgs;
use reseed_args::bench::AccuracyArgs;

/// Size and number of the decoded frames.
const SIZE: Hw = Hw { h: 96, w: 128 };
const FRAMES: usize = 9;
/// Least PSNR of a mode in f16 against f32. Other types have no gate.
const GATES: [(MathMode, f64); 4] =
    [(MathMode::Reference, 65.0), (MathMode::Exact, 65.0), (MathMode::Fast, 40.0), (MathMode::Int8, 40.0)];

/// A decoder, and the range of its values, which PSNR refers to.
struct Case {
    name: &'static str,
    range: f64,
    decode: fn(&ComputeArgs, Option<Precision>, MathMode) -> Result<Decoded>,
}

/// Values, and the type that they were computed in.
type Decoded = (Vec<f32>, Precision);

const CASES: [Case; 2] = [
    Case { name: "formula:full", range: 4.0, decode: decode_formula },
    Case { name: models::EMBEDDED, range: 1.0, decode: decode_photograph },
];

pub fn run(args: &AccuracyArgs) -> Result<()> {
    let mut failed = Vec::new();
    for Case { name, range, decode } in CASES {
        let (wide, _) = decode(&args.compute, Some(Precision::F32), MathMode::Reference)?;
        for (mode, gate) in GATES {
            let (values, dtype) = decode(&args.compute, args.compute.math.dtype, mode)?;
            let (psnr, gate) = (psnr(&wide, &values, range), (dtype == Precision::F16).then_some(gate));
            if args.compute.json {
                say!(
                    "{}",
                    json!({"event": "accuracy", "model": name, "precision": mode.to_string(),
                           "dtype": dtype.to_string(), "psnr": psnr, "gate": gate})
                );
            } else {
                let least = gate.map_or(String::new(), |gate| format!(", at least {gate:.0} dB"));
                say!("decode {name} {dtype}, --precision {mode}: {psnr:.1} dB against f32{least}");
            }
            if gate.is_some_and(|gate| psnr < gate) {
                failed.push(format!("{name} --precision {mode}"));
            }
        }
    }
    failed.extend(transformer::run(&args.compute)?);
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(format!("beyond the gate: {}", failed.join(", ")))),
    }
}

/// The peak signal-to-noise ratio in dB; 200 for equal values.
fn psnr(a: &[f32], b: &[f32], range: f64) -> f64 {
    let squares: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (20.0 * (range / (squares / a.len() as f64).sqrt()).log10()).min(200.0)
}

/// Formula weights at full size, from latents of unit variance.
fn decode_formula(args: &ComputeArgs, dtype: Option<Precision>, math: MathMode) -> Result<Decoded> {
    let device = internals::open(&ComputeOptions { dtype, math, ..args.options(None)? })?;
    let (ops, weights) = (&*device.ops, vae_weights("formula:full")?);
    let (config, coder) = load_coder(ops, &*weights, Direction::Decode)?;
    let clip = CoderClip::new(Direction::Decode, &*coder, &config, SIZE, FRAMES);
    let planned = internals::reserve(&device, &VaeSettings::default(), &[clip])?.swap_remove(0);
    let frame = clip.plane.count() * coder.channels_in();
    let latents = uniform("accuracy", clip.frames * frame, 1);
    let latents: Vec<f32> = latents.iter().map(|value| (value * 3f64.sqrt()) as f32).collect();
    let mut stream = planned.stream(ops, &*coder, clip.plane);
    let mut values = Vec::new();
    for part in slices(clip.frames, planned.step()) {
        let last = part.end == clip.frames;
        let slice = SliceData::Values(&latents[part.start * frame..part.end * frame]);
        values.extend(ops.download(&stream.run(slice, last)?)?);
    }
    Ok((values, ops.precision()))
}

/// The embedded model and photograph, encoded in f32.
fn decode_photograph(args: &ComputeArgs, dtype: Option<Precision>, math: MathMode) -> Result<Decoded> {
    let mut photograph = reseed::media::demo::photo();
    let frames: Vec<_> = photograph.next().map_err(Failure::input)?.into_iter().collect();
    let session =
        |dtype, math| -> Result<Session> { Ok(args.builder(models::EMBEDDED, None)?.dtype(dtype).math(math).open()?) };
    let encoded = session(Some(Precision::F32), MathMode::Reference)?.vae()?.encode(&frames)?;
    let session = session(dtype, math)?;
    let decoded = session.vae()?.decode(&EncodedClip { depth: Depth::Float, ..encoded })?;
    let values = decoded.into_iter().flat_map(|frame| match frame.samples {
        Samples::F32(values) => values,
        _ => unreachable!("a clip of floats decodes to floats"),
    });
    Ok((values.collect(), session.precision()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psnr_is_relative_to_the_range() {
        assert_eq!(psnr(&[1.0, 0.0], &[1.0, 0.0], 2.0), 200.0);
        assert!((psnr(&[0.5; 4], &[0.49; 4], 1.0) - 40.0).abs() < 1e-3);
        assert!((psnr(&[0.5; 4], &[0.49; 4], 4.0) - 52.041).abs() < 1e-3);
    }
}
