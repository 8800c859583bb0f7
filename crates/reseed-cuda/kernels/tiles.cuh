// How convolutions on Hopper tile a plane.
#pragma once
#include "hopper.cuh"
#include "params.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int TILE = 16;

// Tensor maps of the input and its cache: one for square tiles, one for wide tiles.
struct Inputs { TensorMap x[2], cache[2]; };

// Output of a block at a time: 16 rows of `width` pixels, or 8 of twice as many in a wide tile.
struct Tile { int t, row, column, channel, phase; bool wide; };

// A plane in tiles: rows of square tiles and, where at most 8 rows remain, if allowed one row of wide tiles below them.
struct Cut {
    int width, columns, squares, tiles, lines;                         // `lines`: pairs of rows
    __device__ __forceinline__ Cut(const ConvArgs& c, bool may_widen, int width = TILE) : width(width) {
        const int over = c.out_h % TILE;
        const bool wide = may_widen && over > 0 && over <= TILE / 2 && c.out_w > width;
        const int rows = wide ? c.out_h / TILE : (c.out_h + TILE - 1) / TILE;
        columns = (c.out_w + width - 1) / width, squares = rows * columns,
        tiles = squares + (wide ? (columns + 1) / 2 : 0);
        lines = rows * (TILE / 2) + (wide ? TILE / 4 : 0);
    }
    // Tile `i` of all planes.
    __device__ __forceinline__ Tile tile(int i, int channel, int phase) const {
        const int at = i % tiles;
        if (at < squares) return {i / tiles, at / columns * TILE, at % columns * width, channel, phase, false};
        return {i / tiles, squares / columns * TILE, (at - squares) * 2 * width, channel, phase, true};
    }
};

#endif
