// linear_int8: y = scale ⊙ (x wᵀ) ⊙ scales + bias on Hopper, products of 8-bit integers
//
//   x        (M, K) and w (N, K) signed bytes through tensor maps, zero outside; y (M, N) E through one
//   scale    (M) f32, of the rows of x
//   factors  (N) pairs of f32: the scale of a row of w, and the bias; padded to whole tiles of 256 columns, because
//            between tiles no product runs, and every test of a column would lengthen that time
//   grid     as of `linear`
//   differs  from the reference by roundings of f32 after the sum, which is exact, and one of the result
#include "linear.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <class E>
__device__ void linear_int8(const TensorMap& map_x, const TensorMap& map_w, const TensorMap& map_y, const float* scale,
                            const float* factors, int m, int n, int k) {
    extern __shared__ unsigned char memory[];
    const LinearBlock block(memory, m, n, k, ROW);
    linear_roles(block, map_x, map_w, ROW, [&](Spot tile, Ring<LINEAR_STAGES>& ring) {
        const int lane = threadIdx.x % 32, row = tile.row + threadIdx.x / 32 * 16 + lane / 4;
        const float scales[2] = {row < m ? __ldg(scale + row) : 0.f, row + 8 < m ? __ldg(scale + row + 8) : 0.f};
        int sums[LINEAR_COLUMNS / 2];
        block.multiply(ring, [&](u64 x, u64 w, bool first) { wgmma(s8{}, sums, x, w, !first); });
        #pragma unroll
        for (int part = 0; part < 4; part++) {
            const float* first = factors + 2 * (tile.column + part * 64 + lane % 4 * 2);
            float4 f[8];                                               // of two columns in each chunk of eight
            #pragma unroll
            for (int i = 0; i < 8; i++) f[i] = __ldg((const float4*)(first + i * 16));
            block.store(map_y, tile, part, [&](int i, int j) {
                const int* sum = &sums[(part * 8 + i) * 4 + j * 2];
                return pack<E>((float)sum[0] * (scales[j] * f[i].x) + f[i].y,
                               (float)sum[1] * (scales[j] * f[i].z) + f[i].w);
            });
        }
    });
}

#define LINEAR_INT8(E) \
    extern "C" __global__ void __launch_bounds__(384, 1) __cluster_dims__(2, 1, 1) \
    linear_int8_##E(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, \
                    const __grid_constant__ TensorMap y, const float* scale, const float* factors, int m, int n, \
                    int k) { \
        linear_int8<E>(x, w, y, scale, factors, m, n, k); \
    }
LINEAR_INT8(f16)
LINEAR_INT8(bf16)

#endif
