// conv_stem: causal convolution of pictures, which have few channels: all taps of all channels are one row of a product
//
//   x, past  (frames, H, W, C) E, C <= 4        w  [tap][Co][w_pitch] E        y  (frames, H, W, Co) E        bias f32
//   grid     blocks that walk over tiles of 16 x 16 pixels, weights in shared memory; a warp makes 2 rows of 16 pixels
//   needs    taps_t x 3 x 3 taps with taps_t <= 3, stride 1, one zero around the plane, Co a multiple of 64
//   differs  from the reference by the order of the sums and one rounding
#include "element.cuh"
#include "params.cuh"

constexpr int STEM_TILE = 16, STEM_HALO = 18, STEM_STEPS = 7, STEM_K = STEM_STEPS * 16, STEM_PITCH = STEM_K + 8;

// Brings the pixels that a tile reads: rows of 18 pixels lie one behind the other here as there, zero outside the plane.
template <class E>
__device__ __forceinline__ void stem_pixels(E* pixels, const E* x, const E* past, const ConvArgs& c, int t, int row, int column) {
    const int width = STEM_HALO * c.c_in, line = c.in_w * c.c_in, from = (column - 1) * c.c_in;
    for (int i = threadIdx.x / 32; i < c.taps_t * STEM_HALO; i += 8) {
        const int frame = t + i / STEM_HALO + c.first, r = row - 1 + i % STEM_HALO;
        const E* at = (frame < 0 ? past + (i64)(frame + c.past_frames) * c.in_h * line : x + (i64)frame * c.in_h * line) + (i64)r * line + from;
        for (int j = threadIdx.x % 32; j < width; j += 32)
            pixels[i * width + j] = r >= 0 && r < c.in_h && from + j >= 0 && from + j < line ? at[j] : narrow<E>(0.f);
    }
}

template <class E, int N>
__device__ void conv_stem(E* y, const E* x, const E* past, const E* w, const float* bias, const ConvArgs& c) {
    extern __shared__ unsigned char memory[];
    E* weights = (E*)memory;                                            // [Co][STEM_PITCH]
    E* pixels = weights + c.c_out * STEM_PITCH;                         // [dt][18][18][C]
    const int terms = c.taps_t * 9 * c.c_in, steps = (terms + 15) / 16;
    for (int i = threadIdx.x; i < c.c_out * STEM_PITCH; i += blockDim.x) {
        const int k = i % STEM_PITCH, tap = k / c.c_in;
        weights[i] = k < terms ? w[((i64)tap * c.c_out + i / STEM_PITCH) * c.w_pitch + k % c.c_in] : narrow<E>(0.f);
    }
    const int columns = (c.out_w + STEM_TILE - 1) / STEM_TILE, rows = (c.out_h + STEM_TILE - 1) / STEM_TILE;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int offsets[STEM_STEPS * 4];                                        // within `pixels`, of the terms that this lane multiplies
    #pragma unroll
    for (int i = 0; i < STEM_STEPS * 4; i++) {
        const int k = i / 2 * 8 + lane % 4 * 2 + i % 2, tap = k / c.c_in;
        offsets[i] = k < terms ? ((tap / 9 * STEM_HALO + tap / 3 % 3) * STEM_HALO + tap % 3) * c.c_in + k % c.c_in : 0;
    }
    for (int tile = blockIdx.x; tile < columns * rows * c.out_frames; tile += gridDim.x) {
        const int column = tile % columns * STEM_TILE, row = tile / columns % rows * STEM_TILE, t = tile / columns / rows;
        __syncthreads();
        stem_pixels(pixels, x, past, c, t, row, column);
        __syncthreads();
        for (int first = 0; first < c.c_out; first += N) {
            float sums[2][N / 8][4] = {};
            #pragma unroll
            for (int step = 0; step < STEM_STEPS; step++) {
                if (step >= steps) break;
                u32 a[2][4];
                #pragma unroll
                for (int i = 0; i < 8; i++) {                          // side, columns of the step, row
                    const E* at = pixels + ((warp * 2 + i % 2) * STEM_HALO + i / 4 * 8 + lane / 4) * c.c_in;
                    const int* offset = &offsets[step * 4 + i / 2 % 2 * 2];
                    a[i / 4][i % 4] = at[offset[0]].bits | (u32)at[offset[1]].bits << 16;
                }
                #pragma unroll
                for (int n = 0; n < N / 8; n++) {
                    const E* at = weights + (first + n * 8 + lane / 4) * STEM_PITCH + step * 16 + lane % 4 * 2;
                    const u32 b0 = *(const u32*)at, b1 = *(const u32*)(at + 8);
                    mma<E>(sums[0][n], a[0], b0, b1);
                    mma<E>(sums[1][n], a[1], b0, b1);
                }
            }
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                const int r = row + warp * 2 + i % 2, q = column + i / 2 * 8 + lane / 4;
                E* to = y + (((i64)(t * c.frame_step + c.frame_start) * c.out_h + r) * c.out_w + q) * c.y_pitch + first + lane % 4 * 8;
                #pragma unroll
                for (int chunk = 0; chunk < N / 32; chunk++) {
                    u32 out[4];
                    #pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const float* sum = &sums[i / 2][chunk * 4 + j][i % 2 * 2];
                        const float2 shift = *(const float2*)(bias + first + (chunk * 4 + j) * 8 + lane % 4 * 2);
                        out[j] = pack<E>(sum[0] + shift.x, sum[1] + shift.y);
                    }
                    turn(out[0], out[1], out[2], out[3], lane);
                    if (r < c.out_h && q < c.out_w) *(uint4*)(to + chunk * 32) = uint4{out[0], out[1], out[2], out[3]};
                }
            }
        }
    }
}

#define CONV_STEM(E)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                                                   \
    conv_stem_##E(E* y, const E* x, const E* past, const E* w, const float* bias, const __grid_constant__ ConvArgs c) { \
        c.c_out % 128 == 0 ? conv_stem<E, 128>(y, x, past, w, bias, c) : conv_stem<E, 64>(y, x, past, w, bias, c);      \
    }
CONV_STEM(f16)
#if __CUDA_ARCH__ >= 800
CONV_STEM(bf16)
#endif
