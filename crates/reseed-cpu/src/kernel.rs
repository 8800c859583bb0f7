//! A convolution's weights, packed once for the level in use.

use super::CpuOps;
use super::amx::{PANEL, pairs, sums, weights::Tiled};
use super::blocked::{self, Region, Window};
use super::level::Level;
use super::panels::{self, Panels, Weights};
use reseed_ops::ConvSpec;
use reseed_ops::{Hw, Thw};

/// Parts (temporal taps) of taps of channels, by outputs.
pub enum Kernel {
    /// For registers: rows of panels are (part, tap, channel).
    Panels(Weights),
    /// For tiles.
    Tiles(Tiled),
}

impl Kernel {
    /// Packs a convolution's `[c_out, c_in, parts, taps]`, rounded as the device's type would hold them.
    pub fn pack(cpu: &CpuOps, mut weight: Vec<f32>, spec: &ConvSpec) -> Kernel {
        let ConvSpec { c_in, c_out, taps: Thw { t: parts, h, w }, .. } = *spec;
        if !(cpu.tiles() && sums::fits(c_in)) {
            cpu.round(&mut weight);
            return Kernel::Panels(cpu.panels(&weight, c_in, c_out));
        }
        let value = |part: usize, tap: usize, channel: usize, output: usize| {
            weight[((output * c_in + channel) * parts + part) * h * w + tap]
        };
        if !pairs::fits(spec) {
            return Kernel::Tiles(cpu.install(|| Tiled::pack([parts, h * w, c_in, c_out], value)));
        }
        let paired = |part: usize, position: usize, column: usize, slot: usize, output: usize| {
            let row = |row: usize| value(part, row * w + column, pairs::channel(slot), output);
            pairs::kernel(position, [row(0), row(1), row(2)])
        };
        Kernel::Tiles(cpu.install(|| Tiled::pack_positions([parts, pairs::POSITIONS, w, c_in, c_out], paired)))
    }

    /// Keeps panels that were computed, and that have been rounded.
    pub fn keep(cpu: &CpuOps, panels: Panels, parts: usize, taps: usize) -> Kernel {
        match cpu.tiles() && sums::fits(panels.k / parts / taps) {
            true => Kernel::Tiles(tiled(&panels, parts, taps)),
            false => Kernel::Panels(panels.keep()),
        }
    }

    /// The same for panels of a single run, without looking for a narrower type.
    pub fn lend(cpu: &CpuOps, panels: Panels, parts: usize, taps: usize) -> Kernel {
        match cpu.tiles() && sums::fits(panels.k / parts / taps) {
            true => Kernel::Tiles(tiled(&panels, parts, taps)),
            false => Kernel::Panels(panels.into()),
        }
    }

    /// Sums one part of each kernel: what multiplies a frame that all of them read.
    pub fn fold(level: Level, parts: &[(&Kernel, usize)], rows: usize) -> Kernel {
        match parts[0].0 {
            Kernel::Panels(_) => {
                let panels: Vec<_> = parts.iter().map(|(kernel, part)| (kernel.panels(), part * rows)).collect();
                Kernel::Panels(panels::fold(level, &panels, rows).into())
            }
            Kernel::Tiles(_) => {
                let tiles: Vec<_> = parts.iter().map(|(kernel, part)| (kernel.tiles(), *part)).collect();
                Kernel::Tiles(Tiled::fold(&tiles))
            }
        }
    }

    /// Number of panels.
    pub fn count(&self) -> usize {
        match self {
            Kernel::Panels(panels) => panels.count(),
            Kernel::Tiles(tiles) => tiles.count(),
        }
    }

    /// Outputs of a panel.
    pub fn width(&self) -> usize {
        match self {
            Kernel::Panels(panels) => panels.width,
            Kernel::Tiles(_) => PANEL,
        }
    }

    /// Cuts an output plane and its channels into regions, enough of them to keep the threads busy.
    pub fn regions(&self, cpu: &CpuOps, output: Hw, window: &Window, frames: usize) -> Vec<Region> {
        match self {
            Kernel::Panels(_) => blocked::regions(cpu.simd(), output, window, self.count(), frames, cpu.threads()),
            Kernel::Tiles(tiles) => sums::regions(output, window, tiles, frames, cpu.threads()),
        }
    }

    /// The panels; kernels of one layer are all of one kind.
    pub fn panels(&self) -> &Weights {
        match self {
            Kernel::Panels(panels) => panels,
            Kernel::Tiles(_) => panic!("panels of a kernel in tiles"),
        }
    }

    /// The tiles.
    pub fn tiles(&self) -> &Tiled {
        match self {
            Kernel::Tiles(tiles) => tiles,
            Kernel::Panels(_) => panic!("tiles of a kernel in panels"),
        }
    }
}

fn tiled(panels: &Panels, parts: usize, taps: usize) -> Tiled {
    let (c, n, width) = (panels.k / parts / taps, panels.n, panels.width);
    Tiled::pack([parts, taps, c, n], |part, tap, channel, output| {
        panels.panel(output / width, (part * taps + tap) * c + channel)[output % width]
    })
}
