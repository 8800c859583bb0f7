// load_rows: y = Σ w x over rows, clamped to 0 .. 1 and mapped to -1 .. 1; -1 beyond the frame
// load_samples: the same of samples that are not resampled
// keep_frame: y = the top left of x
// blend_frames: y = weight · y + (1 - weight) · later
// finish_f32, finish_f16: y = (x + 1) / 2 clamped to 0 .. 1; NaN becomes 0
//
//   load_rows     x (from, 3 · w) is resampled along x only; starts and weights as in resize.cu
//   load_samples  x (h, w, 3) u8, u16 or float samples
//   y             (rows, columns, 3) E of load_rows and load_samples: the region `at` of the frame
//   grid          rows of y and threads that stride over their values; the last three: over all values
//   differs       from the host in nothing
#include "strict.cuh"

namespace frames {

// Rows and columns from (top, left) on of a frame of h x w pixels.
struct Region {
    int h, w, top, left, columns;
};

// `value` returns that of value j of row r, which is inside of the frame.
template <class E, class Value> __device__ __forceinline__ void load(E* y, Region at, Value value) {
    const int r = at.top + blockIdx.y;
    y += (i64)blockIdx.y * 3 * at.columns;
    FOR_EACH_OF_ROW(i, 3 * at.columns) {
        const int j = 3 * at.left + i;
        y[i] = narrow<E>(r < at.h && j < 3 * at.w ? value(r, j).v : -1.f);
    }
}

template <class E>
__device__ __forceinline__ void load_rows(E* y, const float* x, const uint2* starts, const float* weights, int from,
                                          Region at) {
    load(y, at, [&](int r, int j) {
        const uint2 start = starts[r];
        const int taps = starts[r + 1].y - start.y;
        strict sum = 0.f;
        for (int k = 0; k < taps; k++)
            sum = sum + strict(weights[start.y + k]) * x[(i64)min((int)start.x + k, from - 1) * 3 * at.w + j];
        return with_sign(sum);
    });
}

} // namespace frames

#define LOAD_SAMPLES(E, suffix, C) \
    extern "C" __global__ void load_samples_##C##_##suffix(E* y, const C* x, frames::Region at) { \
        frames::load(y, at, [&](int r, int j) { return unit_of(x[(i64)r * 3 * at.w + j]) * 2.f - 1.f; }); \
    }
#define FRAMES(E, suffix) \
    extern "C" __global__ void load_rows_##suffix(E* y, const float* x, const uint2* starts, const float* weights, \
                                                  int from, frames::Region at) { \
        frames::load_rows<E>(y, x, starts, weights, from, at); \
    } \
    LOAD_SAMPLES(E, suffix, u8) \
    LOAD_SAMPLES(E, suffix, u16) \
    LOAD_SAMPLES(E, suffix, sample) \
    extern "C" __global__ void keep_frame_##suffix(float* y, const E* x, int from, int to) { \
        x += (i64)blockIdx.y * 3 * from, y += (i64)blockIdx.y * 3 * to; \
        FOR_EACH_OF_ROW(i, 3 * to) y[i] = wide(x[i]); \
    }
FRAMES(f16, f16)
SINCE_AMPERE(FRAMES(bf16, bf16))
FRAMES(float, f32)

extern "C" __global__ void blend_frames(float* y, const float* later, float weight, i64 count) {
    FOR_EACH(i, count) y[i] = (strict(y[i]) * weight + strict(later[i]) * (strict(1.f) - weight)).v;
}

#define FINISH(E, suffix) \
    extern "C" __global__ void finish_##suffix(E* y, const float* x, i64 count) { \
        FOR_EACH(i, count) y[i] = narrow<E>(unit_of(sample{((strict(x[i]) + 1.f) * 0.5f).v}).v); \
    }
FINISH(f16, f16)
FINISH(float, f32)
