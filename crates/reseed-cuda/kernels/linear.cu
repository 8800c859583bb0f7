// linear: y = x wᵀ + bias on Hopper
//
//   x        (M, K) E and w (N, K) E through tensor maps, zero outside; y (M, N) E through one; bias (N) f32
//   add      whether the result is added to the contents of y
//   grid     clusters of two blocks, as many as fit; a cluster loops over tiles of 256 x 256, and each of its blocks
//            copies one half of the weights for both
//   block    two warpgroups multiply, 64 rows each; one thread of a third one copies
//   differs  from the reference by the order of the sums and one rounding
#include "linear.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

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
    constexpr int DEPTH = ROW / sizeof(E);
    const LinearBlock block(memory, m, n, k, DEPTH);
    linear_roles(block, map_x, map_w, DEPTH, [&](Spot tile, Ring<LINEAR_STAGES>& ring) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        float sums[LINEAR_COLUMNS / 2];                                // initialised with the bias
        #pragma unroll
        for (int j = 0; j < LINEAR_COLUMNS / 8; j++) {
            const int at = tile.column + j * 8 + lane % 4 * 2;
            const float2 b = at < n ? __ldg((const float2*)(bias + at)) : float2{0.f, 0.f};
            sums[j * 4] = sums[j * 4 + 2] = b.x, sums[j * 4 + 1] = sums[j * 4 + 3] = b.y;
        }
        block.multiply(ring, [&](u64 x, u64 w, bool) { wgmma(E{}, sums, x, w); });
        if (add) add_old(sums, y, tile.row + warp * 16 + lane / 4, tile.column + lane % 4 * 2, m, n);
        #pragma unroll
        for (int part = 0; part < 4; part++)
            block.store(map_y, tile, part, [&](int i, int j) {
                const float* sum = &sums[(part * 8 + i) * 4 + j * 2];
                return pack<E>(sum[0], sum[1]);
            });
    });
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
