// softmax, transpose, divide_rows: attention of one head as two matrix products, where no fused kernel fits the head
//
//   softmax      p = exp((s - max) * scale) rounded to E, and its row sums        s, p  (queries, pitch), keys of them
//                a block per query; p is zero from `keys` to `pitch`
//   transpose    values (rows, cols) E to (cols, out_pitch) E, zero from `rows` on; 32 x 32 tiles, 32 x 8 threads
//   divide_rows  y = x / total by rows: x (queries, cols) f32, y (queries, cols) E, rows of y `pitch` values apart
//   differs      from the reference by the order of the sums, the rounding of the weights and that of the result
#include "element.cuh"

// Maximum or sum over a block of at most 1024 threads, in a fixed order, returned to every thread.
template <bool MAX>
__device__ float block_reduce(float v) {
    __shared__ float parts[32];
    auto both = [](float a, float b) { return MAX ? fmaxf(a, b) : a + b; };
    for (int d = 16; d > 0; d /= 2) v = both(v, __shfl_xor_sync(~0u, v, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    v = parts[0];
    for (int i = 1; i < blockDim.x / 32; i++) v = both(v, parts[i]);
    return v;
}

template <class E>
__device__ void softmax(E* p, float* total, const float* s, int keys, int pitch, float scale) {
    const i64 row = (i64)blockIdx.x * pitch;
    float top = -3.4e38f, sum = 0.f;
    for (int j = threadIdx.x; j < keys; j += blockDim.x) top = fmaxf(top, s[row + j]);
    top = block_reduce<true>(top);
    for (int j = threadIdx.x; j < pitch; j += blockDim.x) {
        const E e = narrow<E>(j < keys ? __expf((s[row + j] - top) * scale) : 0.f);
        p[row + j] = e;
        sum += wide(e);                                                // of the rounded values, which the product reads
    }
    sum = block_reduce<false>(sum);
    if (threadIdx.x == 0) total[blockIdx.x] = sum;
}

template <class E>
__device__ void transpose(E* out, const E* in, int rows, int cols, int in_pitch, int out_pitch) {
    __shared__ E tile[32][33];
    const int r0 = blockIdx.y * 32, c0 = blockIdx.x * 32;
    for (int i = threadIdx.y; i < 32; i += 8) {
        const int r = r0 + i, c = c0 + threadIdx.x;
        tile[i][threadIdx.x] = r < rows && c < cols ? in[(i64)r * in_pitch + c] : narrow<E>(0.f);
    }
    __syncthreads();
    for (int i = threadIdx.y; i < 32; i += 8) {
        const int c = c0 + i, r = r0 + threadIdx.x;
        if (c < cols && r < out_pitch) out[(i64)c * out_pitch + r] = tile[threadIdx.x][i];
    }
}

#define ATTENTION(E, suffix) \
    extern "C" __global__ void softmax_##suffix(E* p, float* total, const float* s, int rows, int keys, int pitch, \
                                                float scale) { \
        softmax<E>(p, total, s, keys, pitch, scale); \
    } \
    extern "C" __global__ void transpose_##suffix(E* out, const E* in, int rows, int cols, int in_pitch, \
                                                  int out_pitch) { \
        transpose<E>(out, in, rows, cols, in_pitch, out_pitch); \
    } \
    extern "C" __global__ void divide_rows_##suffix(E* y, const float* x, const float* total, int rows, int cols, \
                                                    int pitch) { \
        for (int j = threadIdx.x; j < cols; j += blockDim.x) \
            y[(i64)blockIdx.x * pitch + j] = narrow<E>(x[(i64)blockIdx.x * cols + j] / total[blockIdx.x]); \
    }
ATTENTION(f16, f16)
SINCE_AMPERE(ATTENTION(bf16, bf16))
ATTENTION(float, f32)
