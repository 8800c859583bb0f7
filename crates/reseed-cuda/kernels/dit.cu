// The ops of a transformer: norms and modulation, gates, activations, rotary queries and keys, rows.
//
//   tokens   (rows, channels) E, dense        gains, shifts, gates, turns f32        rows, places u32
//   grid     a warp a row, eight rows a block
//   differs  from the reference by the order of the sums and one rounding
#include "element.cuh"

template <int N> struct Count { static constexpr int value = N; };

// Walks over a row, eight channels a lane where rows are whole eights.
template <class F>
__device__ __forceinline__ void along_row(int channels, F body) {
    const int lane = threadIdx.x % 32;
    if (channels % 8 == 0) {
        for (int c = lane * 8; c < channels; c += 256) body(Count<8>{}, c);
    } else {
        for (int c = lane; c < channels; c += 32) body(Count<1>{}, c);
    }
}

__device__ __forceinline__ i64 row_of_warp() { return (i64)blockIdx.x * 8 + threadIdx.x / 32; }

// y = x / sqrt(mean(x^2) + eps) * gain + shift
template <class E>
__device__ void rms_norm_modulate(E* y, const E* x, const float* gain, const float* shift, i64 rows, int channels, float eps) {
    const i64 row = row_of_warp();
    if (row >= rows) return;
    x += row * channels, y += row * channels;
    float sum = 0.f;
    along_row(channels, [&](auto n, int c) {
        const auto v = Some<E, n.value>::load(x + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) sum += wide(v.at[j]) * wide(v.at[j]);
    });
    const float scale = 1.f / sqrtf(warp_sum(sum) / channels + eps);
    along_row(channels, [&](auto n, int c) {
        auto v = Some<E, n.value>::load(x + c);
        const auto g = Some<float, n.value>::load(gain + c), s = Some<float, n.value>::load(shift + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) v.at[j] = narrow<E>(wide(v.at[j]) * scale * g.at[j] + s.at[j]);
        v.store(y + c);
    });
}

// x += gate * h
template <class E>
__device__ void gated_add(E* x, const E* h, const float* gate, i64 rows, int channels) {
    const i64 row = row_of_warp();
    if (row >= rows) return;
    x += row * channels, h += row * channels;
    along_row(channels, [&](auto n, int c) {
        auto v = Some<E, n.value>::load(x + c);
        const auto other = Some<E, n.value>::load(h + c);
        const auto g = Some<float, n.value>::load(gate + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) v.at[j] = narrow<E>(wide(v.at[j]) + g.at[j] * wide(other.at[j]));
        v.store(x + c);
    });
}

// y = silu(a) * b of rows [a b]
template <class E>
__device__ void swiglu(E* y, const E* x, i64 rows, int width) {
    const i64 row = row_of_warp();
    if (row >= rows) return;
    x += row * 2 * width, y += row * width;
    along_row(width, [&](auto n, int c) {
        auto a = Some<E, n.value>::load(x + c);
        const auto b = Some<E, n.value>::load(x + width + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) {
            const float g = wide(a.at[j]);
            a.at[j] = narrow<E>(g / (1.f + expf(-g)) * wide(b.at[j]));
        }
        a.store(y + c);
    });
}

// x = gelu(x); half of 1 + tanh(z) is the logistic function of 2z
template <class E>
__device__ void gelu(E* x, i64 rows, int channels) {
    const i64 row = row_of_warp();
    if (row >= rows) return;
    x += row * channels;
    along_row(channels, [&](auto n, int c) {
        auto v = Some<E, n.value>::load(x + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) {
            const float z = wide(v.at[j]);
            v.at[j] = narrow<E>(z / (1.f + expf(-1.5957691216057308f * (z + 0.044715f * z * z * z))));
        }
        v.store(x + c);
    });
}

// y = a * x + b * y
template <class E>
__device__ void axpby(E* y, const E* x, float a, float b, i64 rows, int channels) {
    const i64 row = row_of_warp();
    if (row >= rows) return;
    x += row * channels, y += row * channels;
    along_row(channels, [&](auto n, int c) {
        const auto v = Some<E, n.value>::load(x + c);
        auto w = Some<E, n.value>::load(y + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) w.at[j] = narrow<E>(a * wide(v.at[j]) + b * wide(w.at[j]));
        w.store(y + c);
    });
}

// Row i of y is the mean of rows[i * per] ..; one row is copied.
template <class E>
__device__ void gather_rows(E* y, const E* x, const u32* rows, i64 count, int per, int channels) {
    const i64 row = row_of_warp();
    if (row >= count) return;
    rows += row * per, y += row * channels;
    along_row(channels, [&](auto n, int c) {
        auto v = Some<E, n.value>::load(x + (i64)rows[0] * channels + c);
        if (per > 1) {
            float sum[n.value];
            #pragma unroll
            for (int j = 0; j < n.value; j++) sum[j] = wide(v.at[j]);
            for (int i = 1; i < per; i++) {
                const auto other = Some<E, n.value>::load(x + (i64)rows[i] * channels + c);
                #pragma unroll
                for (int j = 0; j < n.value; j++) sum[j] += wide(other.at[j]);
            }
            #pragma unroll
            for (int j = 0; j < n.value; j++) v.at[j] = narrow<E>(sum[j] / per);
        }
        v.store(y + c);
    });
}

