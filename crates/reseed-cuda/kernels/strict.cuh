// Arithmetic as on the host: every operation is rounded to nearest by itself, none is fused with another.
#pragma once
#include "element.cuh"

// A block works on one row, blockIdx.y; the blocks of a row stride over its n values or pixels.
#define FOR_EACH_OF_ROW(i, n) \
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

struct strict {
    float v;
    __device__ __forceinline__ strict(float v) : v(v) {}
};

__device__ __forceinline__ strict operator+(strict a, strict b) { return __fadd_rn(a.v, b.v); }
__device__ __forceinline__ strict operator-(strict a, strict b) { return __fsub_rn(a.v, b.v); }
__device__ __forceinline__ strict operator*(strict a, strict b) { return __fmul_rn(a.v, b.v); }
__device__ __forceinline__ strict operator/(strict a, strict b) { return __fdiv_rn(a.v, b.v); }
__device__ __forceinline__ strict square_root(strict a) { return __fsqrt_rn(a.v); }
// NaN stays.
__device__ __forceinline__ strict clamped(strict x, float low, float high) {
    return x.v < low ? low : x.v > high ? high : x.v;
}

// [-1, 1] to [0, 1], clamped, and back.
__device__ __forceinline__ strict unit(strict value) { return clamped((value + 1.f) / 2.f, 0.f, 1.f); }
__device__ __forceinline__ strict with_sign(strict unit) { return clamped(unit, 0.f, 1.f) * 2.f - 1.f; }

// A float sample of a frame.
struct sample {
    float v;
};

// A sample as a value from 0 to 1, where NaN is 0; a value stays.
__device__ __forceinline__ strict unit_of(u8 code) { return strict((float)code) / 255.f; }
__device__ __forceinline__ strict unit_of(u16 code) { return strict((float)code) / 65535.f; }
__device__ __forceinline__ strict unit_of(float value) { return value; }
__device__ __forceinline__ strict unit_of(sample s) { return s.v > 0.f ? fminf(s.v, 1.f) : 0.f; }
