// import_frames: y = 2 u - 1, where u is c / max of a code c, or a float clamped to 0 .. 1; outside of the frame -1
// export_frames: u = (x + 1) / 2 clamped to 0 .. 1, as a float or as the nearest code; NaN becomes 0
// import_latents: y = c / factor
// export_latents: c = x · factor, of the first channels
// read_samples: y = c, where half floats become floats
// find_nan: the position of the first NaN of c
//
//   c            one frame [H, W, C] of another library: elements of type C; strides in elements where it is read,
//                dense where it is written
//   x, y         one frame of a tensor, E, or of samples, dense
//   grid         threads stride over pixels of y or of c, or over elements of c
//   differs      from the conversions on the host in nothing: the same operations in f32, none of them fused
#include "element.cuh"

// Threads stride over n values; a frame has less than 2^31, and 32-bit divisions are a fraction of 64-bit ones.
#define FOR_EACH_OF_FRAME(i, n) \
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

namespace interop {

// A region of a frame: rows and columns from (top, left) on.
struct Region {
    i64 row, column, channel;         // strides of the frame
    u32 h, w;                         // size of the frame
    u32 top, left, rows, columns;
};

__device__ __forceinline__ float clamp_unit(float v) { return v > 0.f ? fminf(v, 1.f) : 0.f; }

__device__ __forceinline__ float unit_of(u8 code) { return __fdiv_rn((float)code, 255.f); }
__device__ __forceinline__ float unit_of(u16 code) { return __fdiv_rn((float)code, 65535.f); }
__device__ __forceinline__ float unit_of(float value) { return clamp_unit(value); }
__device__ __forceinline__ float unit_of(f16 value) { return clamp_unit(wide(value)); }

__device__ __forceinline__ bool is_nan(u8) { return false; }
__device__ __forceinline__ bool is_nan(u16) { return false; }
__device__ __forceinline__ bool is_nan(float value) { return value != value; }
__device__ __forceinline__ bool is_nan(f16 value) { return (value.bits & 0x7fff) > 0x7c00; }

template <class C> __device__ __forceinline__ C sample_of(C value) { return value; }
__device__ __forceinline__ float sample_of(f16 value) { return wide(value); }

template <class C> __device__ __forceinline__ C from_unit(float unit);
template <> __device__ __forceinline__ float from_unit<float>(float unit) { return unit; }
template <> __device__ __forceinline__ f16 from_unit<f16>(float unit) { return narrow<f16>(unit); }
template <> __device__ __forceinline__ u8 from_unit<u8>(float unit) {
    return (u8)(u32)__fadd_rn(__fmul_rn(unit, 255.f), 0.5f);
}
template <> __device__ __forceinline__ u16 from_unit<u16>(float unit) {
    return (u16)(u32)__fadd_rn(__fmul_rn(unit, 65535.f), 0.5f);
}

// `found` becomes the largest ~(index) of a NaN: of the first one, or 0 where there is none. `first` is the index of
// the frame's first value.
template <class E, class C>
__device__ __forceinline__ void import_frames(E* y, const C* frame, Region at, u64* found, i64 first) {
    FOR_EACH_OF_FRAME(i, at.rows * at.columns) {
        const u32 r = at.top + i / at.columns, c = at.left + i % at.columns;
        const bool inside = r < at.h && c < at.w;
        #pragma unroll
        for (int k = 0; k < 3; k++) {
            float value = -1.f;
            if (inside) {
                const C code = frame[r * at.row + c * at.column + k * at.channel];
                if (is_nan(code)) atomicMax(found, ~(u64)(first + ((i64)r * at.w + c) * 3 + k));
                value = __fadd_rn(2.f * unit_of(code), -1.f);
            }
            y[i * 3 + k] = narrow<E>(value);
        }
    }
}

template <class S, class C> __device__ __forceinline__ void read_samples(S* y, const C* frame, Region at) {
    FOR_EACH_OF_FRAME(i, at.h * at.w) {
        const C* pixel = frame + i / at.w * at.row + i % at.w * at.column;
        #pragma unroll
        for (int k = 0; k < 3; k++) y[i * 3 + k] = sample_of(pixel[k * at.channel]);
    }
}

// `found` and `first` as in import_frames.
template <class C> __device__ __forceinline__ void find_nan(const C* frame, Region at, u64* found, i64 first) {
    FOR_EACH_OF_FRAME(i, at.h * at.w) {
        const C* pixel = frame + i / at.w * at.row + i % at.w * at.column;
        #pragma unroll
        for (int k = 0; k < 3; k++)
            if (is_nan(pixel[k * at.channel])) atomicMax(found, ~(u64)(first + (i64)i * 3 + k));
    }
}

template <class E, class C>
__device__ __forceinline__ void export_frames(C* frame, const E* x, u32 h, u32 w, u32 padded) {
    const u32 line = w * 3;
    FOR_EACH_OF_FRAME(i, h * line) {
        const float value = wide(x[i / line * (padded * 3) + i % line]);
        frame[i] = from_unit<C>(clamp_unit(__fadd_rn(0.5f * value, 0.5f)));
    }
}

} // namespace interop

#define INTEROP_FRAMES(E, suffix, C, name) \
    extern "C" __global__ void import_frames_##name##_##suffix( \
        E* y, const C* frame, interop::Region at, u64* found, i64 first) { \
        interop::import_frames<E, C>(y, frame, at, found, first); \
    } \
    extern "C" __global__ void export_frames_##name##_##suffix(C* frame, const E* x, u32 h, u32 w, u32 padded) { \
        interop::export_frames<E, C>(frame, x, h, w, padded); \
    }
#define INTEROP(E, suffix) \
    INTEROP_FRAMES(E, suffix, u8, u8) \
    INTEROP_FRAMES(E, suffix, u16, u16) \
    INTEROP_FRAMES(E, suffix, f16, f16) \
    INTEROP_FRAMES(E, suffix, float, f32) \
    extern "C" __global__ void import_latents_##suffix( \
        E* y, const float* frame, interop::Region at, u32 channels, float factor) { \
        FOR_EACH_OF_FRAME(i, at.rows * at.columns * channels) { \
            const u32 p = i / channels, r = at.top + p / at.columns, c = at.left + p % at.columns; \
            const float value = frame[r * at.row + c * at.column + i % channels * at.channel]; \
            y[i] = narrow<E>(__fdiv_rn(value, factor)); \
        } \
    } \
    extern "C" __global__ void export_latents_##suffix( \
        float* frame, const E* x, u32 pixels, u32 from, u32 to, float factor) { \
        FOR_EACH_OF_FRAME(i, pixels * to) frame[i] = __fmul_rn(wide(x[i / to * from + i % to]), factor); \
    }
INTEROP(f16, f16)
INTEROP(bf16, bf16)
INTEROP(float, f32)

#define READ_SAMPLES(S, C, name) \
    extern "C" __global__ void read_samples_##name(S* y, const C* frame, interop::Region at) { \
        interop::read_samples<S, C>(y, frame, at); \
    }
READ_SAMPLES(u8, u8, u8)
READ_SAMPLES(u16, u16, u16)
READ_SAMPLES(float, f16, f16)
READ_SAMPLES(float, float, f32)

#define FIND_NAN(C, name) \
    extern "C" __global__ void find_nan_##name(const C* frame, interop::Region at, u64* found, i64 first) { \
        interop::find_nan<C>(frame, at, found, first); \
    }
FIND_NAN(f16, f16)
FIND_NAN(float, f32)
