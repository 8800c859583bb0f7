// gelu: x = gelu(x) with the tanh approximation, in place
//
//   x            (rows, channels) E, dense
//   grid         a warp per row, eight rows per block
//   differs      from the reference by one rounding
#include "activations.cuh"
#include "rows.cuh"

template <class E>
__device__ void gelu(E* x, i64 rows, int channels) {
    const i64 row = row_of_warp();
    if (row >= rows) return;
    x += row * channels;
    along_row(channels, [&](auto n, int c) {
        auto v = Vec<E, n.value>::load(x + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) v.at[j] = narrow<E>(gelu_of(wide(v.at[j])));
        v.store(x + c);
    });
}

#define GELU(E, suffix) \
    ROWS_KERNEL(gelu_##suffix)(E* x, i64 rows, int channels) { \
        gelu<E>(x, rows, channels); \
    }
GELU(f16, f16)
SINCE_AMPERE(GELU(bf16, bf16))
GELU(float, f32)
