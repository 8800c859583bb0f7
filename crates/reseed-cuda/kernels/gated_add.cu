// gated_add: x += gate * h, in place
//
//   x, h         (rows, channels) E, dense        gate  (channels) f32
//   grid         a warp per row, eight rows per block
//   differs      from the reference by one rounding
#include "rows.cuh"

template <class E>
__device__ void gated_add(E* x, const E* h, const float* gate, i64 rows, int channels) {
    const i64 row = row_of_warp();
    if (row >= rows) return;
    x += row * channels, h += row * channels;
    along_row(channels, [&](auto n, int c) {
        auto v = Vec<E, n.value>::load(x + c);
        const auto other = Vec<E, n.value>::load(h + c);
        const auto g = Vec<float, n.value>::load(gate + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) v.at[j] = narrow<E>(wide(v.at[j]) + g.at[j] * wide(other.at[j]));
        v.store(x + c);
    });
}

#define GATED_ADD(E, suffix) \
    ROWS_KERNEL(gated_add_##suffix)(E* x, const E* h, const float* gate, i64 rows, int channels) { \
        gated_add<E>(x, h, gate, rows, channels); \
    }
GATED_ADD(f16, f16)
SINCE_AMPERE(GATED_ADD(bf16, bf16))
GATED_ADD(float, f32)
