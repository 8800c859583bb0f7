// The ops of a transformer: norms and modulation, gates, activations, rotary queries and keys, rows, windows.
//
//   tokens   (rows, channels) E, dense        gains, shifts, gates, turns f32        rows, places u32
//   differs  from the reference by the order of the sums and one rounding
#include "element.cuh"

#define EACH(i, n) for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)

__device__ __forceinline__ float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    return v;
}

__device__ __forceinline__ float warp_max(float v) {
    for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, d));
    return v;
}

// rms_norm_modulate: y = x / sqrt(mean(x^2) + eps) * gain + shift, a warp a row, eight rows a block
template <class E>
__device__ void rms_norm_modulate(E* y, const E* x, const float* gain, const float* shift, i64 rows, int channels, float eps) {
    const i64 row = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= rows) return;
    const int lane = threadIdx.x % 32;
    x += row * channels, y += row * channels;
    float sum = 0.f;
    if (channels % 8 == 0) {
        for (int c = lane * 8; c < channels; c += 256) {
            const Eight<E> v = *(const Eight<E>*)(x + c);
            #pragma unroll
            for (int j = 0; j < 8; j++) sum += wide(v.at[j]) * wide(v.at[j]);
        }
    } else {
        for (int c = lane; c < channels; c += 32) sum += wide(x[c]) * wide(x[c]);
    }
    const float scale = 1.f / sqrtf(warp_sum(sum) / channels + eps);
    if (channels % 8 == 0) {
        for (int c = lane * 8; c < channels; c += 256) {
            Eight<E> v = *(const Eight<E>*)(x + c);
            #pragma unroll
            for (int j = 0; j < 8; j++) v.at[j] = narrow<E>(wide(v.at[j]) * scale * gain[c + j] + shift[c + j]);
            *(Eight<E>*)(y + c) = v;
        }
    } else {
        for (int c = lane; c < channels; c += 32) y[c] = narrow<E>(wide(x[c]) * scale * gain[c] + shift[c]);
    }
}

// One stream's q, k and v, and the gains of its queries and keys; the other stream's rows count on behind `rows`.
template <class E>
struct QkvStreams {
    const E* at[2];
    const float* gain[2][2];
    i64 rows;
};

// qk_norm_rope: row i of y is row rows[i] of the streams, q and k of each head normalised, gained and turned; a warp a head
template <class E>
__device__ void qk_norm_rope(E* y, QkvStreams<E> streams, const u32* rows, const float2* turns, const u32* places, i64 count, int heads, int d, int frequencies, float eps) {
    const i64 part = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (part >= count * 3 * heads) return;
    const i64 token = part / (3 * heads);
    const int lane = threadIdx.x % 32, head = part % (3 * heads), which = head / heads;
    i64 row = rows[token];
    const int stream = row >= streams.rows;
    if (stream) row -= streams.rows;
    const E* x = streams.at[stream] + (row * 3 * heads + head) * d;
    y += part * d;
    if (which == 2) {
        for (int c = lane; c < d; c += 32) y[c] = x[c];
        return;
    }
    float sum = 0.f;
    for (int c = lane; c < d; c += 32) sum += wide(x[c]) * wide(x[c]);
    const float scale = 1.f / sqrtf(warp_sum(sum) / d + eps);
    const float* gain = streams.gain[stream][which];
    for (int pair = lane; pair < d / 2; pair += 32) {
        const float a = wide(x[2 * pair]) * scale * gain[2 * pair], b = wide(x[2 * pair + 1]) * scale * gain[2 * pair + 1];
        float cos = 1.f, sin = 0.f;
        if (pair < 3 * frequencies) {
            const u32 place = places[token * 3 + pair / frequencies];
            const float2 turn = turns[(i64)place * frequencies + pair % frequencies];
            cos = turn.x, sin = turn.y;
        }
        y[2 * pair] = narrow<E>(a * cos - b * sin), y[2 * pair + 1] = narrow<E>(b * cos + a * sin);
    }
}

// window_attention: softmax(q k^T * scale) v within sequences; sequence s is tokens starts[s] .. starts[s + 1]
//   grid     (blocks of queries of the longest sequence, heads, sequences)
//   block    four warps of six queries; 32 keys at a time in shared memory, a lane a key for the scores, then a lane some
//            channels for the sums; d is a multiple of 32, at most 128
constexpr int WINDOW_WARPS = 4, WINDOW_QUERIES = 6, WINDOW_D = 128;

