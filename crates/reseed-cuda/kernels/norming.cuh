// A norm and SiLU of pixels that lie in shared memory, on their way into a convolution.
#pragma once
#include "hopper.cuh"
#include "params.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Six warps take four pixels each in turn, a lane eight channels of one. A multiple of eight pixels further on a chunk lies at the
// same place of its row.
constexpr int NORM_WARPS = 6, NORM_STEP = 4 * NORM_WARPS;

// What a norm is to a picture, z = slope * x + shift for every channel, in shared memory. Both are times -log2(e), so that 2 to
// the power of z is what a sigmoid wants.
constexpr float LOG2E = 1.44269504f;

__device__ __forceinline__ void tabulate(u32 table, const NormArgs& n, const ConvArgs& c) {
    for (int channel = threadIdx.x; channel < c.c_in; channel += blockDim.x) {
        const float2 stats = n.stats[channel / (c.c_in / n.groups)];
        const float slope = n.gain[channel] / sqrtf(stats.y + n.eps), shift = n.shift[channel] - stats.x * slope;
        asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(table + channel * 8), "f"(slope * -LOG2E), "f"(shift * -LOG2E) : "memory");
    }
}

// The same for a lane's eight channels.
struct Norming {
    float slope[8], shift[8];

    __device__ __forceinline__ Norming(u32 table, int channel) {
        #pragma unroll
        for (int j = 0; j < 8; j += 2)
            asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(slope[j]), "=f"(shift[j]), "=f"(slope[j + 1]), "=f"(shift[j + 1]) : "r"(table + (channel + j) * 8));
    }
    // z * sigmoid(z) of eight values, side by side so that none waits for another.
    template <class E> __device__ __forceinline__ void apply(u32 at) const {
        u32 v[4];
        float z[8], e[8];
        load_shared(v, at);
        #pragma unroll
        for (int j = 0; j < 8; j++) z[j] = wide(E{(u16)(v[j / 2] >> j % 2 * 16)}) * slope[j] + shift[j];
        #pragma unroll
        for (int j = 0; j < 8; j++) e[j] = exp2_fast(z[j]);
        #pragma unroll
        for (int j = 0; j < 8; j++) e[j] = reciprocal_fast(e[j] * -LOG2E - LOG2E);
        #pragma unroll
        for (int j = 0; j < 4; j++) v[j] = pack<E>(z[2 * j] * e[2 * j], z[2 * j + 1] * e[2 * j + 1]);
        store_shared(at, v);
    }
};

// Normalises `lines` rows of `width` pixels, the first of them at (row, column), where they lie. Those outside of the plane stay
// zero.
template <class E>
__device__ __forceinline__ void normalise(const Norming& norming, u32 stage, const ConvArgs& c, int row, int column, int width, int lines, int first) {
    u32 at = stage + first * ROW + ((threadIdx.x % 8 ^ first % 8) << 4);
    if (row >= 0 && column >= 0 && row + lines <= c.in_h && column + width <= c.in_w) {
        for (int p = first; p < width * lines; p += NORM_STEP, at += NORM_STEP * ROW) norming.apply<E>(at);
        return;
    }
    for (int p = first; p < width * lines; p += NORM_STEP, at += NORM_STEP * ROW)
        if ((u32)(row + p / width) < (u32)c.in_h && (u32)(column + p % width) < (u32)c.in_w) norming.apply<E>(at);
}

#endif
