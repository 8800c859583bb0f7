// conv_stem: causal convolution of images, which have few channels: all taps of all channels are one row of a product
//
//   x, cache (frames, H, W, C) E, C <= 4        w  [tap][Co][w_pitch] E        y  (frames, H, W, Co) E        bias  f32
//   partial  [frame][group][slot] (sum, sum of squares) of 2 x 16 pixels and the channels of a group, or null
//   grid     blocks loop over tiles of 16 x 16 pixels with the weights in shared memory
//   block    256 threads; a warp computes 2 rows of 16 pixels while the block reads the pixels of the next tile
//   needs    taps_t x 3 x 3 taps with taps_t <= 3, stride 1, one zero around the plane, Co a multiple of 64;
//            groups of 4 or 8 channels
//   differs  from the reference by the order of the sums and one rounding
#include "element.cuh"
#include "params.cuh"
#include "group_sums.cuh"

constexpr int STEM_TILE = 16, STEM_HALO = 18, STEM_STEPS = 7, STEM_K = STEM_STEPS * 16, STEM_PITCH = STEM_K + 8,
              STEM_N = 64;
constexpr int STEM_THREADS = 256, STEM_EACH = (3 * STEM_HALO * STEM_HALO * 4 + STEM_THREADS - 1) / STEM_THREADS;

struct StemTile { int t, row, column; };

__device__ __forceinline__ StemTile stem_tile(const ConvArgs& c, int i) {
    const int columns = (c.out_w + STEM_TILE - 1) / STEM_TILE, rows = (c.out_h + STEM_TILE - 1) / STEM_TILE;
    return {i / columns / rows, i / columns % rows * STEM_TILE, i % columns * STEM_TILE};
}

// The pixels that a tile reads, [dt][18][18][C] over all threads; zero outside the plane.
template <class E>
__device__ __forceinline__ void stem_read(E (&values)[STEM_EACH], const E* x, const E* cache, const ConvArgs& c,
                                          StemTile tile) {
    const int width = STEM_HALO * c.c_in, line = c.in_w * c.c_in, from = (tile.column - 1) * c.c_in,
              count = c.taps_t * STEM_HALO * width;
    #pragma unroll
    for (int n = 0; n < STEM_EACH; n++) {
        if (n * STEM_THREADS >= count) break;                           // a single frame has a third of it
        const int i = threadIdx.x + n * STEM_THREADS, j = i % width, r = tile.row - 1 + i / width % STEM_HALO;
        const int frame = tile.t + i / width / STEM_HALO + c.first;
        const E* clip =
            frame < 0 ? cache + (i64)(frame + c.cache_frames) * c.in_h * line : x + (i64)frame * c.in_h * line;
        const bool valid = i < count && r >= 0 && r < c.in_h && from + j >= 0 && from + j < line;
        values[n] = valid ? clip[(i64)r * line + from + j] : narrow<E>(0.f);
    }
}

// Computes STEM_N channels of a warp's two rows of 16 pixels.
template <class E>
__device__ __forceinline__ void stem_multiply(float (&sums)[2][STEM_N / 8][4], const E* pixels, const E* weights,
                                              const int* offsets, int steps, int c_in) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const E* corner = pixels + (warp * 2 * STEM_HALO + lane / 4) * c_in;
    #pragma unroll 1
    for (int step = 0; step < steps; step++) {
        u32 a[2][4];
        #pragma unroll
        for (int half = 0; half < 2; half++) {                         // columns of the step
            const int2 offset = *(const int2*)(offsets + step * 16 + half * 8 + lane % 4 * 2);
            #pragma unroll
            for (int i = 0; i < 4; i++) {                              // side, row
                const E* at = corner + (i % 2 * STEM_HALO + i / 2 * 8) * c_in;
                a[i / 2][half * 2 + i % 2] = at[offset.x].bits | (u32)at[offset.y].bits << 16;
            }
        }
        #pragma unroll
        for (int n = 0; n < STEM_N / 8; n++) {
            const E* at = weights + (n * 8 + lane / 4) * STEM_PITCH + step * 16 + lane % 4 * 2;
            const u32 b0 = *(const u32*)at, b1 = *(const u32*)(at + 8);
            mma<E>(sums[0][n], a[0], b0, b1);
            mma<E>(sums[1][n], a[1], b0, b1);
        }
    }
}