template <class E>
__device__ void window_attention(E* out, const E* qkv, const u32* starts, int heads, int d, float scale) {
    __shared__ float keys[32 * (WINDOW_D + 1)], values[32 * WINDOW_D], queries[WINDOW_WARPS * WINDOW_QUERIES * WINDOW_D];
    const int first = starts[blockIdx.z], count = starts[blockIdx.z + 1] - first;
    const int q0 = blockIdx.x * WINDOW_WARPS * WINDOW_QUERIES, head = blockIdx.y;
    if (q0 >= count) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, parts = d / 32;
    const i64 width = (i64)heads * d;
    auto row = [&](int token, int which) { return qkv + ((i64)(first + token) * 3 + which) * width + (i64)head * d; };

    for (int i = threadIdx.x; i < WINDOW_WARPS * WINDOW_QUERIES * d; i += blockDim.x)
        queries[i] = q0 + i / d < count ? wide(row(q0 + i / d, 0)[i % d]) * scale : 0.f;
    const float* mine = queries + warp * WINDOW_QUERIES * d;
    float sums[WINDOW_QUERIES][WINDOW_D / 32] = {}, total[WINDOW_QUERIES] = {}, top[WINDOW_QUERIES];
    for (int q = 0; q < WINDOW_QUERIES; q++) top[q] = -3.4e38f;

    for (int j0 = 0; j0 < count; j0 += 32) {
        __syncthreads();
        for (int i = threadIdx.x; i < 32 * d; i += blockDim.x) {
            const int j = i / d, c = i % d;
            keys[j * (d + 1) + c] = j0 + j < count ? wide(row(j0 + j, 1)[c]) : 0.f;
            values[i] = j0 + j < count ? wide(row(j0 + j, 2)[c]) : 0.f;
        }
        __syncthreads();
        float s[WINDOW_QUERIES] = {};
        for (int c = 0; c < d; c++) {
            const float k = keys[lane * (d + 1) + c];
            #pragma unroll
            for (int q = 0; q < WINDOW_QUERIES; q++) s[q] += mine[q * d + c] * k;
        }
        const bool there = j0 + lane < count;
        #pragma unroll
        for (int q = 0; q < WINDOW_QUERIES; q++) {
            const float highest = fmaxf(top[q], warp_max(there ? s[q] : -3.4e38f));
            const float shrink = expf(top[q] - highest);
            s[q] = there ? expf(s[q] - highest) : 0.f;
            total[q] = total[q] * shrink + warp_sum(s[q]);
            top[q] = highest;
            #pragma unroll
            for (int p = 0; p < WINDOW_D / 32; p++) sums[q][p] *= shrink;
        }
        for (int j = 0; j < 32; j++) {
            float v[WINDOW_D / 32];
            #pragma unroll
            for (int p = 0; p < WINDOW_D / 32; p++) v[p] = p < parts ? values[j * d + p * 32 + lane] : 0.f;
            #pragma unroll
            for (int q = 0; q < WINDOW_QUERIES; q++) {
                const float weight = __shfl_sync(~0u, s[q], j);
                #pragma unroll
                for (int p = 0; p < WINDOW_D / 32; p++) sums[q][p] += weight * v[p];
            }
        }
    }
    #pragma unroll
    for (int q = 0; q < WINDOW_QUERIES; q++) {
        const int token = q0 + warp * WINDOW_QUERIES + q;
        if (token >= count) continue;
        E* to = out + (i64)(first + token) * width + (i64)head * d;
        #pragma unroll
        for (int p = 0; p < WINDOW_D / 32; p++)
            if (p < parts) to[p * 32 + lane] = narrow<E>(sums[q][p] / total[q]);
    }
}

// Half of 1 + tanh(z) is the logistic function of 2z.
__device__ __forceinline__ float gelu_of(float v) {
    return v / (1.f + expf(-1.5957691216057308f * (v + 0.044715f * v * v * v)));
}

#define DIT(E, suffix)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                   \
    rms_norm_modulate_##suffix(E* y, const E* x, const float* gain, const float* shift, i64 rows, int channels, float eps) { \
        rms_norm_modulate<E>(y, x, gain, shift, rows, channels, eps);                                                   \
    }                                                                                                                   \
    extern "C" __global__ void gated_add_##suffix(E* x, const E* h, const float* gate, i64 n, int channels) {           \
        EACH(i, n) x[i] = narrow<E>(wide(x[i]) + gate[i % channels] * wide(h[i]));                                      \
    }                                                                                                                   \
    extern "C" __global__ void swiglu_##suffix(E* y, const E* x, i64 n, int width) {                                    \
        EACH(i, n) {                                                                                                    \
            const E* at = x + i / width * 2 * width + i % width;                                                        \
            const float g = wide(at[0]);                                                                                \
            y[i] = narrow<E>(g / (1.f + expf(-g)) * wide(at[width]));                                                   \
        }                                                                                                               \
    }                                                                                                                   \
    extern "C" __global__ void gelu_##suffix(E* x, i64 n) {                                                             \
        EACH(i, n) x[i] = narrow<E>(gelu_of(wide(x[i])));                                                               \
    }                                                                                                                   \
    extern "C" __global__ void axpby_##suffix(E* y, const E* x, float a, float b, i64 n) {                              \
        EACH(i, n) y[i] = narrow<E>(a * wide(x[i]) + b * wide(y[i]));                                                   \
    }                                                                                                                   \
    extern "C" __global__ void gather_rows_##suffix(E* y, const E* x, const u32* rows, i64 n, int per, int channels) {  \
        EACH(i, n) {                                                                                                    \
            const u32* from = rows + i / channels * per;                                                                \
            if (per == 1) { y[i] = x[(i64)from[0] * channels + i % channels]; continue; }                               \
            float sum = 0.f;                                                                                            \
            for (int j = 0; j < per; j++) sum += wide(x[(i64)from[j] * channels + i % channels]);                       \
            y[i] = narrow<E>(sum / per);                                                                                \
        }                                                                                                               \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                                   \
    qk_norm_rope_##suffix(E* y, const E* first, const E* second, i64 first_rows, const float* first_q,                 \
                          const float* first_k, const float* second_q, const float* second_k, const u32* rows,         \
                          const float2* turns, const u32* places, i64 count, int heads, int d, int frequencies,        \
                          float eps) {                                                                                  \
        const QkvStreams<E> streams = {{first, second}, {{first_q, first_k}, {second_q, second_k}}, first_rows};       \
        qk_norm_rope<E>(y, streams, rows, turns, places, count, heads, d, frequencies, eps);                            \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(128)                                                                   \
    window_attention_##suffix(E* out, const E* qkv, const u32* starts, int heads, int d, float scale) {                 \
        window_attention<E>(out, qkv, starts, heads, d, scale);                                                         \
    }
DIT(f16, f16)
DIT(bf16, bf16)
DIT(float, f32)
