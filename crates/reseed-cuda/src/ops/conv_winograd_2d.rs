//! Launch of `kernels/conv_winograd_2d.cu`: convolutions by Winograd on the tensor cores of every GPU since Ampere,
//! F(2x2,3x3) with 16 products where the direct algorithm has 36, and for the phases of upsamplers F(2x2,2x2) with 9
//! products where it has 16.

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
/// Weights of one point and one slab.
const POINT: usize = CHANNELS * SLAB;

/// Products per axis of a patch of 2x2 pixels, by the taps along it.
const fn points(taps: usize) -> usize {
    taps + 1
}

/// Bytes of three slabs of pixels with their border, of two stages of weights, and that aligning them may need.
const fn shared(taps: usize) -> usize {
    (3 * (SIDE + 2) * (SIDE + 2) * SLAB + 2 * points(taps) * POINT) * size_of::<f16>() + 128
}

// Consumer GPUs allow 99 KiB per block.
const _: () = assert!(shared(3) <= 99 << 10);

/// Products that the kernel executes for a layer that it computes, relative to the direct algorithm.
pub fn executed(spec: &ConvSpec) -> f32 {
    let taps = spec.taps.w;
    (points(taps) * points(taps)) as f32 / (4 * taps * taps) as f32
}

/// Whether the kernel computes a layer.
pub fn fits(spec: &ConvSpec) -> bool {
    let plain = matches!((spec.taps.h, spec.taps.w), (3, 3) | (2, 2)) && spec.stride == Thw::new(1, 1, 1);
    plain && spec.c_in.is_multiple_of(CHANNELS) && spec.c_out.is_multiple_of(CHANNELS)
}

/// Number of weights of a layer, where those that fit are transformed.
pub fn packed_weights(spec: &ConvSpec) -> usize {
    let points = points(spec.taps.w);
    if fits(spec) { spec.taps.t * points * points * spec.c_in * spec.c_out } else { spec.weights() }
}

/// Writes the transform of taps that are `step` apart to points that are `step` apart: (g0, (g0 + g1 + g2) / 2,
/// (g0 - g1 + g2) / 2, g2), or with two taps (g0, g0 + g1, g1).
fn transform(taps: usize, g: &[f32], to: &mut [f32], step: usize) {
    let points: &[f32] = match taps {
        3 => {
            let [a, b, c] = [0, step, 2 * step].map(|at| g[at]);
            &[a, 0.5 * (a + b + c), 0.5 * (a - b + c), c]
        }
        _ => &[g[0], g[0] + g[step], g[step]],
    };
    to.iter_mut().step_by(step).zip(points).for_each(|(to, point)| *to = *point);
}

/// The points of a kernel of `taps` rows and columns, row by row, in the first `points(taps)` squared of the values.
fn transformed(taps: usize, g: &[f32]) -> [f32; 16] {
    let (points, mut rows, mut planes) = (points(taps), [0.0; 16], [0.0; 16]);
    // Rows of taps become rows of points, then columns of these.
    for (row, to) in g.chunks_exact(taps).zip(rows.chunks_exact_mut(points)) {
        transform(taps, row, to, 1);
    }
    for column in 0..points {
        transform(taps, &rows[column..], &mut planes[column..points * points], points);
    }
    planes
}

/// The channel in row `row` of a tile. With this order a thread's results are eight consecutive channels.
fn channel_of(row: usize) -> usize {
    row / 32 * 32 + row % 8 / 2 * 8 + row / 8 % 4 * 2 + row % 2
}

/// Place of a weight within 64 by 64 channels: row and column of its point, row of the tile, input channel.
fn place(points: usize, y: usize, x: usize, row: usize, channel: usize) -> usize {
    let (slab, chunk) = (channel / SLAB, channel % SLAB / CHUNK);
    // Eight neighbouring rows use all banks of shared memory.
    let swizzled = chunk ^ (row / 2 % 4);
    ((y * 2 + slab) * points + x) * POINT + row * SLAB + swizzled * CHUNK + channel % CHUNK
}

