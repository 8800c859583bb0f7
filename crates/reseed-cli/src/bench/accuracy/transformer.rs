//! One step of the transformer in every mode against f32, and a whole job with `--precision fast` against one without.

use reseed::internals::model::Dit;
use reseed::internals::model::dit::Config;
use reseed::internals::ops::{Device, relative_error};
use reseed::internals::quality::{self, resized};
use reseed::internals::{self, ComputeOptions, Weights};
use reseed::media::{Depth, Samples, Size};
use reseed::{Batching, MathMode, Precision, Settings, Target, Thw, models};
use serde_json::json;

use crate::bench::dit::latents;
use crate::failure::{Failure, Result};
use reseed_args::ComputeArgs;

/// Models, and the number of layers of those that have too many for a machine of any size.
const MODELS: [(&str, Option<usize>); 3] = [("formula:3b", Some(2)), ("formula:7b", Some(2)), (models::EMBEDDED, None)];
const LATENT: Thw = Thw::new(2, 16, 20);
/// Largest relative error of a mode in 16 bits. Other types have no gate.
const GATES: [(MathMode, f64); 3] = [(MathMode::Reference, 1e-2), (MathMode::Exact, 1e-2), (MathMode::Fast, 2e-2)];

/// The factor by which the input of the job is downscaled, its frames, and the largest mean difference of 255.
const SCALE: usize = 4;
const FRAMES: usize = 5;
const JOB_GATE: f64 = 0.5;

/// Prints all figures and returns those beyond their gates.
pub fn run(args: &ComputeArgs) -> Result<Vec<String>> {
    let mut failed = Vec::new();
    for (model, layers) in MODELS {
        let weights = layers.map_or_else(|| Weights::open(model), |layers| Weights::formula(model, Some(layers)))?;
        let (wide, _) = step(args, &weights, Some(Precision::F32), MathMode::Reference)?;
        for (mode, gate) in GATES {
            let (values, dtype) = step(args, &weights, args.math.dtype, mode)?;
            let (error, gate) = (relative_error(&wide, &values), (dtype.dtype().bytes() == 2).then_some(gate));
            match args.json {
                true => say!(
                    "{}",
                    json!({"event": "accuracy", "model": model, "precision": mode.to_string(),
                           "dtype": dtype.to_string(), "relative_error": error, "gate": gate})
                ),
                false => {
                    let most = gate.map_or(String::new(), |gate| format!(", at most {gate:.0e}"));
                    say!("transformer {model} {dtype}, --precision {mode}: relative error {error:.1e} from f32{most}");
                }
            }
            if gate.is_some_and(|gate| error > gate) {
                failed.push(format!("transformer {model} --precision {mode}"));
            }
        }
    }
    let difference = job(args)?;
    match args.json {
        true => say!("{}", json!({"event": "accuracy", "job": models::EMBEDDED, "mean_difference": difference})),
        false => say!(
            "job {}, --precision fast: mean difference {difference:.3} of 255 from exact, at most {JOB_GATE}",
            models::EMBEDDED
        ),
    }
    if difference > JOB_GATE {
        failed.push("job --precision fast".into());
    }
    Ok(failed)
}

/// The result of one step, and the type that it was computed in.
fn step(
    args: &ComputeArgs,
    weights: &Weights,
    dtype: Option<Precision>,
    math: MathMode,
) -> Result<(Vec<f32>, Precision)> {
    let options = ComputeOptions { dtype, math, ..args.options(None)? };
    let device = internals::open(&options)?;
    let device = internals::transformer(&options, &device)?.unwrap_or(device);
    let (ops, text): (&dyn Device, _) = (&*device.ops, weights.text(Config::detect(weights.dit())?.text_width)?);
    let dit = Dit::load(ops, weights.dit())?;
    let plan = dit.plan(ops, LATENT, text.shape.dims()[0])?;
    let result = dit.sample(ops, &latents(ops, &dit, LATENT)?, &ops.upload(text.shape, &text.values)?, &plan)?;
    Ok((ops.download(&result)?, ops.precision()))
}

/// Mean difference of the embedded clip, restored by the embedded model in both modes, in units of 1/255.
fn job(args: &ComputeArgs) -> Result<f64> {
    let (mut clip, mut originals) = (reseed::media::demo::clip(), Vec::new());
    while let Some(frame) = clip.next().map_err(Failure::input)?.filter(|_| originals.len() < FRAMES) {
        originals.push(frame);
    }
    let size = clip.info().size;
    let inputs = resized(&originals, Size { h: size.h / SCALE, w: size.w / SCALE }, Depth::Eight)?;
    let batching = Batching { size: inputs.len(), overlap: 0, uniform: false };
    let settings = Settings { target: Target::Exact(size), batching, ..Settings::default() };
    let restored = |math: MathMode| -> Result<Vec<f64>> {
        let session = args.builder(models::EMBEDDED, None)?.math(math).open()?;
        let (frames, _) = quality::upscale(&session, &inputs, Depth::Sixteen, &settings, &mut ())?;
        let codes = frames.into_iter().flat_map(|frame| match frame.samples {
            Samples::U16(codes) => codes,
            _ => unreachable!("results have the depth that was asked for"),
        });
        Ok(codes.map(|code| f64::from(code) / 257.0).collect())
    };
    let (exact, fast) = (restored(MathMode::Exact)?, restored(MathMode::Fast)?);
    Ok(exact.iter().zip(&fast).map(|(a, b)| (a - b).abs()).sum::<f64>() / exact.len() as f64)
}
