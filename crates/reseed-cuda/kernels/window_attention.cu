// window_attention: softmax(q kᵀ / √d) v within sequences of tokens, every head of every sequence in one launch
//
//   qkv      (tokens, 3, heads, d) E        out  (tokens, heads, d) E
//   blocks   per block of queries: first token and length of its sequence, first query within it
//   grid     (blocks, heads), 128 threads per block
//   differs  from the reference by the order of the sums, the rounding of the weights and that of the result
#include "element.cuh"

struct Queries { int first, count, start; };

// Heads of 128 channels on tensor cores: four warps of 32 queries. Shared memory holds 64 keys and 64 values; the next
// keys are copied while the values are used, and the other way round. Rows of 16 chunks of 16 bytes, swizzled by the
// row.
constexpr int WIDE_QUERIES = 128, WIDE_KEYS = 64, WIDE_ROW = 256;

__device__ __forceinline__ u32 wide_at(int row, int chunk) { return row * WIDE_ROW + ((chunk ^ (row & 7)) << 4); }

template <class E>
__device__ __forceinline__ void wide_copy(u32 to, const E* from, i64 pitch, int rows, int valid) {
    for (int i = threadIdx.x; i < rows * 16; i += 128) {
        const int row = i / 16, chunk = i % 16;
        copy_async(to + wide_at(row, chunk), from + (row < valid ? row : 0) * pitch + chunk * 8, row < valid);
    }
}

template <class E>
__device__ void window_attention_128(E* out, const E* qkv, const Queries* blocks, int heads, float log2_scale) {
    extern __shared__ unsigned char memory[];
    const u32 queries = shared_address(memory), keys = queries + WIDE_QUERIES * WIDE_ROW,
              values = keys + WIDE_KEYS * WIDE_ROW;
    const auto [first, count, start] = blocks[blockIdx.x];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 width = (i64)heads * 128, pitch = 3 * width;
    const E* at = qkv + first * pitch + blockIdx.y * 128;
    wide_copy(queries, at + start * pitch, pitch, WIDE_QUERIES, count - start);
    wide_copy(keys, at + width, pitch, WIDE_KEYS, count);
    copy_commit();
    wide_copy(values, at + 2 * width, pitch, WIDE_KEYS, count);
    copy_commit();
    float sums[2][16][4] = {}, top[2][2], total[2][2] = {};
    #pragma unroll
    for (int i = 0; i < 4; i++) top[i / 2][i % 2] = -3e38f;

    for (int j = 0; j < count; j += WIDE_KEYS) {
        float s[2][8][4] = {};
        copy_wait<1>();
        __syncthreads();
        #pragma unroll
        for (int c = 0; c < 8; c++) {                                  // 16 channels at a time
            u32 q[2][4];
            #pragma unroll
            for (int half = 0; half < 2; half++)
                load_matrix(q[half], queries + wide_at(warp * 32 + half * 16 + lane % 16, c * 2 + lane / 16));
            #pragma unroll
            for (int n = 0; n < 4; n++) {                              // 16 keys at a time
                u32 k[4];
                load_matrix(k, keys + wide_at(n * 16 + lane / 16 * 8 + lane % 8, c * 2 + lane / 8 % 2));
                #pragma unroll
                for (int half = 0; half < 2; half++)
                    mma<E>(s[half][n * 2], q[half], k[0], k[1]), mma<E>(s[half][n * 2 + 1], q[half], k[2], k[3]);
            }
        }
        __syncthreads();
        wide_copy(keys, at + (j + WIDE_KEYS) * pitch + width, pitch, WIDE_KEYS, count - j - WIDE_KEYS);
        copy_commit();
        if (j + WIDE_KEYS > count) {
            #pragma unroll
            for (int i = 0; i < 64; i++)
                if (j + i / 4 % 8 * 8 + lane % 4 * 2 + i % 2 >= count) s[i / 32][i / 4 % 8][i % 4] = -3e38f;
        }
        #pragma unroll
        for (int i = 0; i < 4; i++) {                                  // the four rows that a thread shares
            float (&mine)[8][4] = s[i / 2];
            const int r = i % 2 * 2;
            float highest = top[i / 2][i % 2];
            #pragma unroll
            for (int n = 0; n < 8; n++) highest = fmaxf(highest, fmaxf(mine[n][r], mine[n][r + 1]));
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
            const float shrink = exp2_fast((top[i / 2][i % 2] - highest) * log2_scale), base = highest * log2_scale;
            top[i / 2][i % 2] = highest;
            float sum = total[i / 2][i % 2] * shrink;
            #pragma unroll
            for (int n = 0; n < 8; n++) {
                mine[n][r] = exp2_fast(mine[n][r] * log2_scale - base),
                mine[n][r + 1] = exp2_fast(mine[n][r + 1] * log2_scale - base);
                sum += mine[n][r] + mine[n][r + 1];
            }
            total[i / 2][i % 2] = sum;
            #pragma unroll
            for (int n = 0; n < 16; n++) sums[i / 2][n][r] *= shrink, sums[i / 2][n][r + 1] *= shrink;
        }
        copy_wait<1>();
        __syncthreads();
        #pragma unroll
        for (int c = 0; c < 4; c++) {                                  // 16 keys at a time
            u32 p[2][4];
            #pragma unroll
            for (int half = 0; half < 2; half++)
                #pragma unroll
                for (int i = 0; i < 4; i++)
                    p[half][i] = pack<E>(s[half][c * 2 + i / 2][i % 2 * 2], s[half][c * 2 + i / 2][i % 2 * 2 + 1]);
            #pragma unroll
            for (int n = 0; n < 8; n++) {                              // 16 channels at a time
                u32 v[4];
                load_matrix_transposed(v, values + wide_at(c * 16 + lane % 16, n * 2 + lane / 16));
                #pragma unroll
                for (int half = 0; half < 2; half++)
                    mma<E>(sums[half][n * 2], p[half], v[0], v[1]), mma<E>(sums[half][n * 2 + 1], p[half], v[2], v[3]);
            }
        }
        __syncthreads();
        wide_copy(values, at + (j + WIDE_KEYS) * pitch + 2 * width, pitch, WIDE_KEYS, count - j - WIDE_KEYS);
        copy_commit();
    }
    copy_wait<0>();
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        float sum = total[i / 2][i % 2];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const float one = 1.f / sum;
        const int query = start + warp * 32 + i * 8 + lane / 4;
        E* to = out + (first + query) * width + blockIdx.y * 128;
        #pragma unroll
        for (int n = 0; n < 16; n += 4) {
            u32 v[4];
            #pragma unroll
            for (int j = 0; j < 4; j++)
                v[j] = pack<E>(sums[i / 2][n + j][i % 2 * 2] * one, sums[i / 2][n + j][i % 2 * 2 + 1] * one);
            transpose_chunks(v[0], v[1], v[2], v[3], lane);
            if (query < count) *(uint4*)(to + (n + lane % 4) * 8) = uint4{v[0], v[1], v[2], v[3]};
        }
    }
}

