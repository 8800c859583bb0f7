//! Launch of `kernels/conv_winograd_2d.cu`: convolutions by Winograd F(2x2,3x3), with 16 products where the direct
//! algorithm has 36, on the tensor cores of every GPU since Ampere.

use half::f16;
use rayon::prelude::*;
use reseed_ops::{ConvSpec, Result, Thw};

use super::CudaOps;
use super::convolution::Convolution;
use crate::launch::{Grid, args};

/// Rows and columns of a tile.
const SIDE: usize = 16;
/// Output channels of a tile, and channels of a part of the weights.
const CHANNELS: usize = 64;
/// Channels of a slab in shared memory, and of a chunk of 16 bytes.
const SLAB: usize = 32;
const CHUNK: usize = 8;
/// Products per patch of 2x2 pixels, and along one axis.
const POINTS: usize = 16;
const AXIS: usize = 4;
/// Weights of one row of points and one slab.
const STAGE: usize = AXIS * CHANNELS * SLAB;
/// Three slabs of pixels with their border, two stages of weights, and bytes that aligning them may need.
const SHARED: usize = (3 * (SIDE + 2) * (SIDE + 2) * SLAB + 2 * STAGE) * size_of::<f16>() + 128;

// Consumer GPUs allow 99 KiB per block.
const _: () = assert!(SHARED <= 99 << 10);

/// Products that the kernel executes, relative to the direct algorithm.
pub const EXECUTED: f32 = 4.0 / 9.0;

/// Whether the kernel computes a layer.
pub fn fits(spec: &ConvSpec) -> bool {
    let plain = (spec.taps.h, spec.taps.w, spec.stride) == (3, 3, Thw::new(1, 1, 1));
    plain && spec.c_in.is_multiple_of(CHANNELS) && spec.c_out.is_multiple_of(CHANNELS)
}

/// Number of weights of a layer, where those that fit are transformed.
pub fn packed_weights(spec: &ConvSpec) -> usize {
    if fits(spec) { spec.taps.t * POINTS * spec.c_in * spec.c_out } else { spec.weights() }
}

/// The transform of three taps: (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2).
fn transform([a, b, c]: [f32; 3]) -> [f32; AXIS] {
    [a, 0.5 * (a + b + c), 0.5 * (a - b + c), c]
}

/// The channel in row `row` of a tile. With this order a thread's results are eight consecutive channels.
fn channel_of(row: usize) -> usize {
    row / 32 * 32 + row % 8 / 2 * 8 + row / 8 % 4 * 2 + row % 2
}

/// Place of a weight within 64 by 64 channels: row and column of its point, row of the tile, input channel.
fn place(y: usize, x: usize, row: usize, channel: usize) -> usize {
    let (slab, chunk) = (channel / SLAB, channel % SLAB / CHUNK);
    // Eight neighbouring rows use all banks of shared memory.
    let swizzled = chunk ^ (row / 2 % 4);
    (y * 2 + slab) * STAGE + (x * CHANNELS + row) * SLAB + swizzled * CHUNK + channel % CHUNK
}

/// Weights `[c_out, c_in, t, 3, 3]`, transformed in f32, rounded once and in the order of the kernel.
pub fn pack(spec: &ConvSpec, weight: &[f32]) -> Vec<f16> {
    let (outputs, inputs, taps) = (spec.c_out / CHANNELS, spec.c_in / CHANNELS, spec.taps.t);
    let part = POINTS * CHANNELS * CHANNELS;
    let mut packed = vec![f16::ZERO; taps * outputs * inputs * part];
    packed.par_chunks_exact_mut(part).enumerate().for_each(|(index, to)| {
        let (t, output, input) = (index / (outputs * inputs), index / inputs % outputs, index % inputs);
        for (row, channel) in (0..CHANNELS * CHANNELS).map(|i| (i / CHANNELS, i % CHANNELS)) {
            let filter = (output * CHANNELS + channel_of(row)) * spec.c_in + input * CHANNELS + channel;
            let g = &weight[(filter * taps + t) * 9..][..9];
            let rows: [[f32; AXIS]; 3] = std::array::from_fn(|y| transform([g[3 * y], g[3 * y + 1], g[3 * y + 2]]));
            for x in 0..AXIS {
                for (y, value) in transform([rows[0][x], rows[1][x], rows[2][x]]).into_iter().enumerate() {
                    to[place(y, x, row, channel)] = f16::from_f32(value);
                }
            }
        }
    });
    packed
}

