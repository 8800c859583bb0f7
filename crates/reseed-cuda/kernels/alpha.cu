// Alpha of a frame: a guided filter whose guide is the grey level of the restored frame. A mask is also sharpened.
//
// alpha_grey: y = mean of the channels of a frame, from 0 to 1
// alpha_box_x, alpha_box_y: means of p, or of p · q, over boxes of 2 radius + 1 pixels a side, zero beyond the frame
// alpha_fit: a = (mean gx - mean g · mean x) / (mean gg - (mean g)² + ε), b = mean x - a · mean g, in place of g and x
// alpha_apply: y = a · guide + b
// alpha_gradient: squared Sobel gradient of the 8-bit grey frame, and its largest value
// alpha_edges: the gradient over its largest value, rounded down to multiples of 1/255, in place
// alpha_sharpen: a threshold away from edges, a sigmoid on edges
// alpha_finish: y clamped to 0 .. 1, as samples
//
//   planes   (h, w) float
//   grid     threads stride over pixels; alpha_box_x and alpha_box_y: over those of a row
//   differs  from the host in the exponential of alpha_sharpen, which is rounded correctly here
#include "strict.cuh"

extern "C" __global__ void alpha_grey(float* y, const float* frame, i64 pixels) {
    FOR_EACH(i, pixels) y[i] = ((unit(frame[3 * i]) + unit(frame[3 * i + 1]) + unit(frame[3 * i + 2])) / 3.f).v;
}

extern "C" __global__ void alpha_box_x(float* y, const float* p, const float* q, int w, int radius) {
    const i64 row = (i64)blockIdx.y * w;
    FOR_EACH_OF_ROW(i, w) {
        strict sum = 0.f;
        for (int k = max(i - radius, 0); k < min(i + radius + 1, w); k++)
            sum = sum + (q ? strict(p[row + k]) * q[row + k] : strict(p[row + k]));
        y[row + i] = sum.v;
    }
}

extern "C" __global__ void alpha_box_y(float* y, const float* x, int h, int w, int radius) {
    const int r = blockIdx.y, side = 2 * radius + 1;
    FOR_EACH_OF_ROW(i, w) {
        strict sum = 0.f;
        for (int k = max(r - radius, 0); k < min(r + radius + 1, h); k++) sum = sum + x[(i64)k * w + i];
        y[(i64)r * w + i] = (sum / (float)(side * side)).v;
    }
}

extern "C" __global__ void alpha_fit(float* g, float* x, const float* gx, const float* gg, float epsilon, i64 pixels) {
    FOR_EACH(i, pixels) {
        const strict mean_g = g[i], mean_x = x[i];
        const strict a = (strict(gx[i]) - mean_g * mean_x) / (strict(gg[i]) - mean_g * mean_g + epsilon);
        g[i] = a.v, x[i] = (mean_x - a * mean_g).v;
    }
}

extern "C" __global__ void alpha_apply(float* y, const float* a, const float* b, const float* guide, i64 pixels) {
    FOR_EACH(i, pixels) y[i] = (strict(a[i]) * guide[i] + b[i]).v;
}

namespace alpha {

// Rec. 601 luma with 15 fractional bits.
__device__ __forceinline__ int grey(const float* frame, int h, int w, int y, int x) {
    // The pixel at the edge is not repeated.
    y = y < 0 ? min(1, h - 1) : y == h ? max(h - 2, 0) : y;
    x = x < 0 ? min(1, w - 1) : x == w ? max(w - 2, 0) : x;
    const float* pixel = frame + 3 * ((i64)y * w + x);
    int code[3];
    #pragma unroll
    for (int c = 0; c < 3; c++) code[c] = (int)(unit(pixel[c]) * 255.f).v; // NaN becomes 0
    return (9798 * code[0] + 19235 * code[1] + 3735 * code[2] + 16384) >> 15;
}

__device__ __forceinline__ float binary(float v) { return v > 0.5f ? 1.f : 0.f; }

} // namespace alpha

extern "C" __global__ void alpha_gradient(u32* squares, u32* largest, const float* frame, int h, int w) {
    u32 most = 0;
    FOR_EACH(i, (i64)h * w) {
        const int y = i / w, x = i % w;
        const auto at = [&](int dy, int dx) { return alpha::grey(frame, h, w, y + dy, x + dx); };
        const int gx = at(-1, 1) + 2 * at(0, 1) + at(1, 1) - at(-1, -1) - 2 * at(0, -1) - at(1, -1);
        const int gy = at(1, -1) + 2 * at(1, 0) + at(1, 1) - at(-1, -1) - 2 * at(-1, 0) - at(-1, 1);
        squares[i] = gx * gx + gy * gy;
        most = max(most, squares[i]);
    }
    atomicMax(largest, most);
}

extern "C" __global__ void alpha_edges(u32* edges, const u32* largest, i64 pixels) {
    const double most = *largest ? __dsqrt_rn((double)*largest) : 1.0;
    FOR_EACH(i, pixels) {
        const double share = __ddiv_rn(__dsqrt_rn((double)edges[i]), most);
        edges[i] = __float_as_uint((float)__ddiv_rn(floor(__dmul_rn(share, 255.0)), 255.0));
    }
}

extern "C" __global__ void alpha_sharpen(float* y, const float* filtered, const float* edges, int h, int w) {
    FOR_EACH(i, (i64)h * w) {
        const int r = i / w, c = i % w;
        float dilated = 0.f;
        for (int k = max(r - 1, 0); k < min(r + 2, h); k++)
            for (int j = max(c - 1, 0); j < min(c + 2, w); j++) dilated = fmaxf(dilated, edges[(i64)k * w + j]);
        const strict f = filtered[i], edge = edges[i];
        float result = alpha::binary(f.v);
        if (!(dilated < 0.05f)) {
            const strict k = clamped(edge / 0.25f, 0.f, 1.f), x = (f - 0.5f) * -12.f;
            result = (f * (strict(1.f) - k) + k / (strict(1.f) + (float)exp((double)x.v))).v;
        }
        y[i] = result > 0.3f && result < 0.7f && edge.v <= 0.15f ? alpha::binary(result) : result;
    }
}

template <class C> __device__ __forceinline__ C alpha_sample(float unit);
template <> __device__ __forceinline__ u8 alpha_sample<u8>(float unit) { return (u32)(strict(unit) * 255.f + 0.5f).v; }
template <> __device__ __forceinline__ u16 alpha_sample<u16>(float unit) {
    return (u32)(strict(unit) * 65535.f + 0.5f).v;
}
template <> __device__ __forceinline__ sample alpha_sample<sample>(float unit) { return {unit}; }

#define ALPHA_FINISH(C) \
    extern "C" __global__ void alpha_finish_##C(C* y, const float* x, i64 pixels) { \
        FOR_EACH(i, pixels) y[i] = alpha_sample<C>(unit_of(sample{x[i]}).v); \
    }
ALPHA_FINISH(u8)
ALPHA_FINISH(u16)
ALPHA_FINISH(sample)