// One stream's q, k and v, and the gains of its queries and keys.
template <class E>
struct QkvStream {
    const E* at;
    const float *q_gain, *k_gain;
};

// Row i of y is row rows[i] of the streams, the second's counted on behind those of the first; q and k of each head are
// normalised, gained and turned; a lane holds the same pairs of every head, of which there are at most 64
template <class E>
__device__ void qk_norm_rope(E* y, QkvStream<E> stream, QkvStream<E> second, i64 first_rows, const u32* rows, const float2* turns, const u32* places, i64 count, int heads, int d, int frequencies, float eps) {
    const i64 token = row_of_warp();
    if (token >= count) return;
    const int lane = threadIdx.x % 32;
    const int width = heads * d;
    i64 row = rows[token];
    if (row >= first_rows) row -= first_rows, stream = second;
    const E* x = stream.at + row * 3 * width;
    y += token * 3 * width;
    float2 turn[2], gain[2][2];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        const int pair = lane + 32 * i;
        turn[i] = {1.f, 0.f};
        if (pair >= d / 2) continue;
        if (pair < 3 * frequencies) turn[i] = turns[(i64)places[token * 3 + pair / frequencies] * frequencies + pair % frequencies];
        gain[0][i] = *(const float2*)(stream.q_gain + 2 * pair), gain[1][i] = *(const float2*)(stream.k_gain + 2 * pair);
    }
    #pragma unroll 4
    for (int head = 0; head < 2 * heads; head++) {
        const int which = head >= heads;
        float2 v[2];
        float sum = 0.f;
        #pragma unroll
        for (int i = 0; i < 2; i++) {
            const int pair = lane + 32 * i;
            v[i] = {0.f, 0.f};
            if (pair >= d / 2) continue;
            const auto at = Some<E, 2>::load(x + head * d + 2 * pair);
            v[i] = {wide(at.at[0]), wide(at.at[1])};
            sum += v[i].x * v[i].x + v[i].y * v[i].y;
        }
        const float scale = 1.f / sqrtf(warp_sum(sum) / d + eps);
        #pragma unroll
        for (int i = 0; i < 2; i++) {
            const int pair = lane + 32 * i;
            if (pair >= d / 2) continue;
            const float2 g = which ? gain[1][i] : gain[0][i];
            const float a = v[i].x * scale * g.x, b = v[i].y * scale * g.y;
            Some<E, 2>{narrow<E>(a * turn[i].x - b * turn[i].y), narrow<E>(b * turn[i].x + a * turn[i].y)}.store(y + head * d + 2 * pair);
        }
    }
    x += 2 * width, y += 2 * width;
    along_row(width, [&](auto n, int c) { Some<E, n.value>::load(x + c).store(y + c); });
}

#define ROWS_KERNEL(name) extern "C" __global__ void __launch_bounds__(256) name
#define DIT(E, suffix)                                                                                                  \
    ROWS_KERNEL(rms_norm_modulate_##suffix)(E* y, const E* x, const float* gain, const float* shift, i64 rows, int channels, float eps) { \
        rms_norm_modulate<E>(y, x, gain, shift, rows, channels, eps);                                                   \
    }                                                                                                                   \
    ROWS_KERNEL(gated_add_##suffix)(E* x, const E* h, const float* gate, i64 rows, int channels) { gated_add<E>(x, h, gate, rows, channels); } \
    ROWS_KERNEL(swiglu_##suffix)(E* y, const E* x, i64 rows, int width) { swiglu<E>(y, x, rows, width); }               \
    ROWS_KERNEL(gelu_##suffix)(E* x, i64 rows, int channels) { gelu<E>(x, rows, channels); }                            \
    ROWS_KERNEL(axpby_##suffix)(E* y, const E* x, float a, float b, i64 rows, int channels) { axpby<E>(y, x, a, b, rows, channels); } \
    ROWS_KERNEL(gather_rows_##suffix)(E* y, const E* x, const u32* rows, i64 count, int per, int channels) {            \
        gather_rows<E>(y, x, rows, count, per, channels);                                                               \
    }                                                                                                                   \
    ROWS_KERNEL(qk_norm_rope_##suffix)(E* y, const E* first, const E* second, i64 first_rows, const float* first_q,     \
                                       const float* first_k, const float* second_q, const float* second_k,              \
                                       const u32* rows, const float2* turns, const u32* places, i64 count, int heads,   \
                                       int d, int frequencies, float eps) {                                             \
        qk_norm_rope<E>(y, {first, first_q, first_k}, {second, second_q, second_k}, first_rows, rows, turns, places,     \
                        count, heads, d, frequencies, eps);                                                             \
    }
DIT(f16, f16)
DIT(bf16, bf16)
DIT(float, f32)