impl Convolution {
    /// # Safety
    /// As for `launch`; the weights are those of [`pack`].
    pub unsafe fn launch_winograd_2d(&self, cuda: &CudaOps) -> Result<()> {
        let Convolution { x, cache, w, bias, y, residual, args, .. } = *self;
        let size = |n: i32| n as usize;
        let plane = size(args.out_h).div_ceil(SIDE) * size(args.out_w).div_ceil(SIDE);
        let tiles = plane * size(args.out_frames) * (size(args.c_out) / CHANNELS);
        let blocks = [tiles.min(cuda.driver.multiprocessors), 1, 1];
        let grid = Grid { blocks, threads: [256, 1], shared: SHARED };
        let name = if cuda.conv.half_sums { "conv_winograd_2d_f16_fast" } else { "conv_winograd_2d_f16" };
        // SAFETY: arguments follow kernels/conv_winograd_2d.cu in order and type; the caller's promise.
        unsafe { cuda.driver.launch(name, grid, args![y, x, cache, w, bias, residual, args]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small integers, whose transforms f16 holds exactly.
    fn integers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| (((i * 7919 + seed) * 104_729) >> 7) as f32 % 9.0 - 4.0).collect()
    }

    #[test]
    fn winograd_computes_layers_whose_channels_fill_tiles() {
        let cube = |c_in, c_out| ConvSpec::same(c_in, c_out, Thw::new(3, 3, 3));
        assert!(fits(&cube(64, 128)) && fits(&ConvSpec::same(128, 64, Thw::new(1, 3, 3))));
        let halved = ConvSpec { stride: Thw::new(1, 2, 2), ..cube(128, 128) };
        for no in [cube(96, 128), cube(128, 96), halved, ConvSpec::same(128, 128, Thw::new(1, 1, 1))] {
            assert!(!fits(&no), "{no:?}");
            assert_eq!(packed_weights(&no), no.weights());
        }
        assert_eq!(packed_weights(&cube(64, 128)) * 9, cube(64, 128).weights() * 16);
    }

    /// A patch of 2x2 results from the packed weights equals the direct convolution.
    #[test]
    fn packed_weights_give_the_direct_convolution() {
        let spec = ConvSpec::same(128, 128, Thw::new(2, 3, 3));
        let weight = integers(spec.weights(), 1);
        let packed = pack(&spec, &weight);
        assert_eq!(packed.len(), packed_weights(&spec));
        for (t, output) in [(0, 5), (1, 64), (1, 127)] {
            let (block, within) = (output / CHANNELS, output % CHANNELS);
            let row = (0..CHANNELS).find(|&row| channel_of(row) == within).unwrap();
            let (mut sums, mut direct) = ([[0f32; AXIS]; AXIS], [[0f32; 2]; 2]);
            for input in 0..spec.c_in {
                let d = integers(16, input);
                let part = &packed[((t * 2 + block) * 2 + input / CHANNELS) * POINTS * CHANNELS * CHANNELS..];
                let along = |d: [f32; 4]| [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[3] - d[1]];
                let rows: [[f32; 4]; 4] = std::array::from_fn(|y| along([0, 1, 2, 3].map(|x| d[4 * y + x])));
                for x in 0..AXIS {
                    let column = along([0, 1, 2, 3].map(|y| rows[y][x]));
                    for (y, point) in column.into_iter().enumerate() {
                        sums[y][x] += point * part[place(y, x, row, input % CHANNELS)].to_f32();
                    }
                }
                let g = &weight[((output * spec.c_in + input) * 2 + t) * 9..][..9];
                for (i, tap) in g.iter().enumerate() {
                    for (y, x) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                        direct[y][x] += tap * d[4 * (y + i / 3) + x + i % 3];
                    }
                }
            }
            let outputs = |m: [f32; 4]| [m[0] + m[1] + m[2], m[1] - m[2] + m[3]];
            let columns = sums.map(outputs);
            let rows = [0, 1].map(|x| outputs([0, 1, 2, 3].map(|y| columns[y][x])));
            assert_eq!([[rows[0][0], rows[1][0]], [rows[0][1], rows[1][1]]], direct, "tap {t}, channel {output}");
        }
    }
}
