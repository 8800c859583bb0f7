// axpby: y = a * x + b * y, in place
//
//   x, y         (rows, channels) E, dense
//   grid         a warp per row, eight rows per block
//   differs      from the reference by one rounding
#include "rows.cuh"

template <class E>
__device__ void axpby(E* y, const E* x, float a, float b, i64 rows, int channels) {
    const i64 row = row_of_warp();
    if (row >= rows) return;
    x += row * channels, y += row * channels;
    along_row(channels, [&](auto n, int c) {
        const auto v = Vec<E, n.value>::load(x + c);
        auto w = Vec<E, n.value>::load(y + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) w.at[j] = narrow<E>(a * wide(v.at[j]) + b * wide(w.at[j]));
        w.store(y + c);
    });
}

#define AXPBY(E, suffix) \
    ROWS_KERNEL(axpby_##suffix)(E* y, const E* x, float a, float b, i64 rows, int channels) { \
        axpby<E>(y, x, a, b, rows, channels); \
    }
AXPBY(f16, f16)
SINCE_AMPERE(AXPBY(bf16, bf16))
AXPBY(float, f32)
