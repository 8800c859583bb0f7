// qk_norm_rope: queries and keys of two token streams, normalised per head and rotated, in the order of `rows`
//
//   first, second    (tokens, 3, heads, d) E, dense; row r >= first_rows is row r - first_rows of the second
//   y                (count, 3, heads, d) E, dense; token i comes from row rows[i], its values are copied
//   gains            (d) f32 of queries and of keys, for each stream
//   turns            (positions, frequencies) f32 cosine and sine        places  (count, 3) u32 positions on the axes
//   grid             a warp per token, eight tokens per block; a lane holds the same channel pairs of every head
//   needs            d even and at most 128, 6 * frequencies <= d
//   differs          from the reference by the order of the sums and one rounding
#include "rows.cuh"

// Queries, keys and values of one stream, and the gains of its queries and keys.
template <class E>
struct QkvStream {
    const E* at;
    const float *q_gain, *k_gain;
};

template <class E>
__device__ void qk_norm_rope(E* y, QkvStream<E> stream, QkvStream<E> second, i64 first_rows, const u32* rows,
                             const float2* turns, const u32* places, i64 count, int heads, int d, int frequencies,
                             float eps) {
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
        if (pair < 3 * frequencies)
            turn[i] = turns[(i64)places[token * 3 + pair / frequencies] * frequencies + pair % frequencies];
        gain[0][i] = *(const float2*)(stream.q_gain + 2 * pair),
        gain[1][i] = *(const float2*)(stream.k_gain + 2 * pair);
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
            const auto at = Vec<E, 2>::load(x + head * d + 2 * pair);
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
            Vec<E, 2>{narrow<E>(a * turn[i].x - b * turn[i].y), narrow<E>(b * turn[i].x + a * turn[i].y)}.store(
                y + head * d + 2 * pair);
        }
    }
    x += 2 * width, y += 2 * width;
    along_row(width, [&](auto n, int c) { Vec<E, n.value>::load(x + c).store(y + c); });
}

#define QK_NORM_ROPE(E, suffix) \
    ROWS_KERNEL(qk_norm_rope_##suffix)(E* y, const E* first, const E* second, i64 first_rows, const float* first_q, \
                                       const float* first_k, const float* second_q, const float* second_k, \
                                       const u32* rows, const float2* turns, const u32* places, i64 count, int heads, \
                                       int d, int frequencies, float eps) { \
        qk_norm_rope<E>(y, {first, first_q, first_k}, {second, second_q, second_k}, first_rows, rows, turns, places, \
                        count, heads, d, frequencies, eps); \
    }
QK_NORM_ROPE(f16, f16)
SINCE_AMPERE(QK_NORM_ROPE(bf16, bf16))
QK_NORM_ROPE(float, f32)