#define WINDOW_ATTENTION_128(E) \
    extern "C" __global__ void __launch_bounds__(128, 2) \
    window_attention_128_##E(E* out, const E* qkv, const Queries* blocks, int heads, float log2_scale) { \
        window_attention_128<E>(out, qkv, blocks, heads, log2_scale); \
    }
WINDOW_ATTENTION_128(f16)
#if __CUDA_ARCH__ >= 800
SINCE_AMPERE(WINDOW_ATTENTION_128(bf16))
#endif

// Heads of any multiple of 32 up to 128 channels, computed in f32: four warps of six queries and 32 keys at a time in
// shared memory. A lane owns a key for the scores, then some channels for the sums.
constexpr int WINDOW_WARPS = 4, WINDOW_QUERIES = 6, WINDOW_D = 128;

template <class E>
__device__ void window_attention(E* out, const E* qkv, const Queries* blocks, int heads, int d, float log2_scale) {
    __shared__ float keys[32 * (WINDOW_D + 1)], values[32 * WINDOW_D],
        queries[WINDOW_WARPS * WINDOW_QUERIES * WINDOW_D];
    const int first = blocks[blockIdx.x].first, count = blocks[blockIdx.x].count, q0 = blocks[blockIdx.x].start;
    const int head = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32, parts = d / 32;
    const i64 width = (i64)heads * d;
    auto row = [&](int token, int which) { return qkv + ((i64)(first + token) * 3 + which) * width + (i64)head * d; };

    for (int i = threadIdx.x; i < WINDOW_WARPS * WINDOW_QUERIES * d; i += blockDim.x)
        queries[i] = q0 + i / d < count ? wide(row(q0 + i / d, 0)[i % d]) * log2_scale : 0.f;
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
        const bool valid = j0 + lane < count;
        #pragma unroll
        for (int q = 0; q < WINDOW_QUERIES; q++) {
            const float highest = fmaxf(top[q], warp_max(valid ? s[q] : -3.4e38f));
            const float shrink = exp2f(top[q] - highest);
            s[q] = valid ? exp2f(s[q] - highest) : 0.f;
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

#define WINDOW_ATTENTION(E, suffix) \
    extern "C" __global__ void __launch_bounds__(128) \
    window_attention_##suffix(E* out, const E* qkv, const Queries* blocks, int heads, int d, float log2_scale) { \
        window_attention<E>(out, qkv, blocks, heads, d, log2_scale); \
    }
WINDOW_ATTENTION(f16, f16)
SINCE_AMPERE(WINDOW_ATTENTION(bf16, bf16))
WINDOW_ATTENTION(float, f32)
