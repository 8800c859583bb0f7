//! The metadata of a model selects the start of the transformer step: noise or the condition.
#![allow(clippy::unwrap_used, reason = "errors are worth seeing")]

use reseed::Latent;
use reseed::internals::{Step, Transformer};
use reseed_cpu::CpuOps;
use reseed_model::dit::{B3, Config};
use reseed_model::weights::formula::{Formula, uniform};
use reseed_model::{Dit, TextEmbedding};
use reseed_ops::{DType, Shape, Thw};

const SIZE: Thw = Thw { t: 2, h: 4, w: 6 };

fn values(name: &str, count: usize) -> Vec<f32> {
    uniform(name, count, 1).into_iter().map(|v| v as f32).collect()
}

#[test]
fn a_step_from_the_condition_equals_a_step_whose_noise_is_the_condition() {
    let (ops, config) = (CpuOps::new(DType::F32, Some(1)).unwrap(), Config::tiny(B3, 3));
    let transformer = |start| {
        let source = Formula::plain(config.tensors(), 1).with_metadata("start", start);
        let text =
            TextEmbedding { shape: Shape::from([3, config.text_width]), values: values("text", 3 * config.text_width) };
        Transformer::new(&ops, Dit::load(&ops, &source).unwrap(), text)
    };
    let latent = |name| Latent { thw: SIZE, values: values(name, SIZE.count() * config.latent) };
    let (condition, noise) = (latent("condition"), latent("noise"));
    let restored = |start, noise| transformer(start).run(&condition, noise).unwrap().values;
    assert_eq!(restored("condition", &noise), restored("noise", &condition));
    assert_ne!(restored("noise", &noise), restored("noise", &condition));
}
