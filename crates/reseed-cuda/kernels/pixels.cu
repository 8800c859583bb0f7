// upload_pixels: y = 2 c / max - 1
// download_pixels: c = floor((y + 1) / 2 · max + 1/2) with y clamped to -1 .. 1; NaN becomes 0
//
//   c        (count) u8 or u16 pixel codes        y  (count) E, -1 black, 1 white
//   grid     threads stride over 16 bytes of codes each, then over the rest one by one
//   differs  from the reference in nothing: the same operations in f32, in the same order, none of them fused
#include "element.cuh"

template <class C> __device__ constexpr float white() { return sizeof(C) == 1 ? 255.f : 65535.f; }

template <class E, class C> __device__ __forceinline__ E value_of(C code) {
    return narrow<E>(__fadd_rn(__fdiv_rn(2.f * (float)code, white<C>()), -1.f));
}

template <class C, class E> __device__ __forceinline__ C code_of(E value) {
    const float v = wide(value), y = v > -1.f ? fminf(v, 1.f) : -1.f;
    return (C)(u32)__fadd_rn(__fmul_rn(__fmul_rn(__fadd_rn(y, 1.f), 0.5f), white<C>()), 0.5f);
}

// N at a time where both addresses are multiples of 16.
template <int N, class To, class From, class One>
__device__ __forceinline__ void convert(To* to, const From* from, i64 count, One one) {
    const i64 whole = ((u64)to | (u64)from) % 16 ? 0 : count / N;
    FOR_EACH(i, whole) {
        const auto in = Vec<From, N>::load(from + i * N);
        Vec<To, N> out;
        #pragma unroll
        for (int j = 0; j < N; j++) out.at[j] = one(in.at[j]);
        out.store(to + i * N);
    }
    FOR_EACH(i, count - whole * N) to[whole * N + i] = one(from[whole * N + i]);
}

#define PIXELS(E, suffix, C) \
    extern "C" __global__ void upload_pixels_##C##_##suffix(E* y, const C* codes, i64 count) { \
        convert<16 / sizeof(C)>(y, codes, count, [](C code) { return value_of<E>(code); }); \
    } \
    extern "C" __global__ void download_pixels_##C##_##suffix(C* codes, const E* x, i64 count) { \
        convert<16 / sizeof(C)>(codes, x, count, [](E value) { return code_of<C>(value); }); \
    }
PIXELS(f16, f16, u8)
PIXELS(f16, f16, u16)
SINCE_AMPERE(PIXELS(bf16, bf16, u8))
SINCE_AMPERE(PIXELS(bf16, bf16, u16))
PIXELS(float, f32, u8)
PIXELS(float, f32, u16)
