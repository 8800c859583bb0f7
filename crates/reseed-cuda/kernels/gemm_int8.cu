// gemm_int8: y = scale ⊙ (x wᵀ) ⊙ scales + bias, products of 8-bit integers on every GPU
//
//   x        (M, K) and w (N, K) signed bytes, K in multiples of 16; y (M, N) E, N in multiples of eight
//   scale    (M) f32, of the rows of x        factors  (N) pairs of f32: the scale of a row of w, and the bias
//   add      whether the result is added to the contents of y
//   grid     (M / 128, N / 128): one block owns 128 rows and columns
//   block    256 threads, a warp multiplies 64 x 32; four stages of copies, two on Turing
//   differs  from the reference by roundings of f32 after the sum, which is exact, and one of the result
#include "element.cuh"

template <class E>
__device__ void gemm_int8(E* y, const u8* x, const u8* w, const float* scale, const float* factors, int add, int m,
                          int n, int k) {
    constexpr int TILE = 128, BK = 64, PITCH = BK + 16;                // rows of 80 bytes: no bank conflicts
    constexpr int STAGES = __CUDA_ARCH__ >= 800 ? 4 : 2, MI = 4, NJ = 4;
    extern __shared__ unsigned char memory[];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, byte = thread % 4 * 16;
    const int first_row = blockIdx.x * TILE, first_column = blockIdx.y * TILE, steps = (k + BK - 1) / BK;
    const u32 tiles = shared_address(memory);

    int loaded = 0;
    auto load = [&] {
        if (loaded < steps) {
            const u32 tile = tiles + loaded % STAGES * 2 * TILE * PITCH;
            const int at = loaded * BK + byte;
            #pragma unroll
            for (int i = 0; i < 4; i++) {                              // 64 rows of x twice, then of w
                const int line = i % 2 * 64 + thread / 4, row = (i < 2 ? first_row : first_column) + line;
                const bool inside = at < k && row < (i < 2 ? m : n);
                const u8* from = i < 2 ? x : w;
                copy_async(tile + (i / 2 * TILE + line) * PITCH + byte, inside ? from + (i64)row * k + at : from,
                           inside);
            }
            loaded++;
        }
        copy_commit();
    };

    int sums[MI][NJ][4] = {};
    const int warp_m = warp % 2 * MI * 16, warp_n = warp / 2 * NJ * 8;
    for (int s = 0; s < STAGES - 1; s++) load();
    for (int step = 0; step < steps; step++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        load();
        const u32 tile = tiles + step % STAGES * 2 * TILE * PITCH;
        #pragma unroll
        for (int q = 0; q < BK; q += 32) {
            u32 a[MI][4], b[NJ / 2][4];
            #pragma unroll
            for (int i = 0; i < MI; i++)
                load_matrix(a[i], tile + (warp_m + i * 16 + lane % 16) * PITCH + q + lane / 16 * 16);
            #pragma unroll
            for (int j = 0; j < NJ / 2; j++)
                load_matrix(b[j], tile + (TILE + warp_n + j * 16 + lane / 16 * 8 + lane % 8) * PITCH + q +
                                      lane / 8 % 2 * 16);
            #pragma unroll
            for (int i = 0; i < MI; i++)
                #pragma unroll
                for (int j = 0; j < NJ; j++) mma(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
    #pragma unroll
    for (int i = 0; i < 2 * MI; i++) {                                 // 16 rows i / 2, rows 0..7 or 8..15 of them
        const int row = first_row + warp_m + i / 2 * 16 + i % 2 * 8 + lane / 4;
        if (row >= m) continue;
        const float s = scale[row];
        #pragma unroll
        for (int j = 0; j < NJ; j++) {
            const int column = first_column + warp_n + j * 8 + lane % 4 * 2;
            if (column >= n) continue;
            const auto f = Vec<float, 4>::load(factors + 2 * column);
            E* const to = y + (i64)row * n + column;
            float v[2] = {(float)sums[i / 2][j][i % 2 * 2] * (s * f.at[0]) + f.at[1],
                          (float)sums[i / 2][j][i % 2 * 2 + 1] * (s * f.at[2]) + f.at[3]};
            if (add) v[0] += wide(to[0]), v[1] += wide(to[1]);
            Vec<E, 2>{narrow<E>(v[0]), narrow<E>(v[1])}.store(to);
        }
    }
}

#define GEMM_INT8(E) \
    extern "C" __global__ void __launch_bounds__(256) gemm_int8_##E(E* y, const u8* x, const u8* w, \
                                                                    const float* scale, const float* factors, \
                                                                    int add, int m, int n, int k) { \
        gemm_int8<E>(y, x, w, scale, factors, add, m, n, k); \
    }
GEMM_INT8(f16)
SINCE_AMPERE(GEMM_INT8(bf16))
