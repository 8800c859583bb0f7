// Kernels over rows of tokens: a warp computes a row, eight warps make a block.
#pragma once
#include "element.cuh"

template <int N> struct Count { static constexpr int value = N; };

// Calls `body` for all channels of a row: eight per lane where rows are multiples of eight, else one.
template <class F>
__device__ __forceinline__ void along_row(int channels, F body) {
    const int lane = threadIdx.x % 32;
    if (channels % 8 == 0) {
        for (int c = lane * 8; c < channels; c += 256) body(Count<8>{}, c);
    } else {
        for (int c = lane; c < channels; c += 32) body(Count<1>{}, c);
    }
}

__device__ __forceinline__ i64 row_of_warp() { return (i64)blockIdx.x * 8 + threadIdx.x / 32; }

// Entry point of such a kernel; a launch has (rows + 7) / 8 blocks.
#define ROWS_KERNEL(name) extern "C" __global__ void __launch_bounds__(256) name
