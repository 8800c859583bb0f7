// gather_rows: row i of y is the mean of the `per` rows of x that rows[i * per] and its successors name
//
//   x            (any, channels) E, dense        y  (count, channels) E, dense        rows  (count * per) u32
//   grid         a warp per row of y, eight rows per block
//   differs      from the reference by the order of the sum and one rounding; per == 1 copies
#include "rows.cuh"

template <class E>
__device__ void gather_rows(E* y, const E* x, const u32* rows, i64 count, int per, int channels) {
    const i64 row = row_of_warp();
    if (row >= count) return;
    rows += row * per, y += row * channels;
    along_row(channels, [&](auto n, int c) {
        auto v = Vec<E, n.value>::load(x + (i64)rows[0] * channels + c);
        if (per > 1) {
            float sum[n.value];
            #pragma unroll
            for (int j = 0; j < n.value; j++) sum[j] = wide(v.at[j]);
            for (int i = 1; i < per; i++) {
                const auto other = Vec<E, n.value>::load(x + (i64)rows[i] * channels + c);
                #pragma unroll
                for (int j = 0; j < n.value; j++) sum[j] += wide(other.at[j]);
            }
            #pragma unroll
            for (int j = 0; j < n.value; j++) v.at[j] = narrow<E>(sum[j] / per);
        }
        v.store(y + c);
    });
}

#define GATHER_ROWS(E, suffix) \
    ROWS_KERNEL(gather_rows_##suffix)(E* y, const E* x, const u32* rows, i64 count, int per, int channels) { \
        gather_rows<E>(y, x, rows, count, per, channels); \
    }
GATHER_ROWS(f16, f16)
SINCE_AMPERE(GATHER_ROWS(bf16, bf16))
GATHER_ROWS(float, f32)
