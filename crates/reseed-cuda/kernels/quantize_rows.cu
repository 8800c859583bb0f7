// quantize_rows: rows of floats to signed bytes with one scale per row; reseed-ops/src/int8.rs defines them
// quantize_swiglu, quantize_gelu: the same of the rows that swiglu or gelu makes of x, rounded to E as theirs are
//
//   x        (rows, width) E, dense, width in multiples of 16; (rows, 2 * width) for quantize_swiglu
//   bytes    (rows, width)        scales  (rows) f32
//   grid     a block per row: a warp holds up to four groups of 256 values, eight of each per lane
//   differs  from the reference in nothing: the same operations of f32 in the same order
#include "activations.cuh"

constexpr int QUANTIZE_GROUPS = 4;                                     // of a warp, at most

// The larger absolute value, or NaN.
__device__ __forceinline__ float larger(float a, float b) {
#if __CUDA_ARCH__ >= 800
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(fabsf(a)), "f"(fabsf(b)));
    return most;
#else
    return __uint_as_float(max(__float_as_uint(fabsf(a)), __float_as_uint(fabsf(b))));
#endif
}

// The largest of the bits of positive floats, which are in their order, with NaN at the end.
__device__ __forceinline__ u32 warp_max_bits(u32 v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(~0u, v);
#else
    for (int d = 16; d > 0; d /= 2) v = max(v, __shfl_xor_sync(~0u, v, d));
    return v;
#endif
}

// Multiplies a group by the Hadamard matrix. Along each base-4 digit of the index, (a, b, c, d) become
// (a + b) ± (c - d) and (c + d) ± (a - b). Bits 0 to 2 of the index are in the lane, bits 3 to 7 are the lane.
__device__ __forceinline__ void rotate(float (&x)[8]) {
    #pragma unroll
    for (int i = 0; i < 8; i += 4) {
        const float first = x[i] + x[i + 1], second = x[i] - x[i + 1];
        const float third = x[i + 2] + x[i + 3], fourth = x[i + 2] - x[i + 3];
        x[i] = first + fourth, x[i + 1] = first - fourth, x[i + 2] = third + second, x[i + 3] = third - second;
    }
    // A value is the sum with its neighbour along the lower bit, and the difference of the other two.
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        const float sum = x[i] + x[i + 4], difference = x[i] - x[i + 4];
        const float other = __shfl_xor_sync(~0u, difference, 1);
        x[i] = sum + other, x[i + 4] = sum - other;
    }
    #pragma unroll
    for (int bit = 2; bit <= 8; bit *= 4) {
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            const float near = __shfl_xor_sync(~0u, x[i], bit);
            x[i] = (x[i] + near) + __shfl_xor_sync(~0u, x[i] - near, 2 * bit);
        }
    }
}

// In a sum with it a float becomes an integer, rounded to the nearest even one, whose low byte is that of the bits.
constexpr float TO_INTEGER = 12582912.f;
__device__ __forceinline__ u32 low_bytes(const u32* v) {
    return __byte_perm(__byte_perm(v[0], v[1], 0x0040), __byte_perm(v[2], v[3], 0x0040), 0x5410);
}

// What the rows are made of.
struct Plain {
    static constexpr int PARTS = 1;
    template <class E> static __device__ __forceinline__ Vec<E, 8> load(const E* x, int) { return Vec<E, 8>::load(x); }
};
struct SwiGlu {
    static constexpr int PARTS = 2;
    template <class E> static __device__ __forceinline__ Vec<E, 8> load(const E* x, int width) {
        auto a = Vec<E, 8>::load(x);
        const auto b = Vec<E, 8>::load(x + width);
        #pragma unroll
        for (int i = 0; i < 8; i++) a.at[i] = narrow<E>(swiglu_of(wide(a.at[i]), wide(b.at[i])));
        return a;
    }
};
struct Gelu {
    static constexpr int PARTS = 1;
    template <class E> static __device__ __forceinline__ Vec<E, 8> load(const E* x, int) {
        auto a = Vec<E, 8>::load(x);
        #pragma unroll
        for (int i = 0; i < 8; i++) a.at[i] = narrow<E>(gelu_of(wide(a.at[i])));
        return a;
    }
};

template <class E, class Source> __device__ void quantize_rows(u8* bytes, float* scales, const E* x, int width) {
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    const bool rotated = width % 256 == 0;
    x += (i64)blockIdx.x * Source::PARTS * width, bytes += (i64)blockIdx.x * width;
    float v[QUANTIZE_GROUPS][8] = {};
    #pragma unroll
    for (int g = 0; g < QUANTIZE_GROUPS; g++) {
        const int at = (warp + g * warps) * 256 + lane * 8;
        if (at >= width) continue;
        const auto loaded = Source::load(x + at, width);
        #pragma unroll
        for (int i = 0; i < 8; i++) v[g][i] = wide(loaded.at[i]);
    }
    float largest = 0.f;
    #pragma unroll
    for (int g = 0; g < QUANTIZE_GROUPS; g++) {
        if (rotated && (warp + g * warps) * 256 < width) rotate(v[g]);
        #pragma unroll
        for (int i = 0; i < 8; i++) largest = larger(largest, v[g][i]);
    }
    __shared__ u32 most_of[32];
    const u32 bits = warp_max_bits(__float_as_uint(largest));
    if (lane == 0) most_of[warp] = bits;
    __syncthreads();
    const float most = __uint_as_float(warp_max_bits(lane < warps ? most_of[lane] : 0));
    const float inverse = most < 1e-30f ? 0.f : 127.f / most;
    if (threadIdx.x == 0) scales[blockIdx.x] = most / 127.f / (rotated ? 16.f : 1.f);
    #pragma unroll
    for (int g = 0; g < QUANTIZE_GROUPS; g++) {
        const int at = (warp + g * warps) * 256 + lane * 8;
        if (at >= width) continue;
        u32 whole[8];
        #pragma unroll
        for (int i = 0; i < 8; i++) whole[i] = __float_as_uint(__fadd_rn(__fmul_rn(v[g][i], inverse), TO_INTEGER));
        *(uint2*)(bytes + at) = {low_bytes(whole), low_bytes(whole + 4)};
    }
}

#define QUANTIZE(E, name, Source) \
    extern "C" __global__ void __launch_bounds__(1024) name##_##E(u8* bytes, float* scales, const E* x, int width) { \
        quantize_rows<E, Source>(bytes, scales, x, width); \
    }
#define QUANTIZE_ROWS(E) \
    QUANTIZE(E, quantize_rows, Plain) QUANTIZE(E, quantize_swiglu, SwiGlu) QUANTIZE(E, quantize_gelu, Gelu)
QUANTIZE_ROWS(f16)
SINCE_AMPERE(QUANTIZE_ROWS(bf16))