template <class E>
__device__ void conv_stem(E* y, const E* x, const E* cache, const E* w, const float* bias, float2* partial, int groups,
                          const ConvArgs& c) {
    extern __shared__ unsigned char memory[];
    E* weights = (E*)memory;                                            // [Co][STEM_PITCH]
    E* pixels = weights + c.c_out * STEM_PITCH;                         // [dt][18][18][C]
    __shared__ int offsets[STEM_K];                                     // offsets of a row's terms within `pixels`
    const int terms = c.taps_t * 9 * c.c_in, steps = (terms + 15) / 16,
              count = c.taps_t * STEM_HALO * STEM_HALO * c.c_in;
    #pragma unroll 4
    for (int i = threadIdx.x; i < c.c_out * STEM_PITCH; i += STEM_THREADS) {
        const int k = i % STEM_PITCH, tap = k / c.c_in;
        weights[i] = k < terms ? w[((i64)tap * c.c_out + i / STEM_PITCH) * c.w_pitch + k % c.c_in] : narrow<E>(0.f);
    }
    for (int k = threadIdx.x; k < STEM_K; k += STEM_THREADS) {
        const int tap = k / c.c_in;
        offsets[k] = k < terms ? ((tap / 9 * STEM_HALO + tap / 3 % 3) * STEM_HALO + tap % 3) * c.c_in + k % c.c_in : 0;
    }
    const int tiles = (c.out_w + STEM_TILE - 1) / STEM_TILE * ((c.out_h + STEM_TILE - 1) / STEM_TILE) * c.out_frames;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    E values[STEM_EACH];
    stem_read(values, x, cache, c, stem_tile(c, blockIdx.x));
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        const StemTile tile = stem_tile(c, i);
        __syncthreads();
        #pragma unroll
        for (int n = 0; n < STEM_EACH; n++)
            if (threadIdx.x + n * STEM_THREADS < count) pixels[threadIdx.x + n * STEM_THREADS] = values[n];
        __syncthreads();
        if (i + gridDim.x < tiles)
            stem_read(values, x, cache, c, stem_tile(c, i + gridDim.x));  // overlaps with the products
        for (int first = 0; first < c.c_out; first += STEM_N) {
            float sums[2][STEM_N / 8][4];
            #pragma unroll
            for (int n = 0; n < STEM_N / 8; n++) {
                const float2 shift = __ldg((const float2*)(bias + first + n * 8 + lane % 4 * 2));
                #pragma unroll
                for (int s = 0; s < 4; s++)
                    sums[s / 2][n][s % 2 * 2] = shift.x, sums[s / 2][n][s % 2 * 2 + 1] = shift.y;
            }
            stem_multiply(sums, pixels, weights + first * STEM_PITCH, offsets, steps, c.c_in);
            const i64 frame = tile.t * c.frame_step + c.frame_start;
            const int row = tile.row + warp * 2, column = tile.column + lane / 4;
            #pragma unroll
            for (int s = 0; s < 4; s++) {
                const int r = row + s % 2, q = column + s / 2 * 8;
                E* to = y + ((frame * c.out_h + r) * c.out_w + q) * c.y_pitch + first + lane % 4 * 8;
                #pragma unroll
                for (int chunk = 0; chunk < STEM_N / 32; chunk++) {
                    u32 out[4];
                    #pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const float* sum = &sums[s / 2][chunk * 4 + j][s % 2 * 2];
                        out[j] = pack<E>(sum[0], sum[1]);
                    }
                    transpose_chunks(out[0], out[1], out[2], out[3], lane);
                    if (r < c.out_h && q < c.out_w) *(uint4*)(to + chunk * 32) = uint4{out[0], out[1], out[2], out[3]};
                }
            }
            if (partial) {
                const int width = c.c_out / groups, columns = (c.out_w + STEM_TILE - 1) / STEM_TILE;
                const int slots = (c.out_h + STEM_TILE - 1) / STEM_TILE * (STEM_TILE / 2) * columns,
                          slot = row / 2 * columns + tile.column / STEM_TILE;
                auto value = [&](int side, int i) {
                    return row + i % 4 / 2 < c.out_h && column + side * 8 < c.out_w ? sums[side][i / 4][i % 4] : 0.f;
                };
                group_sums<STEM_N / 8>(value, width, partial + (frame * groups + first / width) * slots + slot, slots,
                                       lane);
            }
        }
    }
}

#define CONV_STEM(E) \
    extern "C" __global__ void __launch_bounds__(STEM_THREADS, 2) \
    conv_stem_##E(E* y, const E* x, const E* cache, const E* w, const float* bias, float2* partial, int groups, \
                  const __grid_constant__ ConvArgs c) { \
        conv_stem<E>(y, x, cache, w, bias, partial, groups, c); \
    }
CONV_STEM(f16)
#if __CUDA_ARCH__ >= 800
SINCE_AMPERE(CONV_STEM(bf16))
#endif
