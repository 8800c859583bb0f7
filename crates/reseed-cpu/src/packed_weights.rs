//! The weights of a convolution or a linear layer, packed for the level of the device.

use crate::CpuOps;
use crate::host::level::Level;
use crate::simd::blocked;
use crate::simd::panels::{self, Panels, Weights};
use crate::simd::region::{Region, Window};
use crate::tiles::shape::PANEL;
use crate::tiles::weights::TileWeights;
use crate::tiles::{conv as tile_conv, winograd as tile_winograd};
use reseed_ops::ConvSpec;
use reseed_ops::{Hw, Thw};

/// Packed weights. A part is a temporal tap, a tap is a position of the spatial kernel.
pub enum PackedWeights {
    /// For SIMD registers. The rows of the panels are (part, tap, channel).
    Panels(Weights),
    /// For tiles.
    Tiles(TileWeights),
}

impl PackedWeights {
    /// Packs `[c_out, c_in, parts, taps]`, rounded to the element type of the device.
    pub fn pack(cpu: &CpuOps, mut weight: Vec<f32>, spec: &ConvSpec) -> PackedWeights {
        let ConvSpec { c_in, c_out, taps: Thw { t: parts, h, w }, .. } = *spec;
        if !(cpu.uses_tiles() && tile_conv::supports(c_in)) {
            cpu.round_weights(&mut weight);
            return PackedWeights::Panels(cpu.panels(&weight, c_in, c_out));
        }
        let value = |part: usize, tap: usize, channel: usize, output: usize| {
            weight[((output * c_in + channel) * parts + part) * h * w + tap]
        };
        if !tile_winograd::supports(spec) {
            return PackedWeights::Tiles(cpu.install(|| TileWeights::pack([parts, h * w, c_in, c_out], value)));
        }
        let transformed = |part: usize, position: usize, column: usize, slot: usize, output: usize| {
            let row = |row: usize| value(part, row * w + column, tile_winograd::channel(slot), output);
            tile_winograd::transform_kernel(position, [row(0), row(1), row(2)])
        };
        PackedWeights::Tiles(
            cpu.install(|| TileWeights::pack_positions([parts, tile_winograd::POSITIONS, w, c_in, c_out], transformed)),
        )
    }

    /// Packs computed panels whose values are already rounded.
    pub fn from_panels(cpu: &CpuOps, panels: Panels, parts: usize, taps: usize) -> PackedWeights {
        match cpu.uses_tiles() && tile_conv::supports(panels.k / parts / taps) {
            true => PackedWeights::Tiles(pack_tiles(&panels, parts, taps)),
            false => PackedWeights::Panels(panels.narrow()),
        }
    }

    /// The same for panels that are used once: they stay in f32.
    pub fn from_temporary_panels(cpu: &CpuOps, panels: Panels, parts: usize, taps: usize) -> PackedWeights {
        match cpu.uses_tiles() && tile_conv::supports(panels.k / parts / taps) {
            true => PackedWeights::Tiles(pack_tiles(&panels, parts, taps)),
            false => PackedWeights::Panels(panels.into()),
        }
    }

    /// The sum of one part of each of several weights: the weights of taps that read the same frame.
    pub fn fold(level: Level, parts: &[(&PackedWeights, usize)], rows: usize) -> PackedWeights {
        match parts[0].0 {
            PackedWeights::Panels(_) => {
                let panels: Vec<_> = parts.iter().map(|(weights, part)| (weights.panels(), part * rows)).collect();
                PackedWeights::Panels(panels::fold(level, &panels, rows).into())
            }
            PackedWeights::Tiles(_) => {
                let tiles: Vec<_> = parts.iter().map(|(weights, part)| (weights.tiles(), *part)).collect();
                PackedWeights::Tiles(TileWeights::fold(&tiles))
            }
        }
    }

    /// Number of panels.
    pub fn count(&self) -> usize {
        match self {
            PackedWeights::Panels(panels) => panels.count(),
            PackedWeights::Tiles(tiles) => tiles.count(),
        }
    }

    /// Output channels of a panel.
    pub fn width(&self) -> usize {
        match self {
            PackedWeights::Panels(panels) => panels.width,
            PackedWeights::Tiles(_) => PANEL,
        }
    }

    /// Splits an output plane and its channels into enough regions to keep all threads busy.
    pub fn regions(&self, cpu: &CpuOps, output: Hw, window: &Window, frames: usize) -> Vec<Region> {
        match self {
            PackedWeights::Panels(_) => {
                blocked::regions(cpu.simd(), output, window, self.count(), frames, cpu.threads())
            }
            PackedWeights::Tiles(tiles) => tile_conv::regions(output, window, tiles, frames, cpu.threads()),
        }
    }

    /// The panels. All weights of one layer have the same representation.
    pub fn panels(&self) -> &Weights {
        match self {
            PackedWeights::Panels(panels) => panels,
            PackedWeights::Tiles(_) => panic!("weights in tiles have no panels"),
        }
    }

    /// The tiles. All weights of one layer have the same representation.
    pub fn tiles(&self) -> &TileWeights {
        match self {
            PackedWeights::Tiles(tiles) => tiles,
            PackedWeights::Panels(_) => panic!("weights in panels have no tiles"),
        }
    }
}

fn pack_tiles(panels: &Panels, parts: usize, taps: usize) -> TileWeights {
    let (c, n, width) = (panels.k / parts / taps, panels.n, panels.width);
    TileWeights::pack([parts, taps, c, n], |part, tap, channel, output| {
        panels.panel(output / width, (part * taps + tap) * c + channel)[output % width]
    })
}
