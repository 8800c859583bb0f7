//! Linear layers: blocks of rows against groups of panels.
//!
//! A block's rows are copied once per group, turned into the tiles that the inner loop reads, and stay in a core's
//! second-level cache; a piece of a panel stays in the first level for all tiles of the block. Groups come one after the
//! other, so that all threads read the same weights at about the same time.

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;

use super::CpuOps;
use super::amx::linear as tiles;
use super::conv::{self, Blocked, Plain};
use super::finish::{Target, store};
use super::gemm::{Product, Tiles, even_parts, multiply, tile_rows};
use super::kernel::Kernel;
use super::level::Level;
use super::memory::{Element, Floats, elements, elements_mut, with_element};
use reseed_ops::Result;
use reseed_ops::Tensor;
use reseed_ops::reference;
use reseed_ops::{ConvData, ConvSpec, Linear, Packed};
use reseed_ops::{Shape, Thw};

/// Most rows of a block: full tiles of the widest level.
const ROWS: usize = 112;
/// Most columns of the input that are copied at a time.
const DEPTH: usize = 2560;
/// Rows of a panel that stay in the first-level cache.
const PIECE: usize = 256;
/// Columns turned at a time.
const TURN: usize = 64;
/// Most panels of a group.
const GROUP: usize = 64;

pub fn pack(cpu: &CpuOps, d_in: usize, d_out: usize, data: ConvData) -> Packed {
    let mut data = data;
    if cpu.tiles() && !tiles::fits(d_in) {
        cpu.round(&mut data.weight);
        let kernel = Kernel::Panels(cpu.panels(&data.weight, d_in, d_out));
        return std::sync::Arc::new(Blocked { kernel, bias: data.bias });
    }
    conv::pack(cpu, &ConvSpec::same(d_in, d_out, Thw::new(1, 1, 1)), data)
}

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
        return plain(cpu, x, linear, residual, shape);
    }
    let mut y = match residual {
        Some(residual) => cpu.writable("linear", residual)?.reshape(shape),
        None => cpu.room("linear", shape, x.dtype())?,
    };
    let weights: &Blocked = cpu.unpack(&linear.packed);
    with_element!(x.dtype(), E => {
        if let Kernel::Tiles(tiled) = &weights.kernel {
            let out = Target::new(bytemuck::cast_slice_mut(elements_mut::<E>(&mut y)));
            let x = bytemuck::cast_slice(elements::<E>(x));
            let matrix = tiles::Matrix { level: cpu.simd(), x, weights: tiled, bias: &weights.bias, out, add };
            cpu.install(|| matrix.run(cpu.threads()));
            return Ok(y);
        }
        let out = Target::new(elements_mut::<E>(&mut y));
        let matrix = Matrix { level: cpu.simd(), x: elements::<E>(x), weights, out, add };
        cpu.install(|| matrix.run(cpu.threads()));
    });
    Ok(y)
}

fn plain(cpu: &CpuOps, x: &Tensor, linear: &Linear, residual: Option<Tensor>, shape: Shape) -> Result<Tensor> {
    let weights: &Plain = cpu.unpack(&linear.packed);
    let mut y = cpu.install(|| reference::linear(&cpu.doubles(x), &weights.weight, &weights.bias));
    if let Some(residual) = &residual {
        y.iter_mut().zip(cpu.doubles(residual)).for_each(|(y, r)| *y += r);
    }
    cpu.rounded(shape, &y)
}

struct Matrix<'a, E> {
    level: Level,
    x: &'a [E],
    weights: &'a Blocked,
    out: Target<E>,
    add: bool,
}

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
        // Four jobs a thread let the last ones finish together.
        let groups = panels.count().div_ceil(GROUP).max((4 * threads).div_ceil(blocks.len())).min(panels.count());
        let groups: Vec<_> = even_parts(panels.count(), panels.count().div_ceil(groups)).collect();
        (0..groups.len() * blocks.len()).into_par_iter().for_each(|job| {
            let (first, last) = groups[job / blocks.len()];
            let rows = blocks[job % blocks.len()].clone();
            SCRATCH.with_borrow_mut(|scratch| self.block(rows, first..last, scratch));
        });
    }

    /// Some rows of the output, the columns of some panels.
    fn block(&self, rows: Range<usize>, group: Range<usize>, scratch: &mut Scratch) {
        let (panels, level) = (self.weights.kernel.panels(), self.level);
        let (width, count) = (panels.width, rows.len());
        let depths: Vec<_> = even_parts(panels.k, DEPTH).collect();
        // Sums of one panel are finished at once, unless the depth comes in parts.
        let slots = if depths.len() > 1 { group.len() } else { 1 };
        let sums = scratch.sums.at_least(slots * count * width);
        for (part, &(first, last)) in depths.iter().enumerate() {
            let tiles = scratch.tiles.at_least(count * (last - first));
            self.turn(rows.clone(), first..last, tiles);
            for (i, panel) in group.clone().enumerate() {
                let sums = &mut sums[i % slots * count * width..][..count * width];
                let b = panels.rows(level, panel, first..last, &mut scratch.panel);
                self.product(tiles, count, b, sums, part == 0);
                if part + 1 == depths.len() {
                    self.finish(rows.start, panel, sums);
                }
            }
        }
    }

    /// Tile after tile, the columns of the input one behind the other.
    fn turn(&self, rows: Range<usize>, depth: Range<usize>, tiles: &mut [f32]) {
        let k = self.weights.kernel.panels().k;
        let side = tile_rows(self.level);
        for (i, tile) in tiles.chunks_mut(side * depth.len()).enumerate() {
            let height = tile.len() / depth.len();
            // A few columns at a time, so that all rows of them meet in the first-level cache.
            for (part, to) in tile.chunks_mut(TURN * height).enumerate() {
                for r in 0..height {
                    let row = (rows.start + i * side + r) * k;
                    let from = &self.x[row + depth.start + part * TURN..][..to.len() / height];
                    to[r..].iter_mut().step_by(height).zip(from).for_each(|(to, v)| *to = v.to_f32());
                }
            }
        }
    }

    fn product(&self, tiles: &[f32], count: usize, b: &[f32], sums: &mut [f32], fresh: bool) {
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
                    tiles: Tiles::Joined,
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
                    fresh: fresh && first == 0,
                };
                multiply(self.level, product);
            }
        }
    }

    fn finish(&self, first_row: usize, panel: usize, sums: &mut [f32]) {
        let panels = self.weights.kernel.panels();
        let first = panel * panels.width;
        let columns = panels.width.min(panels.n - first);
        let bias = &self.weights.bias[first..][..columns];
        for (i, values) in sums.chunks_exact(panels.width).enumerate() {
            // SAFETY: jobs differ in rows or in panels.
            let out = unsafe { self.out.piece((first_row + i) * panels.n + first, columns) };
            store::<E>(self.level, &values[..columns], bias, out, self.add);
        }
    }
}
