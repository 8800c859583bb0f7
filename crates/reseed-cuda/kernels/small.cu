// Kernels that move or mix values: folding of weights, softmax and its helpers, the diagonal Gaussian, tiles.
#include "element.cuh"

// Maximum or sum over a block of at most 1024 threads, in a fixed order; every thread gets it.
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
        sum += wide(e);                                                // of what the product will see
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

template <class E>
__device__ void gaussian(E* out, const E* moments, const E* noise, int pixels, int channels, float scale) {
    FOR_EACH(i, (i64)pixels * channels) {
        const E* pixel = moments + i / channels * 2 * channels;
        float v = wide(pixel[i % channels]);
        if (noise) v += expf(0.5f * fminf(fmaxf(wide(pixel[channels + i % channels]), -30.f), 20.f)) * wide(noise[i]);
        out[i] = narrow<E>(v * scale);
    }
}

template <class E>
__device__ void blend_add(E* canvas, const E* tile, const float* rows, const float* columns, int tile_h, int tile_w, int canvas_h, int canvas_w, int channels, int y, int x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y, frame = blockIdx.z;
    if (i >= tile_w * channels) return;
    const float weight = rows[row] * columns[i / channels];
    const i64 from = ((i64)frame * tile_h + row) * tile_w * channels + i;
    const i64 to = (((i64)frame * canvas_h + y + row) * canvas_w + x) * channels + i;
    canvas[to] = weight == 1.f ? tile[from] : narrow<E>(wide(canvas[to]) + weight * wide(tile[from]));
}

#define SMALL(E, suffix)                                                                                                \
    extern "C" __global__ void pad_channels_##suffix(E* out, const E* in, i64 pixels, int from, int to) {               \
        FOR_EACH(i, pixels * to) out[i] = i % to < from ? in[i / to * from + i % to] : narrow<E>(0.f);                  \
    }                                                                                                                   \
    extern "C" __global__ void fold_##suffix(E* out, const E* w, i64 count, int parts, i64 stride) {                    \
        FOR_EACH(i, count) {                                                                                            \
            float sum = 0.f;                                                                                            \
            for (int p = 0; p < parts; p++) sum += wide(w[i + p * stride]);                                             \
            out[i] = narrow<E>(sum);                                                                                    \
        }                                                                                                               \
    }                                                                                                                   \
    extern "C" __global__ void softmax_##suffix(E* p, float* total, const float* s, int rows, int keys, int pitch, float scale) { \
        softmax<E>(p, total, s, keys, pitch, scale);                                                                    \
    }                                                                                                                   \
    extern "C" __global__ void transpose_##suffix(E* out, const E* in, int rows, int cols, int in_pitch, int out_pitch) { \
        transpose<E>(out, in, rows, cols, in_pitch, out_pitch);                                                         \
    }                                                                                                                   \
    extern "C" __global__ void divide_rows_##suffix(E* y, const float* x, const float* total, int rows, int cols, int pitch) { \
        for (int j = threadIdx.x; j < cols; j += blockDim.x)                                                            \
            y[(i64)blockIdx.x * pitch + j] = narrow<E>(x[(i64)blockIdx.x * cols + j] / total[blockIdx.x]);              \
    }                                                                                                                   \
    extern "C" __global__ void gaussian_##suffix(E* out, const E* moments, const E* noise, int pixels, int channels, float scale) { \
        gaussian<E>(out, moments, noise, pixels, channels, scale);                                                      \
    }                                                                                                                   \
    extern "C" __global__ void blend_add_##suffix(E* canvas, const E* tile, const float* rows, const float* columns,    \
                                                  int frames, int tile_h, int tile_w, int canvas_h, int canvas_w,       \
                                                  int channels, int y, int x) {                                         \
        blend_add<E>(canvas, tile, rows, columns, tile_h, tile_w, canvas_h, canvas_w, channels, y, x);                  \
    }
SMALL(f16, f16)
SMALL(bf16, bf16)
SMALL(float, f32)
