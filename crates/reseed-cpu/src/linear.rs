//! Linear layers: blocks of rows against groups of panels.
//!
//! The rows of a block are transposed to register tiles once per group and stay in a core's second-level cache. A piece
//! of a panel stays in the first-level cache for all tiles of the block. Groups run in order, so that all threads read
//! the same weights at about the same time.

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use crate::CpuOps;
use crate::conv::{self, ConvWeights, ReferenceWeights};
use crate::host::buffer::Floats;
use crate::host::element::{Element, with_element};
use crate::host::level::Level;
use crate::host::memory::{elements, elements_mut};
use crate::packed_weights::PackedWeights;
use crate::simd::gemm::{Product, Rows, even_parts, multiply, tile_rows};
use crate::simd::output::{DisjointSlice, store};
use crate::tiles::linear as tile_linear;
use reseed_ops::reference;
use reseed_ops::{ConvData, ConvSpec, Linear, Packed, Result, Shape, Tensor, Thw};

/// Most rows of a block: full register tiles of the widest level.
const ROWS: usize = 112;
/// Most input columns that are transposed at a time.
const DEPTH: usize = 2560;
/// Rows of a panel that stay in the first-level cache.
const PIECE: usize = 256;
/// Input columns that are transposed together, so that all their rows are in the first-level cache.
const TRANSPOSE_COLUMNS: usize = 64;
/// Most panels of a group.
const GROUP: usize = 64;

/// Packs the weights of the op.
pub fn pack(cpu: &CpuOps, d_in: usize, d_out: usize, data: ConvData) -> Packed {
    let mut data = data;
    if cpu.uses_tiles() && !tile_linear::supports(d_in) {
        cpu.round_weights(&mut data.weight);
        let kernel = PackedWeights::Panels(cpu.panels(&data.weight, d_in, d_out));
        return std::sync::Arc::new(ConvWeights { kernel, bias: data.bias });
    }
    conv::pack(cpu, &ConvSpec::same(d_in, d_out, Thw::new(1, 1, 1)), data)
}

/// Runs the op.
pub fn run(cpu: &CpuOps, x: &Tensor, linear: &Linear, residual: Option<Tensor>) -> Result<Tensor> {
    assert_eq!(x.channels(), linear.spec.d_in, "linear: input {x:?}");
    let mut dims = x.shape().dims().to_vec();
    *dims.last_mut().expect("a tensor has dimensions") = linear.spec.d_out;
    let shape = Shape::from(&dims[..]);
    let add = residual.is_some();
    if let Some(residual) = &residual {
        assert_eq!((residual.count(), residual.channels()), (shape.count(), linear.spec.d_out), "linear: {residual:?}");
    }
    if cpu.level() == Level::Reference {
        return run_reference(cpu, x, linear, residual, shape);
    }
    let mut y = match residual {
        Some(residual) => cpu.writable("linear", residual)?.reshape(shape),
        None => cpu.allocate("linear", shape, x.dtype())?,
    };
    let weights: &ConvWeights = cpu.unpack(&linear.packed);
    with_element!(x.dtype(), E => {
        if let PackedWeights::Tiles(tiles) = &weights.kernel {
            let out = DisjointSlice::new(bytemuck::cast_slice_mut(elements_mut::<E>(&mut y)));
            let x = bytemuck::cast_slice(elements::<E>(x));
            let matrix = tile_linear::Matrix { level: cpu.simd(), x, weights: tiles, bias: &weights.bias, out, add };
            cpu.install(|| matrix.run(cpu.threads()));
            return Ok(y);
        }
        let out = DisjointSlice::new(elements_mut::<E>(&mut y));
        let matrix = Matrix { level: cpu.simd(), x: elements::<E>(x), weights, out, add };
        cpu.install(|| matrix.run(cpu.threads()));
    });
    Ok(y)
}

fn run_reference(cpu: &CpuOps, x: &Tensor, linear: &Linear, residual: Option<Tensor>, shape: Shape) -> Result<Tensor> {
    let weights: &ReferenceWeights = cpu.unpack(&linear.packed);
    let mut y = cpu.install(|| reference::linear(&cpu.to_f64(x), &weights.weight, &weights.bias));
    if let Some(residual) = &residual {
        y.iter_mut().zip(cpu.to_f64(residual)).for_each(|(y, r)| *y += r);
    }
    cpu.round_to_tensor(shape, &y)
}

/// The operands of a linear layer.
struct Matrix<'a, E> {
    level: Level,
    x: &'a [E],
    weights: &'a ConvWeights,
    out: DisjointSlice<'a, E>,
    add: bool,
}

