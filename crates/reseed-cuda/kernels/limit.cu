// limit_range: y = y clamped to low - m .. high + m and to -1 .. 1, where low and high are the extreme values of x in
// the 5x5 pixels around the one below, and m = (high - low) / 2 + margin
//
//   y        (rows, columns, 3) top left of a frame of `resized_h` x `resized_w` pixels
//   x        (h, w, 3) values from -1 to 1; windows are cut at borders
//   grid     rows of y, and threads that stride over the values of a row
//   differs  from the host in nothing
#include "strict.cuh"

extern "C" __global__ void limit_range(float* y, const float* x, int h, int w, int resized_h, int resized_w,
                                       int columns, float margin) {
    const int reach = 2, row = (int)blockIdx.y * h / resized_h;
    const int top = max(row - reach, 0), bottom = min(row + reach, h - 1);
    y += (i64)blockIdx.y * 3 * columns;
    FOR_EACH_OF_ROW(i, 3 * columns) {
        // Sides are at most 2^15.
        const int column = i / 3 * w / resized_w;
        const int left = max(column - reach, 0), right = min(column + reach, w - 1);
        float low = 1.f, high = -1.f;
        #pragma unroll 1
        for (int r = top; r <= bottom; r++) {
            const float* at = x + ((i64)r * w + left) * 3 + i % 3;
            #pragma unroll 1
            for (int k = left; k <= right; k++, at += 3) low = fminf(low, *at), high = fmaxf(high, *at);
        }
        const strict m = (strict(high) - low) * 0.5f + margin;
        y[i] = clamped(clamped(y[i], (strict(low) - m).v, (strict(high) + m).v), -1.f, 1.f).v;
    }
}
