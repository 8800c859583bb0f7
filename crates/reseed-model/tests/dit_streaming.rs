//! Streaming of layers from host memory: identical results with at most two streamed layers on the device.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use reseed_cpu::CpuOps;
use reseed_model::Dit;
use reseed_model::dit::{B3, B7, Config, DitWorkload, LayerPlacement, Layout};
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

/// Number of values in the matrices of a layer.
fn matrices(config: &Config, layer: usize) -> usize {
    let inside = |name: &str| name.starts_with(&format!("blocks.{layer}.")) && !name.contains(".norm_");
    // The text of the last layer is unused after attention.
    let unused =
        |name: &str| layer + 1 == config.layers && (name.contains(".proj_out.txt.") || name.contains(".mlp.txt."));
    let matrix = |(name, shape): &(String, reseed_ops::Shape)| shape.dims().len() == 2 && inside(name) && !unused(name);
    config.tensors().iter().filter(|tensor| matrix(tensor)).map(|(_, shape)| shape.count()).sum()
}

#[test]
fn streamed_layers_compute_identical_results() {
    let cpu = CpuOps::new(DType::F32, Some(2)).unwrap();
    for layout in LAYOUTS {
        let config = Config::tiny(layout, LAYERS);
        let source = Formula::plain(config.tensors(), 1);
        let want = velocity(&cpu, &Dit::load(&cpu, &source).unwrap(), LATENT);
        for resident in [0, 1, 3, LAYERS, usize::MAX] {
            let ops = Distant::new(&cpu);
            let dit = Dit::load_streamed(&ops, &source, resident).unwrap();
            for _ in 0..2 {
                assert!(velocity(&ops, &dit, LATENT) == want, "{} with {resident} layers", layout.name);
            }
            let log = ops.log();
            assert_eq!(log.prefetched, 2 * log.offloaded, "every step prefetches every offloaded matrix once");
            assert_eq!(log.present, 0, "prefetched matrices are freed");
            let largest = (0..LAYERS).map(|layer| matrices(&config, layer)).max().unwrap();
            assert!(log.most <= 2 * largest, "{} values at once, {largest} in the largest layer", log.most);
            if resident == 0 {
                assert_eq!(log.offloaded, (0..LAYERS).map(|layer| matrices(&config, layer)).sum::<usize>());
                assert!(log.most > largest, "one layer is prefetched ahead");
            }
            assert_eq!(log.offloaded == 0, resident >= LAYERS);
        }
    }
}

#[test]
fn requirements_include_two_streamed_layers() {
    for config in [Config::b3(), Config::b7()] {
        let source = Formula::plain(config.tensors(), 1);
        let workload = DitWorkload { source: &source, latent: Thw::new(5, 90, 160), text_tokens: 58 };
        let all = workload.requirements(&trace(), LayerPlacement::Resident(usize::MAX)).unwrap();
        let none = workload.requirements(&trace(), LayerPlacement::Resident(0)).unwrap();
        assert_eq!((all.resident, all.host_weights, none.resident), (config.layers, 0, 0));
        assert_eq!(none.weights + none.host_weights, all.weights);
        let layers: Vec<usize> = (0..config.layers).map(|layer| 2 * matrices(&config, layer)).collect();
        assert_eq!(none.host_weights, layers.iter().sum::<usize>());
        // Two streamed layers and some fragmentation.
        let two = 2 * layers.iter().max().unwrap();
        assert!(none.peak > all.peak && none.peak <= all.peak + two, "{} {} {two}", all.peak, none.peak);
        assert!(none.arena <= all.arena + two + two / 4, "{} {} {two}", all.arena, none.arena);

        // The largest number of layers that fits, and not one more.
        let room = (none.weights + none.arena + all.weights + all.arena) / 2;
        let most =
            workload.max_layers(&trace, LayerPlacement::Resident, |it| it.weights + it.arena <= room).unwrap().unwrap();
        let more = workload.requirements(&trace(), LayerPlacement::Resident(most.resident + 1)).unwrap();
        assert!(most.weights + most.arena <= room && more.weights + more.arena > room);
        assert!(
            workload
                .max_layers(&trace, LayerPlacement::Resident, |it| it.weights + it.arena < none.weights)
                .unwrap()
                .is_none()
        );
    }
}

/// A device that stores quantised weights and dequantises one matrix at a time.
fn keeping_quants() -> TraceOps {
    let floats = |work: &Work| match work {
        Work::Linear(spec, _) if spec.quant.is_some() => 2 * spec.d_in * spec.d_out,
        _ => 0,
    };
    TraceOps::new(DType::Bf16, DType::Bf16, Box::new(floats)).with_quantized_weights()
}

#[test]
fn quantised_weights_use_their_quantised_size() {
    let config = Config::b7();
    let floats = Formula::plain(config.tensors(), 1);
    fn workload(source: &Formula) -> DitWorkload<'_> {
        DitWorkload { source, latent: Thw::new(5, 90, 160), text_tokens: 58 }
    }
    let wide = workload(&floats).requirements(&trace(), LayerPlacement::Resident(usize::MAX)).unwrap();
    let blocks: usize = (0..config.layers).map(|layer| matrices(&config, layer)).sum();
    let largest = 2 * config.hidden * config.width;
    for quant in Quant::ALL {
        let quantised = Formula::plain(config.tensors(), 1).quantized(quant);
        let full = workload(&quantised).requirements(&keeping_quants(), LayerPlacement::Resident(usize::MAX)).unwrap();
        assert_eq!(wide.weights - full.weights, 2 * blocks - quant.bytes(blocks), "{quant:?}");
        assert!(full.arena >= wide.arena && full.arena <= wide.arena + largest, "{quant:?}: {full:?} {wide:?}");
        let none = workload(&quantised).requirements(&keeping_quants(), LayerPlacement::Resident(0)).unwrap();
        assert_eq!(none.host_weights, quant.bytes(blocks), "{quant:?} stays quantised in host memory");
        // A device that dequantises while loading uses the size of floats.
        assert_eq!(
            workload(&quantised).requirements(&trace(), LayerPlacement::Resident(usize::MAX)).unwrap().weights,
            wide.weights
        );
    }
    // The 7B network fits in 8 GiB with four bits, but not as floats.
    let quantised = Formula::plain(config.tensors(), 1).quantized(Quant::Q4K);
    let four = workload(&quantised).requirements(&keeping_quants(), LayerPlacement::Resident(usize::MAX)).unwrap();
    assert!(four.weights + four.arena < 8 << 30 && wide.weights > 15 << 30, "{four:?} {wide:?}");
}
