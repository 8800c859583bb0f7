//! Integer pixels as input: the encoder computes the same result as for their values.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use reseed_cpu::CpuOps;
use reseed_model::plan::{CachePlan, TileInput, Tiling};
use reseed_model::{Config, SliceData, Stream};
use reseed_ops::{DType, Depth, Hw, Pixels, Shape, TraceOps, Transfer, Work};
use reseed_testing::{Clip, load};

const PLANE: Hw = Hw::new(40, 56);

/// The same values with 8 and 16 bits.
fn depths(count: usize) -> [Pixels; 2] {
    let values = Clip::uniform("pixels", 1, Hw::new(1, count), 1).values;
    [Depth::Eight, Depth::Sixteen].map(|depth| Pixels::nearest(&values, depth))
}

#[test]
fn pixels_give_the_result_of_their_values_whole_and_in_tiles() {
    for dtype in [DType::F32, DType::Bf16] {
        let ops = CpuOps::new(dtype, Some(2)).unwrap();
        let vae = load(&ops, &Config::tiny());
        let tiling = Tiling { tile: Hw::new(32, 32), overlap: Hw::new(8, 8) };
        for tiling in [None, Some(tiling)] {
            let tiles = tiling.and_then(|tiling| tiling.tiles(TileInput::Frames, PLANE, vae.config.spatial_factor()));
            assert_eq!(tiles.is_some(), tiling.is_some());
            let start = || Stream::new(&ops, &vae.encoder, PLANE, &CachePlan::default()).tiled(tiles.clone(), 1);
            for pixels in depths(5 * PLANE.count() * 3) {
                let moments = start().run(SliceData::Pixels(&pixels), true).unwrap();
                assert!(ops.download(&moments).unwrap() == start().step(&pixels.values(), true).unwrap(), "{dtype}");
            }
        }
    }
}

#[test]
fn pixel_transfers_use_device_memory_and_free_it() {
    let staging = |work: &Work| if let Work::Pixels(bytes) = work { *bytes } else { 0 };
    let trace = TraceOps::new(DType::F16, DType::F16, Box::new(staging));
    let shape = Shape::from([2, 9, 7, 3]);
    for (pixels, bytes) in depths(shape.count()).iter().zip([1, 2]) {
        let x = trace.upload_pixels(shape, pixels).unwrap();
        assert_eq!(trace.report().live, x.bytes());
        assert_eq!(trace.report().peak, x.bytes() + bytes * shape.count());
        let mut back = Pixels::default();
        trace.start_download_pixels(&x, pixels.depth()).unwrap().wait(&mut back).unwrap();
        assert_eq!((back.len(), back.depth()), (pixels.len(), pixels.depth()));
    }
    assert_eq!(trace.report().live, 0);
}
