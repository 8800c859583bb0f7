// linear_int8: y = scale ⊙ (x wᵀ) ⊙ scales + bias on Hopper, products of 8-bit integers
//
//   x        (M, K) and w (N, K) signed bytes through tensor maps, zero outside; y (M, N) E through one
//   scale    (M) f32, of the rows of x        factors  (N) pairs of f32: the scale of a row of w, and the bias
//   add      whether the result is added to the contents of y
//   grid     as of `linear`
//   differs  from the reference by roundings of f32 after the sum, which is exact, and one of the result
#include "linear.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <class E>
__device__ void linear_int8(const TensorMap& map_x, const TensorMap& map_w, const TensorMap& map_y, const E* y,
                            const float* scale, const float* factors, int add, int m, int n, int k) {
    extern __shared__ unsigned char memory[];
    const LinearBlock block(memory, m, n, k, ROW);
    linear_roles(block, map_x, map_w, ROW, [&](Spot tile, Ring<LINEAR_STAGES>& ring) {
        const int lane = threadIdx.x % 32, row = tile.row + threadIdx.x / 32 * 16 + lane / 4;
        const int column = tile.column + lane % 4 * 2;
        int sums[LINEAR_COLUMNS / 2] = {};
        const float scales[2] = {row < m ? __ldg(scale + row) : 0.f, row + 8 < m ? __ldg(scale + row + 8) : 0.f};
        block.multiply(s8{}, sums, ring);
        block.store(map_y, tile, [&](int i, int j) {
            const int at = column + i * 8, r = row + j * 8;
            float4 f = {0.f, 0.f, 0.f, 0.f};
            if (at < n) f = __ldg((const float4*)(factors + 2 * at));
            float a = (float)sums[i * 4 + j * 2] * (scales[j] * f.x) + f.y;
            float b = (float)sums[i * 4 + j * 2 + 1] * (scales[j] * f.z) + f.w;
            if (add && at < n && r < m) {
                const auto old = Vec<E, 2>::load(y + (i64)r * n + at);
                a += wide(old.at[0]), b += wide(old.at[1]);
            }
            return pack<E>(a, b);
        });
    });
}

#define LINEAR_INT8(E) \
    extern "C" __global__ void __launch_bounds__(384, 1) __cluster_dims__(2, 1, 1) \
    linear_int8_##E(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, \
                    const __grid_constant__ TensorMap map_y, const E* y, const float* scale, const float* factors, \
                    int add, int m, int n, int k) { \
        linear_int8<E>(x, w, map_y, y, scale, factors, add, m, n, k); \
    }
LINEAR_INT8(f16)
LINEAR_INT8(bf16)

#endif
