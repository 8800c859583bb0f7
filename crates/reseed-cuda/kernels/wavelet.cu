// wavelet_difference: d = style - content
// wavelet_blur: y = blur(x) along y, then along x, weights (1, 2, 1) / 4, taps `dilation` pixels apart, edges repeated
// wavelet_add: content = clamp(content + low)
//
//   all      (h, w, 3) float
//   grid     threads stride over values, wavelet_blur over those of a row
//   differs  from the host in nothing
#include "strict.cuh"

extern "C" __global__ void wavelet_difference(float* d, const float* style, const float* content, i64 count) {
    FOR_EACH(i, count) d[i] = (strict(style[i]) - content[i]).v;
}

__device__ __forceinline__ strict blurred(strict before, strict here, strict after) {
    return (before + strict(2.f) * here + after) / 4.f;
}

extern "C" __global__ void wavelet_blur(float* y, const float* x, int h, int w, int dilation) {
    const int line = 3 * w;
    const int row = blockIdx.y;
    const float* above = x + (i64)max(row - dilation, 0) * line;
    const float* here = x + (i64)row * line;
    const float* below = x + (i64)min(row + dilation, h - 1) * line;
    FOR_EACH_OF_ROW(i, line) {
        const int column = i / 3, c = i % 3;
        auto down = [&](int column) {
            const int at = 3 * column + c;
            return blurred(above[at], here[at], below[at]);
        };
        const strict left = down(max(column - dilation, 0)), right = down(min(column + dilation, w - 1));
        y[(i64)row * line + i] = blurred(left, down(column), right).v;
    }
}

extern "C" __global__ void wavelet_add(float* content, const float* low, i64 count) {
    FOR_EACH(i, count) content[i] = clamped(strict(content[i]) + low[i], -1.f, 1.f).v;
}
