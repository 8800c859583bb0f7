// A group norm and SiLU of pixels in shared memory, before a convolution multiplies them.
#pragma once
#include "hopper.cuh"
#include "params.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Six warps normalise four pixels each at a time, a lane eight channels of one. A step is a multiple of eight pixels,
// so that the swizzle puts a lane's chunk at the same offset in every row.
constexpr int NORM_WARPS = 6, NORM_STEP = 4 * NORM_WARPS;

// Writes slope and shift of every channel of a frame to shared memory. h = slope * x + shift is half of the normalised
// value, since silu(2h) = h + h tanh(h).
__device__ __forceinline__ void tabulate(u32 table, const NormArgs& n, const ConvArgs& c) {
    for (int channel = threadIdx.x; channel < c.c_in; channel += blockDim.x) {
        const float2 stats = n.stats[channel / (c.c_in / n.groups)];
        const float slope = .5f * n.gain[channel] / sqrtf(stats.y + n.eps),
                    shift = .5f * n.shift[channel] - stats.x * slope;
        asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(table + channel * 8), "f"(slope), "f"(shift) : "memory");
    }
}

// Slope and shift of a lane's eight channels.
struct OnLoadNorm {
    float slope[8], shift[8];

    __device__ __forceinline__ OnLoadNorm(u32 table, int channel) {
        #pragma unroll
        for (int j = 0; j < 8; j += 2)
            asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                         : "=f"(slope[j]), "=f"(shift[j]), "=f"(slope[j + 1]), "=f"(shift[j + 1])
                         : "r"(table + (channel + j) * 8));
    }
    // Eight independent values at a time. The relative error of tanh_fast is 2^-11, that of the result half as much: as
    // much as rounding to f16.
    template <class E> __device__ __forceinline__ void apply(u32 at) const {
        u32 v[4];
        float h[8], t[8];
        load_shared(v, at);
        #pragma unroll
        for (int j = 0; j < 8; j++) h[j] = wide(E{(u16)(v[j / 2] >> j % 2 * 16)}) * slope[j] + shift[j];
        #pragma unroll
        for (int j = 0; j < 8; j++) t[j] = tanh_fast(h[j]);
        #pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = pack<E>(h[2 * j] * t[2 * j] + h[2 * j], h[2 * j + 1] * t[2 * j + 1] + h[2 * j + 1]);
        store_shared(at, v);
    }
};

// Normalises `lines` rows of `width` pixels from (row, column) on, in place. Pixels outside the plane stay zero.
template <class E>
__device__ __forceinline__ void normalise(const OnLoadNorm& on_load, u32 stage, const ConvArgs& c, int row, int column,
                                          int width, int lines, int first) {
    u32 at = stage + first * ROW + ((threadIdx.x % 8 ^ first % 8) << 4);
    if (row >= 0 && column >= 0 && row + lines <= c.in_h && column + width <= c.in_w) {
        for (int p = first; p < width * lines; p += NORM_STEP, at += NORM_STEP * ROW) on_load.apply<E>(at);
        return;
    }
    for (int p = first; p < width * lines; p += NORM_STEP, at += NORM_STEP * ROW)
        if ((u32)(row + p / width) < (u32)c.in_h && (u32)(column + p % width) < (u32)c.in_w) on_load.apply<E>(at);
}

#endif
