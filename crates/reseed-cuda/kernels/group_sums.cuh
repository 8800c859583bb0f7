// Sums and sums of squares of a convolution's output, for the group norm that follows it.
#pragma once
#include "element.cuh"

// Two lanes `distance` apart exchange halves of their chunks, N chunks each, and add them.
template <int N, int CHUNKS>
__device__ __forceinline__ void halve(float (&sum)[CHUNKS], float (&square)[CHUNKS], int lane, int distance) {
    const bool upper = lane & distance;
    #pragma unroll
    for (int j = 0; j < N; j++) {
        const float other_sum = __shfl_xor_sync(~0u, upper ? sum[j] : sum[j + N], distance);
        const float other_square = __shfl_xor_sync(~0u, upper ? square[j] : square[j + N], distance);
        sum[j] = (upper ? sum[j + N] : sum[j]) + other_sum,
        square[j] = (upper ? square[j + N] : square[j]) + other_square;
    }
}

// Sums and sums of squares over 2 rows of 8 x SIDES pixels of a warp, CHUNKS chunks of eight channels in groups of
// `width` (4, 8 or 16); pixels outside the plane must be zero. value(side, i) is a lane's value, in the register layout
// of products, four per chunk. At every step the lanes of different pixels halve the channels among themselves, so that
// each step costs half of the one before. The variance computed from these sums loses less to cancellation than
// rounding to E has changed.
template <int CHUNKS, int SIDES = 2, class Value>
__device__ __forceinline__ void group_sums(Value value, int width, float2* out, int slots, int lane) {
    constexpr int LEFT = CHUNKS / 8;
    float sum[CHUNKS], square[CHUNKS];
    #pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        sum[j] = square[j] = 0.f;
        #pragma unroll
        for (int i = 0; i < 4 * SIDES; i++) {
            const float x = value(i / 4, j * 4 + i % 4);
            sum[j] += x, square[j] += x * x;
        }
    }
    halve<LEFT * 4>(sum, square, lane, 16);
    halve<LEFT * 2>(sum, square, lane, 8);
    halve<LEFT>(sum, square, lane, 4);
    // LEFT chunks of eight channels remain, from chunk `first` on; each of four lanes has a pair of every chunk.
    const int first = lane / 4 * LEFT;
    #pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2) {
        if (distance * 2 >= width) break;
        #pragma unroll
        for (int j = 0; j < LEFT; j++)
            sum[j] += __shfl_xor_sync(~0u, sum[j], distance), square[j] += __shfl_xor_sync(~0u, square[j], distance);
    }
    if (LEFT == 2 && width == 16) sum[0] += sum[LEFT - 1], square[0] += square[LEFT - 1];
    if (LEFT == 1 && width == 16)
        sum[0] += __shfl_xor_sync(~0u, sum[0], 4), square[0] += __shfl_xor_sync(~0u, square[0], 4);
    if (LEFT == 1 && width == 16 && first % 2 == 1) return;            // the neighbour lane writes both
    if (lane % 4 == 0 || (width == 4 && lane % 4 == 2)) {
        #pragma unroll
        for (int j = 0; j < LEFT; j++)
            if (width < 16 || j == 0) out[(i64)((first + j) * 8 + lane % 4 * 2) / width * slots] = {sum[j], square[j]};
    }
}
