// gelu: x = gelu(x) with the tanh approximation, in place
//
//   x            (rows, channels) E, dense
//   grid         a warp per row, eight rows per block
//   differs      from the reference by one rounding; (1 + tanh(z)) / 2 is computed as the logistic function of 2z
#include "rows.cuh"

template <class E>
__device__ void gelu(E* x, i64 rows, int channels) {
    const i64 row = row_of_warp();
    if (row >= rows) return;
    x += row * channels;
    along_row(channels, [&](auto n, int c) {
        auto v = Vec<E, n.value>::load(x + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) {
            const float z = wide(v.at[j]);
            v.at[j] = narrow<E>(z / (1.f + expf(-1.5957691216057308f * (z + 0.044715f * z * z * z))));
        }
        v.store(x + c);
    });
}

#define GELU(E, suffix) \
    ROWS_KERNEL(gelu_##suffix)(E* x, i64 rows, int channels) { \
        gelu<E>(x, rows, channels); \
    }
GELU(f16, f16)
GELU(bf16, bf16)
GELU(float, f32)
