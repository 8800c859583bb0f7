// linear: y = x wᵀ + bias on Hopper
//
//   x        (M, K) E and w (N, K) E through tensor maps, zero outside; y (M, N) E through one; bias (N) f32
//   add      whether the result is added to the contents of y
//   grid     clusters of two blocks, as many as fit; a cluster loops over tiles of 256 x 256, and each of its blocks
//            copies one half of the weights for both
//   block    two warpgroups multiply, 64 rows each; one thread of a third one copies
//   differs  from the reference by the order of the sums and one rounding
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

// Adds the contents of y: rows `row` and `row` + 8, two of every eight columns.
template <class E>
__device__ __forceinline__ void add_old(float (&sums)[LINEAR_COLUMNS / 2], const E* y, int row, int column, int m,
                                        int n) {
    #pragma unroll
    for (int j = 0; j < LINEAR_COLUMNS / 4; j++) {
        const int at = column + j / 2 * 8, r = row + j % 2 * 8;
        if (at >= n || r >= m) continue;
        const auto old = Vec<E, 2>::load(y + (i64)r * n + at);
        sums[j * 2] += wide(old.at[0]), sums[j * 2 + 1] += wide(old.at[1]);
    }
}

template <class E>
__device__ void linear(const TensorMap& map_x, const TensorMap& map_w, const TensorMap& map_y, const E* y,
                       const float* bias, int add, int m, int n, int k) {
    extern __shared__ unsigned char memory[];
    const u32 stages = (shared_address(memory) + 1023) & ~1023u, outputs = stages + LINEAR_STAGES * STAGE_BYTES;
    const u32 full = outputs + 8 * 2 * BLOCK_OUT, empty = full + 8 * LINEAR_STAGES;
    const int group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        for (int i = 0; i < LINEAR_STAGES; i++) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, 4);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
    const u32 rank = cluster_rank();
    const int pairs = (m + 2 * LINEAR_ROWS - 1) / (2 * LINEAR_ROWS),
              columns = (n + LINEAR_COLUMNS - 1) / LINEAR_COLUMNS;
    const int steps = (k + 63) / 64;
    Ring<LINEAR_STAGES> ring;
    if (group == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 256) {
            for (int i = blockIdx.x / 2; i < pairs * columns; i += gridDim.x / 2) {
                const Spot tile = linear_tile(i, pairs, columns, rank);
                for (int step = 0; step < steps; step++, ring.next()) {
                    const u32 stage = stages + ring.at * STAGE_BYTES, bar = full + 8 * ring.at;
                    barrier_wait(empty + 8 * ring.at, ring.parity ^ 1);
                    barrier_expect(bar, STAGE_BYTES);
                    copy_2d(stage, &map_x, bar, step * 64, tile.row);
                    copy_2d_multicast(stage + X_BYTES + rank * W_HALF, &map_w, bar, step * 64,
                                      tile.column + rank * (LINEAR_COLUMNS / 2));
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const bool elected = threadIdx.x % 128 == 0;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const u32 output = outputs + warp * 2 * BLOCK_OUT;
        for (int i = blockIdx.x / 2; i < pairs * columns; i += gridDim.x / 2) {
            const Spot tile = linear_tile(i, pairs, columns, rank);
            float sums[LINEAR_COLUMNS / 2];                            // initialised with the bias
            #pragma unroll
            for (int j = 0; j < LINEAR_COLUMNS / 8; j++) {
                const int at = tile.column + j * 8 + lane % 4 * 2;
                const float2 b = at < n ? __ldg((const float2*)(bias + at)) : float2{0.f, 0.f};
                sums[j * 4] = sums[j * 4 + 2] = b.x, sums[j * 4 + 1] = sums[j * 4 + 3] = b.y;
            }
            int used = -1;
            for (int step = 0; step < steps; step++) {
                barrier_wait(full + 8 * ring.at, ring.parity);
                const u32 x = stages + ring.at * STAGE_BYTES + group * 64 * ROW,
                          w = stages + ring.at * STAGE_BYTES + X_BYTES;
                wgmma_fence();
                #pragma unroll
                for (int q = 0; q < ROW; q += 32)
                    wgmma(E{}, sums, descriptor(x + q, 8 * ROW), descriptor(w + q, 8 * ROW));
                wgmma_commit();
                wgmma_wait<1>();
                if (elected && used >= 0) arrive_cluster<2>(empty + 8 * used);
                used = ring.at;
                ring.next();
            }
            wgmma_wait<0>();
            if (elected) arrive_cluster<2>(empty + 8 * used);
            const int row = tile.row + warp * 16;
            if (add) add_old(sums, y, row + lane / 4, tile.column + lane % 4 * 2, m, n);
            #pragma unroll
            for (int part = 0; part < 4; part++) {                     // 64 columns at a time, in one of two buffers
                const u32 to = output + part % 2 * BLOCK_OUT + lane % 16 * ROW;
                if (lane == 0) store_wait_read<1>();
                __syncwarp();
                #pragma unroll
                for (int pair = 0; pair < 4; pair++) {                 // two chunks of eight columns
                    u32 v[4];
                    #pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const float* sum = &sums[(part * 8 + pair * 2 + j / 2) * 4 + j % 2 * 2];
                        v[j] = pack<E>(sum[0], sum[1]);
                    }
                    store_matrices(v, to + (((pair * 2 + lane / 16) ^ (lane % 8)) << 4));
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                __syncwarp();
                if (lane == 0)
                    store_2d(&map_y, output + part % 2 * BLOCK_OUT, tile.column + part * 64, row), store_commit();
            }
        }
        if (lane == 0) store_wait();
    }
    cluster_sync();  // neither block exits while the other may write to its memory
}

#define LINEAR(E) \
    extern "C" __global__ void __launch_bounds__(384, 1) __cluster_dims__(2, 1, 1) \
    linear_##E(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, \
               const __grid_constant__ TensorMap map_y, const E* y, const float* bias, int add, int m, int n, int k) { \
        linear<E>(x, w, map_y, y, bias, add, m, n, k); \
    }
LINEAR(f16)
LINEAR(bf16)

#endif