/// Weights `[phase, c_out, c_in, t, h, w]`, transformed in f32, rounded once and in the order of the kernel.
pub fn pack(spec: &ConvSpec, weight: &[f32]) -> Vec<f16> {
    let (outputs, inputs, side) = (spec.c_out / CHANNELS, spec.c_in / CHANNELS, spec.taps.w);
    let (taps, kernel, points) = (spec.taps.t, side * side, points(side));
    let part = points * points * CHANNELS * CHANNELS;
    let phases = weight.len() / spec.weights();
    let mut packed = vec![f16::ZERO; phases * taps * outputs * inputs * part];
    packed.par_chunks_exact_mut(part).enumerate().for_each(|(index, to)| {
        let (tap, output, input) = (index / (outputs * inputs), index / inputs % outputs, index % inputs);
        let (phase, t) = (tap / taps, tap % taps);
        for (row, channel) in (0..CHANNELS * CHANNELS).map(|i| (i / CHANNELS, i % CHANNELS)) {
            let c_out = phase * spec.c_out + output * CHANNELS + channel_of(row);
            let filter = c_out * spec.c_in + input * CHANNELS + channel;
            let values = transformed(side, &weight[(filter * taps + t) * kernel..][..kernel]);
            for (i, value) in values[..points * points].iter().enumerate() {
                to[place(points, i / points, i % points, row, channel)] = f16::from_f32(*value);
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
        let (taps, phases) = (size(args.taps_w), size(args.phases));
        let tiles = plane * phases * size(args.out_frames) * (size(args.c_out) / CHANNELS);
        let blocks = [tiles.min(cuda.driver.multiprocessors), 1, 1];
        let grid = Grid { blocks, threads: [256, 1], shared: shared(taps) };
        let fast = if cuda.conv.half_sums { "_fast" } else { "" };
        let name = format!("conv_winograd_2d_{taps}x{taps}_f16{fast}");
        // SAFETY: arguments follow kernels/conv_winograd_2d.cu in order and type; the caller's promise.
        unsafe { cuda.driver.launch(&name, grid, args![y, x, cache, w, bias, residual, args]) }
    }
}

#[cfg(test)]
mod tests {
    use reseed_ops::UpsampleSpec;

    use super::*;

    /// Small integers, whose transforms f16 holds exactly.
    fn integers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| (((i * 7919 + seed) * 104_729) >> 7) as f32 % 9.0 - 4.0).collect()
    }

    fn cube(c_in: usize, c_out: usize) -> ConvSpec {
        ConvSpec::same(c_in, c_out, Thw::new(3, 3, 3))
    }

    fn phase(channels: usize) -> ConvSpec {
        UpsampleSpec { channels, time: true }.phase()
    }

    #[test]
    fn winograd_computes_layers_whose_channels_fill_tiles() {
        assert!(fits(&cube(64, 128)) && fits(&ConvSpec::same(128, 64, Thw::new(1, 3, 3))) && fits(&phase(64)));
        let halved = ConvSpec { stride: Thw::new(1, 2, 2), ..cube(128, 128) };
        let point = ConvSpec::same(128, 128, Thw::new(1, 1, 1));
        for no in [cube(96, 128), cube(128, 96), halved, point, phase(96)] {
            assert!(!fits(&no), "{no:?}");
            assert_eq!(packed_weights(&no), no.weights());
        }
        assert_eq!(packed_weights(&cube(64, 128)) * 9, cube(64, 128).weights() * 16);
        assert_eq!(packed_weights(&phase(64)) * 4, phase(64).weights() * 9);
        assert_eq!((executed(&cube(64, 64)), executed(&phase(64))), (4.0 / 9.0, 9.0 / 16.0));
    }

    /// Inputs of the points along one axis, and the outputs of their products.
    fn inputs(taps: usize, d: &[f32], step: usize) -> Vec<f32> {
        let d: Vec<f32> = d.iter().step_by(step).copied().collect();
        match taps {
            3 => vec![d[0] - d[2], d[1] + d[2], d[2] - d[1], d[3] - d[1]],
            _ => vec![d[0] - d[1], d[1], d[2] - d[1]],
        }
    }
    fn outputs(m: &[f32]) -> [f32; 2] {
        match *m {
            [a, b, c, d] => [a + b + c, b - c + d],
            [a, b, c] => [a + b, b + c],
            _ => unreachable!("three or four points"),
        }
    }

    /// A patch of 2x2 results of one output channel, from the packed weights of a phase and temporal tap.
    fn patch(spec: &ConvSpec, packed: &[f16], tap: usize, output: usize) -> [[f32; 2]; 2] {
        let (taps, n) = (spec.taps.w, points(spec.taps.w));
        let (block, blocks, parts) = (output / CHANNELS, spec.c_out / CHANNELS, spec.c_in / CHANNELS);
        let row = (0..CHANNELS).find(|&row| channel_of(row) == output % CHANNELS).unwrap();
        let mut sums = vec![0f32; n * n];
        for input in 0..spec.c_in {
            let d = integers(n * n, input);
            let part = &packed[((tap * blocks + block) * parts + input / CHANNELS) * n * n * CHANNELS * CHANNELS..];
            let rows: Vec<f32> = d.chunks_exact(n).flat_map(|row| inputs(taps, row, 1)).collect();
            for x in 0..n {
                for (y, point) in inputs(taps, &rows[x..], n).into_iter().enumerate() {
                    sums[y * n + x] += point * part[place(n, y, x, row, input % CHANNELS)].to_f32();
                }
            }
        }
        let rows: Vec<[f32; 2]> = sums.chunks_exact(n).map(outputs).collect();
        let column = |x: usize| outputs(&rows.iter().map(|row| row[x]).collect::<Vec<_>>());
        let [left, right] = [column(0), column(1)];
        [[left[0], right[0]], [left[1], right[1]]]
    }

    /// The same by the direct algorithm.
    fn direct(spec: &ConvSpec, weight: &[f32], tap: usize, output: usize) -> [[f32; 2]; 2] {
        let (taps, n) = (spec.taps.w, points(spec.taps.w));
        let channel = tap / spec.taps.t * spec.c_out + output;
        let mut sums = [[0f32; 2]; 2];
        for input in 0..spec.c_in {
            let d = integers(n * n, input);
            let filter = (channel * spec.c_in + input) * spec.taps.t + tap % spec.taps.t;
            for (i, g) in weight[filter * taps * taps..][..taps * taps].iter().enumerate() {
                for (y, x) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    sums[y][x] += g * d[(y + i / taps) * n + x + i % taps];
                }
            }
        }
        sums
    }

    #[test]
    fn packed_weights_give_the_direct_convolution() {
        let three = ConvSpec::same(128, 128, Thw::new(2, 3, 3));
        for (spec, phases) in [(three, 1), (phase(128), 4)] {
            let weight = integers(phases * spec.weights(), 1);
            let packed = pack(&spec, &weight);
            assert_eq!(packed.len(), phases * packed_weights(&spec));
            for (tap, output) in [(0, 5), (1, 64), (2 * phases - 1, 127)] {
                let (found, want) = (patch(&spec, &packed, tap, output), direct(&spec, &weight, tap, output));
                assert_eq!(found, want, "{spec:?}, tap {tap}, channel {output}");
            }
        }
    }
}
