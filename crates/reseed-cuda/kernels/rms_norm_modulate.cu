// rms_norm_modulate: y = x / sqrt(mean(x^2) + eps) * gain + shift
//
//   x, y         (rows, channels) E, dense        gain, shift  (channels) f32
//   grid         a warp per row, eight rows per block
//   differs      from the reference by the order of the sums and one rounding
#include "rows.cuh"

template <class E>
__device__ void rms_norm_modulate(E* y, const E* x, const float* gain, const float* shift, i64 rows, int channels,
                                  float eps) {
    const i64 row = row_of_warp();
    if (row >= rows) return;
    x += row * channels, y += row * channels;
    float sum = 0.f;
    along_row(channels, [&](auto n, int c) {
        const auto v = Vec<E, n.value>::load(x + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) sum += wide(v.at[j]) * wide(v.at[j]);
    });
    const float scale = 1.f / sqrtf(warp_sum(sum) / channels + eps);
    along_row(channels, [&](auto n, int c) {
        auto v = Vec<E, n.value>::load(x + c);
        const auto g = Vec<float, n.value>::load(gain + c), s = Vec<float, n.value>::load(shift + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) v.at[j] = narrow<E>(wide(v.at[j]) * scale * g.at[j] + s.at[j]);
        v.store(y + c);
    });
}

#define RMS_NORM_MODULATE(E, suffix)                                                                \
    ROWS_KERNEL(rms_norm_modulate_##suffix)                                                         \
    (E * y, const E* x, const float* gain, const float* shift, i64 rows, int channels, float eps) { \
        rms_norm_modulate<E>(y, x, gain, shift, rows, channels, eps);                               \
    }
RMS_NORM_MODULATE(f16, f16)
SINCE_AMPERE(RMS_NORM_MODULATE(bf16, bf16))
RMS_NORM_MODULATE(float, f32)
