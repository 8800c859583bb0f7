// Shared by matrix products on Hopper: clusters of two blocks, copies of their operands, sums and stores of tiles.
#pragma once
#include "hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int LINEAR_ROWS = 128, LINEAR_COLUMNS = 256, LINEAR_STAGES = 4;
constexpr int X_BYTES = LINEAR_ROWS * ROW, W_HALF = LINEAR_COLUMNS / 2 * ROW, STAGE_BYTES = X_BYTES + 2 * W_HALF;
constexpr int BLOCK_OUT = 16 * ROW;                                    // 64 columns of a warp's 16 rows

// Tiles in bands of eight pairs of rows, so that blocks that run at the same time share rows and columns in the L2
// cache.
struct Spot { int row, column; };
__device__ __forceinline__ Spot linear_tile(int i, int pairs, int columns, u32 rank) {
    constexpr int BAND = 8;
    const int band = i / (BAND * columns), within = i % (BAND * columns), height = min(BAND, pairs - band * BAND);
    return {((band * BAND + within % height) * 2 + (int)rank) * LINEAR_ROWS, within / height * LINEAR_COLUMNS};
}

// Shared memory of a block, and the tiles of its cluster.
struct LinearBlock {
    u32 stages, outputs, full, empty, rank;
    int pairs, columns, steps;

    // `depth` values of a row are 128 bytes.
    __device__ __forceinline__ LinearBlock(const void* memory, int m, int n, int k, int depth) {
        stages = (shared_address(memory) + 1023) & ~1023u, outputs = stages + LINEAR_STAGES * STAGE_BYTES;
        full = outputs + 8 * 2 * BLOCK_OUT, empty = full + 8 * LINEAR_STAGES;
        if (threadIdx.x == 0) {
            for (int i = 0; i < LINEAR_STAGES; i++) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, 4);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        cluster_sync();
        rank = cluster_rank();
        pairs = (m + 2 * LINEAR_ROWS - 1) / (2 * LINEAR_ROWS), columns = (n + LINEAR_COLUMNS - 1) / LINEAR_COLUMNS;
        steps = (k + depth - 1) / depth;
    }

    // Calls body for every tile of the block.
    template <class Body> __device__ __forceinline__ void tiles(Body body) const {
        for (int i = blockIdx.x / 2; i < pairs * columns; i += gridDim.x / 2)
            body(linear_tile(i, pairs, columns, rank));
    }

    // Copies the operands of all tiles: one thread.
    __device__ __forceinline__ void copy(const TensorMap& map_x, const TensorMap& map_w, int depth) const {
        Ring<LINEAR_STAGES> ring;
        tiles([&](Spot tile) {
            for (int step = 0; step < steps; step++, ring.next()) {
                const u32 stage = stages + ring.at * STAGE_BYTES, bar = full + 8 * ring.at;
                barrier_wait(empty + 8 * ring.at, ring.parity ^ 1);
                barrier_expect(bar, STAGE_BYTES);
                copy_2d(stage, &map_x, bar, step * depth, tile.row);
                copy_2d_multicast(stage + X_BYTES + rank * W_HALF, &map_w, bar, step * depth,
                                  tile.column + rank * (LINEAR_COLUMNS / 2));
            }
        });
    }

    // Adds the products of a tile: one warpgroup, 64 rows. product(x, w, first) is that of 32 bytes of every row.
    template <class Product>
    __device__ __forceinline__ void multiply(Ring<LINEAR_STAGES>& ring, Product product) const {
        const int group = threadIdx.x / 128;
        const bool elected = threadIdx.x % 128 == 0;
        int used = -1;
        for (int step = 0; step < steps; step++) {
            barrier_wait(full + 8 * ring.at, ring.parity);
            const u32 x = stages + ring.at * STAGE_BYTES + group * 64 * ROW,
                      w = stages + ring.at * STAGE_BYTES + X_BYTES;
            wgmma_fence();
            #pragma unroll
            for (int q = 0; q < ROW; q += 32)
                product(descriptor(x + q, 8 * ROW), descriptor(w + q, 8 * ROW), step == 0 && q == 0);
            wgmma_commit();
            wgmma_wait<1>();
            if (elected && used >= 0) arrive_cluster<2>(empty + 8 * used);
            used = ring.at;
            ring.next();
        }
        wgmma_wait<0>();
        if (elected) arrive_cluster<2>(empty + 8 * used);
    }

    // Stores 64 columns of a warp's 16 rows, through one of two buffers. pair(i, j) are two columns of chunk i of eight
    // columns, of row lane / 4 + 8 j, packed.
    template <class Pair>
    __device__ __forceinline__ void store(const TensorMap& map_y, Spot tile, int part, Pair pair) const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const u32 output = outputs + (warp * 2 + part % 2) * BLOCK_OUT, to = output + lane % 16 * ROW;
        if (lane == 0) store_wait_read<1>();
        __syncwarp();
        #pragma unroll
        for (int chunk = 0; chunk < 8; chunk += 2) {
            const u32 v[4] = {pair(chunk, 0), pair(chunk, 1), pair(chunk + 1, 0), pair(chunk + 1, 1)};
            store_matrices(v, to + (((chunk + lane / 16) ^ (lane % 8)) << 4));
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0)
            store_2d(&map_y, output, tile.column + part * 64, tile.row + warp * 16), store_commit();
    }
};

// The roles of a block: two warpgroups compute, one thread of a third one copies.
template <class Compute>
__device__ __forceinline__ void linear_roles(const LinearBlock& block, const TensorMap& map_x, const TensorMap& map_w,
                                             int depth, Compute compute) {
    if (threadIdx.x / 128 == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 256) block.copy(map_x, map_w, depth);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        Ring<LINEAR_STAGES> ring;
        block.tiles([&](Spot tile) { compute(tile, ring); });
        if (threadIdx.x % 32 == 0) store_wait();
    }
    cluster_sync();  // neither block exits while the other may write to its memory
}

#endif
