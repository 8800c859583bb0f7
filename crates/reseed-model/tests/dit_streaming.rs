//! Layers that wait in the host's memory: the same result, with two of them on the device at most.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use reseed_cpu::CpuOps;
use reseed_model::Dit;
use reseed_model::dit::{B3, B7, Case, Config, Layers, Layout};
use reseed_model::weights::formula::Formula;
use reseed_ops::{DType, Quant, Thw, TraceOps, Work};
use reseed_testing::distant::Distant;
use reseed_testing::dit::velocity;

const LAYOUTS: [Layout; 2] = [B3, B7];
const LAYERS: usize = 5;
const LATENT: Thw = Thw::new(2, 10, 14);

fn trace() -> TraceOps {
    TraceOps::new(DType::Bf16, DType::Bf16, Box::new(|_| 0))
}

/// Values of the matrices of a layer.
fn matrices(config: &Config, layer: usize) -> usize {
    let inside = |name: &str| name.starts_with(&format!("blocks.{layer}.")) && !name.contains(".norm_");
    // Behind the last layer's attention its text is dead.
    let dead =
        |name: &str| layer + 1 == config.layers && (name.contains(".proj_out.txt.") || name.contains(".mlp.txt."));
    let matrix = |(name, shape): &(String, reseed_ops::Shape)| shape.dims().len() == 2 && inside(name) && !dead(name);
    config.tensors().iter().filter(|tensor| matrix(tensor)).map(|(_, shape)| shape.count()).sum()
}

#[test]
fn layers_that_come_and_go_compute_the_same_bytes() {
    let cpu = CpuOps::new(DType::F32, Some(2)).unwrap();
    for layout in LAYOUTS {
        let config = Config::tiny(layout, LAYERS);
        let source = Formula::plain(config.tensors(), 1);
        let want = velocity(&cpu, &Dit::load(&cpu, &source).unwrap(), LATENT);
        for resident in [0, 1, 3, LAYERS, usize::MAX] {
            let ops = Distant::new(&cpu);
            let dit = Dit::load_keeping(&ops, &source, resident).unwrap();
            for _ in 0..2 {
                assert!(velocity(&ops, &dit, LATENT) == want, "{} with {resident} layers", layout.name);
            }
            let log = ops.log();
            assert_eq!(log.prefetched, 2 * log.offloaded, "every offloaded matrix comes once for every step");
            assert_eq!(log.present, 0, "nothing that was prefetched stays");
            let largest = (0..LAYERS).map(|layer| matrices(&config, layer)).max().unwrap();
            assert!(log.most <= 2 * largest, "{} values at once, {largest} in the largest layer", log.most);
            if resident == 0 {
                assert_eq!(log.offloaded, (0..LAYERS).map(|layer| matrices(&config, layer)).sum::<usize>());
                assert!(log.most > largest, "one layer is ahead");
            }
            assert_eq!(log.offloaded == 0, resident >= LAYERS);
        }
    }
}

#[test]
fn a_plan_knows_what_streaming_takes() {
    for config in [Config::b3(), Config::b7()] {
        let source = Formula::plain(config.tensors(), 1);
        let case = Case { source: &source, latent: Thw::new(5, 90, 160), text: 58 };
        let all = case.needs(&trace(), Layers::Stay(usize::MAX)).unwrap();
        let none = case.needs(&trace(), Layers::Stay(0)).unwrap();
        assert_eq!((all.resident, all.hosted, none.resident), (config.layers, 0, 0));
        assert_eq!(none.weights + none.hosted, all.weights);
        let layers: Vec<usize> = (0..config.layers).map(|layer| 2 * matrices(&config, layer)).collect();
        assert_eq!(none.hosted, layers.iter().sum::<usize>());
        // Two layers at once, and a little for the gaps between them.
        let two = 2 * layers.iter().max().unwrap();
        assert!(none.peak > all.peak && none.peak <= all.peak + two, "{} {} {two}", all.peak, none.peak);
        assert!(none.arena <= all.arena + two + two / 4, "{} {} {two}", all.arena, none.arena);

        // The most that fits, and not one layer more.
        let room = (none.weights + none.arena + all.weights + all.arena) / 2;
        let most = case.most(&trace, Layers::Stay, |needs| needs.weights + needs.arena <= room).unwrap().unwrap();
        let more = case.needs(&trace(), Layers::Stay(most.resident + 1)).unwrap();
        assert!(most.weights + most.arena <= room && more.weights + more.arena > room);
        assert!(case.most(&trace, Layers::Stay, |needs| needs.weights + needs.arena < none.weights).unwrap().is_none());
    }
}

/// A device that keeps few bits, and floats of one matrix while it is used.
fn keeping_quants() -> TraceOps {
    let floats = |work: &Work| match work {
        Work::Linear(spec) if spec.quant.is_some() => 2 * spec.d_in * spec.d_out,
        _ => 0,
    };
    TraceOps::new(DType::Bf16, DType::Bf16, Box::new(floats)).with_quantized_weights()
}

#[test]
fn few_bits_on_the_device_take_the_room_of_few_bits() {
    let config = Config::b7();
    let floats = Formula::plain(config.tensors(), 1);
    fn case(source: &Formula) -> Case<'_> {
        Case { source, latent: Thw::new(5, 90, 160), text: 58 }
    }
    let wide = case(&floats).needs(&trace(), Layers::Stay(usize::MAX)).unwrap();
    let blocks: usize = (0..config.layers).map(|layer| matrices(&config, layer)).sum();
    let largest = 2 * config.hidden * config.width;
    for quant in Quant::ALL {
        let few = Formula::plain(config.tensors(), 1).stored(quant);
        let needs = case(&few).needs(&keeping_quants(), Layers::Stay(usize::MAX)).unwrap();
        assert_eq!(wide.weights - needs.weights, 2 * blocks - quant.bytes(blocks), "{quant:?}");
        assert!(needs.arena >= wide.arena && needs.arena <= wide.arena + largest, "{quant:?}: {needs:?} {wide:?}");
        let none = case(&few).needs(&keeping_quants(), Layers::Stay(0)).unwrap();
        assert_eq!(none.hosted, quant.bytes(blocks), "{quant:?} waits in the host's memory as it is");
        // A device that widens at once takes what floats take.
        assert_eq!(case(&few).needs(&trace(), Layers::Stay(usize::MAX)).unwrap().weights, wide.weights);
    }
    // The 7B network in four bits fits where its floats do not.
    let few = Formula::plain(config.tensors(), 1).stored(Quant::Q4K);
    let four = case(&few).needs(&keeping_quants(), Layers::Stay(usize::MAX)).unwrap();
    assert!(four.weights + four.arena < 8 << 30 && wide.weights > 15 << 30, "{four:?} {wide:?}");
}