/// The buffers of one thread.
struct Scratch {
    tiles: Floats,
    sums: Floats,
    panel: Floats,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        RefCell::new(Scratch { tiles: Floats::zeros(0), sums: Floats::zeros(0), panel: Floats::zeros(0) });
}

impl<E: Element> Matrix<'_, E> {
    fn run(&self, threads: usize) {
        let panels = self.weights.kernel.panels();
        let block = ROWS / tile_rows(self.level) * tile_rows(self.level);
        let blocks: Vec<Range<usize>> = {
            let rows = self.x.len() / panels.k;
            (0..rows).step_by(block).map(|first| first..rows.min(first + block)).collect()
        };
        // With four jobs per thread all threads finish at about the same time.
        let groups = panels.count().div_ceil(GROUP).max((4 * threads).div_ceil(blocks.len())).min(panels.count());
        let groups: Vec<_> = even_parts(panels.count(), panels.count().div_ceil(groups)).collect();
        (0..groups.len() * blocks.len()).into_par_iter().for_each(|job| {
            let (first, last) = groups[job / blocks.len()];
            let rows = blocks[job % blocks.len()].clone();
            SCRATCH.with_borrow_mut(|scratch| self.block(rows, first..last, scratch));
        });
    }

    /// Computes some rows of the output, for the columns of some panels.
    fn block(&self, rows: Range<usize>, group: Range<usize>, scratch: &mut Scratch) {
        let (panels, level) = (self.weights.kernel.panels(), self.level);
        let (width, count) = (panels.width, rows.len());
        let depths: Vec<_> = even_parts(panels.k, DEPTH).collect();
        // The sums of a panel are stored at once, unless the input columns are split.
        let slots = if depths.len() > 1 { group.len() } else { 1 };
        let sums = scratch.sums.at_least(slots * count * width);
        for (part, &(first, last)) in depths.iter().enumerate() {
            let tiles = scratch.tiles.at_least(count * (last - first));
            self.transpose(rows.clone(), first..last, tiles);
            for (i, panel) in group.clone().enumerate() {
                let sums = &mut sums[i % slots * count * width..][..count * width];
                let b = panels.rows(level, panel, first..last, &mut scratch.panel);
                self.product(tiles, count, b, sums, part > 0);
                if part + 1 == depths.len() {
                    self.finish(rows.start, panel, sums);
                }
            }
        }
    }

    /// Transposes input to `[tile][column][row]`.
    fn transpose(&self, rows: Range<usize>, depth: Range<usize>, tiles: &mut [f32]) {
        let k = self.weights.kernel.panels().k;
        let side = tile_rows(self.level);
        for (i, tile) in tiles.chunks_mut(side * depth.len()).enumerate() {
            let height = tile.len() / depth.len();
            for (part, to) in tile.chunks_mut(TRANSPOSE_COLUMNS * height).enumerate() {
                for r in 0..height {
                    let row = (rows.start + i * side + r) * k;
                    let from = &self.x[row + depth.start + part * TRANSPOSE_COLUMNS..][..to.len() / height];
                    to[r..].iter_mut().step_by(height).zip(from).for_each(|(to, v)| *to = v.to_f32());
                }
            }
        }
    }

    /// sums = tiles · B, or sums += tiles · B.
    fn product(&self, tiles: &[f32], count: usize, b: &[f32], sums: &mut [f32], accumulate: bool) {
        let side = tile_rows(self.level);
        let width = self.weights.kernel.panels().width;
        let depth = tiles.len() / count;
        let whole = count / side;
        for (first, last) in even_parts(depth, PIECE) {
            let steps = last - first;
            let b = &b[first * width..last * width];
            for (lines, columns, at) in [(whole, side, 0), (1, count % side, whole * side)] {
                if lines * columns == 0 {
                    continue;
                }
                let product = Product {
                    a: &tiles[at * depth + first * columns..],
                    rows: Rows::Transposed,
                    a_line: columns * depth,
                    a_step: columns,
                    runs: &[0],
                    steps,
                    b,
                    width,
                    lines,
                    columns,
                    c: &mut sums[at * width..],
                    c_row: width,
                    accumulate: accumulate || first > 0,
                };
                multiply(self.level, product);
            }
        }
    }

    /// Adds the bias and stores.
    fn finish(&self, first_row: usize, panel: usize, sums: &mut [f32]) {
        let panels = self.weights.kernel.panels();
        let first = panel * panels.width;
        let columns = panels.width.min(panels.n - first);
        let bias = &self.weights.bias[first..][..columns];
        for (i, values) in sums.chunks_exact(panels.width).enumerate() {
            // SAFETY: jobs differ in rows or in panels.
            let out = unsafe { self.out.slice_mut((first_row + i) * panels.n + first, columns) };
            store::<E>(self.level, &values[..columns], bias, out, self.add);
        }
    }
}
