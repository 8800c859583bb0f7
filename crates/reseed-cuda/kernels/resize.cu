// resize_x: y[row][i] = Σ w[i][k] x[row][first[i] + k]     resize_y: the same over rows
//
//   x        (rows, from, 3) u8, u16 or float samples, read as 0 .. 1, or values; beyond its end the last one repeats
//   starts   (to + 1) first input index and offset of the weights of each output index
//   grid     rows of y, and threads that stride over the pixels (resize_x) or values (resize_y) of a row
//   differs  from the host in nothing: sums start at zero and add their terms in order
//
// resize_alpha_x: the same of one channel
//
// resize_y ends with one of: the sum (plain); clamped to 0 .. 1 (unit); also mapped to -1 .. 1 (signed); x of the
// samples at the same place, less the sum (residual_*); y + strength · sum, clamped (add).
#include "strict.cuh"

template <class C, int N>
__device__ void resize_x(float* y, const C* x, const uint2* starts, const float* weights, int from, int to) {
    x += (i64)blockIdx.y * N * from, y += (i64)blockIdx.y * N * to;
    FOR_EACH_OF_ROW(i, to) {
        const uint2 at = starts[i];
        const int taps = starts[i + 1].y - at.y;
        float sum[N] = {};
        for (int k = 0; k < taps; k++) {
            const C* pixel = x + N * min((int)at.x + k, from - 1);
            #pragma unroll
            for (int c = 0; c < N; c++) sum[c] = (strict(sum[c]) + strict(weights[at.y + k]) * unit_of(pixel[c])).v;
        }
        #pragma unroll
        for (int c = 0; c < N; c++) y[N * i + c] = sum[c];
    }
}

#define RESIZE_X(C, suffix) \
    extern "C" __global__ void resize_x_##suffix(float* y, const C* x, const uint2* starts, const float* weights, \
                                                 int from, int to) { \
        resize_x<C, 3>(y, x, starts, weights, from, to); \
    }
#define RESIZE_ALPHA_X(C) \
    extern "C" __global__ void resize_alpha_x_##C(float* y, const C* x, const uint2* starts, const float* weights, \
                                                  int from, int to) { \
        resize_x<C, 1>(y, x, starts, weights, from, to); \
    }
RESIZE_X(u8, u8)
RESIZE_X(u16, u16)
RESIZE_X(sample, sample)
RESIZE_X(float, f32)
RESIZE_ALPHA_X(u8)
RESIZE_ALPHA_X(u16)
RESIZE_ALPHA_X(sample)

template <class End>
__device__ void resize_y(const float* x, const uint2* starts, const float* weights, int from, int line, End end) {
    const uint2 at = starts[blockIdx.y];
    const int taps = starts[blockIdx.y + 1].y - at.y;
    FOR_EACH_OF_ROW(i, line) {
        strict sum = 0.f;
        for (int k = 0; k < taps; k++)
            sum = sum + strict(weights[at.y + k]) * x[(i64)min((int)at.x + k, from - 1) * line + i];
        end((i64)blockIdx.y * line + i, sum);
    }
}

// `line` is the number of values of a row.
extern "C" __global__ void resize_y_plain(float* y, const float* x, const uint2* starts, const float* weights,
                                          int from, int line) {
    resize_y(x, starts, weights, from, line, [&](i64 i, strict sum) { y[i] = sum.v; });
}
extern "C" __global__ void resize_y_unit(float* y, const float* x, const uint2* starts, const float* weights,
                                         int from, int line) {
    resize_y(x, starts, weights, from, line, [&](i64 i, strict sum) { y[i] = clamped(sum, 0.f, 1.f).v; });
}
extern "C" __global__ void resize_y_signed(float* y, const float* x, const uint2* starts, const float* weights,
                                           int from, int line) {
    resize_y(x, starts, weights, from, line, [&](i64 i, strict sum) { y[i] = with_sign(sum).v; });
}
extern "C" __global__ void resize_y_add(float* y, const float* x, const uint2* starts, const float* weights,
                                        int from, int line, float strength) {
    resize_y(x, starts, weights, from, line,
             [&](i64 i, strict sum) { y[i] = clamped(strict(y[i]) + strict(strength) * sum, -1.f, 1.f).v; });
}
#define RESIZE_RESIDUAL(C) \
    extern "C" __global__ void resize_y_residual_##C(float* y, const float* x, const uint2* starts, \
                                                     const float* weights, int from, int line, \
                                                     const C* codes) { \
        resize_y(x, starts, weights, from, line, \
                 [&](i64 i, strict sum) { y[i] = (with_sign(unit_of(codes[i])) - sum).v; }); \
    }
RESIZE_RESIDUAL(u8)
RESIZE_RESIDUAL(u16)
RESIZE_RESIDUAL(sample)

// resize_none: the top left of a frame of samples, as values from -1 to 1
#define RESIZE_NONE(C) \
    extern "C" __global__ void resize_none_##C(float* y, const C* x, int from, int to) { \
        x += (i64)blockIdx.y * 3 * from, y += (i64)blockIdx.y * 3 * to; \
        FOR_EACH_OF_ROW(i, 3 * to) y[i] = (unit_of(x[i]) * 2.f - 1.f).v; \
    }
RESIZE_NONE(u8)
RESIZE_NONE(u16)
RESIZE_NONE(sample)

// clamp: y = y clamped to -1 .. 1
extern "C" __global__ void clamp_f32(float* y, i64 count) {
    FOR_EACH(i, count) y[i] = clamped(y[i], -1.f, 1.f).v;
}
