// swiglu: y = silu(a) * b, where a row of x is [a b]
//
//   x            (rows, 2 * width) E, dense        y  (rows, width) E, dense
//   grid         a warp per row, eight rows per block
//   differs      from the reference by one rounding
#include "activations.cuh"
#include "rows.cuh"

template <class E>
__device__ void swiglu(E* y, const E* x, i64 rows, int width) {
    const i64 row = row_of_warp();
    if (row >= rows) return;
    x += row * 2 * width, y += row * width;
    along_row(width, [&](auto n, int c) {
        auto a = Vec<E, n.value>::load(x + c);
        const auto b = Vec<E, n.value>::load(x + width + c);
        #pragma unroll
        for (int j = 0; j < n.value; j++) a.at[j] = narrow<E>(swiglu_of(wide(a.at[j]), wide(b.at[j])));
        a.store(y + c);
    });
}

#define SWIGLU(E, suffix) \
    ROWS_KERNEL(swiglu_##suffix)(E* y, const E* x, i64 rows, int width) { \
        swiglu<E>(y, x, rows, width); \
    }
SWIGLU(f16, f16)
SINCE_AMPERE(SWIGLU(bf16, bf16))
SWIGLU(float, f32)
