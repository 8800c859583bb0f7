// conv_winograd_2d: causal convolution with 3 x 3 taps on the tensor cores of every GPU since Ampere by Winograd
// F(2x2,3x3): 16 products per 2 x 2 pixels where the direct algorithm has 36
//
//   x, cache (frames, H, W, C) f16
//   w        [temporal tap][Co / 64][C / 64][row of points][half of 64][column of points][64][32] f16, as
//            src/ops/conv_winograd_2d.rs packs them: rows in the order of `channel_of`, chunks swizzled
//   y        f16       bias  (Co) f32       residual  has the layout of y, or is null
//   grid     a block per multiprocessor, each loops over tiles of 16 x 16 pixels by 64 channels
//   block    8 warps, each 16 patches of 2 x 2 pixels by 32 channels; copies run one step ahead, across tiles
//   needs    C and Co multiples of 64, stride 1, one phase, addresses and pitches of 16 bytes
//   differs  from the reference by the order of the sums and by roundings: of the result, of transformed inputs (sums
//            of two, twice), of transformed weights. conv_winograd_2d_f16_fast also rounds sums of 64 products to f16,
//            after every 16 of them and in the transform of the sums.
//
// Along either axis inputs d0 to d3 and taps g0 to g2 give two outputs. With t = (d0 - d2, d1 + d2, d2 - d1, d3 - d1),
// u = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2) and m = t * u point by point, the outputs are m0 + m1 + m2 and
// m1 - m2 + m3. A pass multiplies one row of four points with 64 channels and adds the transformed sums to the outputs,
// so that registers hold the sums of four points instead of sixteen.
//
// A tile's pixels and their border are copied once per 32 channels, 64 bytes each, even columns of a row before odd
// ones: eight patches read eight consecutive rows of shared memory. The four 16-byte chunks are swizzled by the place
// in the row, so that these never share a bank.
#include "element.cuh"
#include "params.cuh"

#if __CUDA_ARCH__ >= 800

namespace winograd_2d {

constexpr int SIDE = 16, WIDTH = SIDE + 2, ROW = 64, CHUNKS = ROW / 16, SLAB = 32, CHANNELS = 64;
constexpr int LINE = WIDTH * ROW, A_BYTES = WIDTH * LINE, A_STAGES = 3, B_BYTES = 4 * CHANNELS * ROW, B_STAGES = 2;
constexpr int STEPS = 8;                // of 64 channels: four rows of points by two slabs
constexpr int LINES = 3;                // rows of pixels copied at a time
constexpr int NJ = 4;                   // products of eight channels per warp
constexpr int OUTSIDE = -1024;          // a row that stays outside the plane

struct Tile { int t, row, column, channel; };

__device__ __forceinline__ int place(int column) { return column % 2 * (WIDTH / 2) + column / 2; }
__device__ __forceinline__ int turned(int row, int q) { return (q ^ (row >> 1 & 3)) * 16; }

__device__ __forceinline__ u32 plus(u32 a, u32 b) {
    u32 v;
    asm("add.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
    return v;
}
__device__ __forceinline__ u32 minus(u32 a, u32 b) {
    u32 v;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
    return v;
}
// a + b * sign
__device__ __forceinline__ u32 signed_plus(u32 a, u32 b, u32 sign) {
    u32 v;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(b), "r"(sign), "r"(a));
    return v;
}

// Transforms the sums of a row of points to those of the left and the right column of outputs.
__device__ __forceinline__ void transform(float (&left)[4], float (&right)[4], const WideSum& m0, const WideSum& m1,
                                          const WideSum& m2, const WideSum& m3) {
    #pragma unroll
    for (int i = 0; i < 4; i++)
        left[i] = m0.v[i] + m1.v[i] + m2.v[i], right[i] = m1.v[i] - m2.v[i] + m3.v[i];
}
__device__ __forceinline__ void transform(float (&left)[4], float (&right)[4], const HalfSum& m0, const HalfSum& m1,
                                          const HalfSum& m2, const HalfSum& m3) {
    HalfSum l, r;
    #pragma unroll
    for (int i = 0; i < 2; i++)
        l.v[i] = plus(m0.v[i], plus(m1.v[i], m2.v[i])), r.v[i] = plus(minus(m1.v[i], m2.v[i]), m3.v[i]);
    #pragma unroll
    for (int i = 0; i < 4; i++) left[i] = l.at(i), right[i] = r.at(i);
}

// The pixels of a row of points: two rows of a slab, and the sign of the second as a pair of f16.
struct Rows {
    u32 first, second, sign;
    __device__ __forceinline__ Rows(u32 corner, int row)
        : first(corner + row * LINE), second(corner + (row < 2 ? 2 : 1) * LINE),
          sign(row == 1 ? 0x3C003C00u : 0xBC00BC00u) {}
    // Column j of 16 patches and half of the channels of the slab; `column` is its place.
    __device__ __forceinline__ void load(u32 (&r)[4], u32 column) const {
        u32 s[4];
        load_matrix(r, first + column);
        load_matrix(s, second + column);
        #pragma unroll
        for (int i = 0; i < 4; i++) r[i] = signed_plus(r[i], s[i], sign);
    }
};

template <class Sum>
struct Block {
    const ConvArgs& c;
    const f16 *x, *cache, *w;
    u32 a_tiles, b_tiles, a_to;
    int tiles, blocks, chunks;          // chunks: of 64 channels per temporal tap
    // Position of the copies of pixels: tile, temporal tap, slab, stage, first pixel of this thread (others are LINES
    // rows below) and its offset in a frame.
    int pixels_tile, dt, slab, a_stage = 0, t, row0;
    i64 offset;
    // Position of the copies of weights: tile, temporal taps and steps that are left, step of 64 channels.
    int weights_tile, taps, left, step = 0, b_stage = 0;
    const f16* from;

    __device__ __forceinline__ Block(const ConvArgs& c, const f16* x, const f16* cache, const f16* w, u32 memory)
        : c(c), w(w + threadIdx.x * 8), a_tiles((memory + 127) & ~127u), b_tiles(a_tiles + A_STAGES * A_BYTES) {
        const int q = threadIdx.x % CHUNKS, slot = threadIdx.x / CHUNKS, at = place(slot % WIDTH);
        this->x = x + q * 8, this->cache = cache + q * 8;
        a_to = a_tiles + slot / WIDTH * LINE + at * ROW + turned(at, q);
        blocks = c.c_out / CHANNELS, chunks = c.c_in / (2 * SLAB);
        tiles = blocks * c.out_frames * ((c.out_h + SIDE - 1) / SIDE) * ((c.out_w + SIDE - 1) / SIDE);
        start_weights(blockIdx.x);
        start_pixels(blockIdx.x);
    }

    // Channels and frames that read the same pixels are consecutive.
    __device__ __forceinline__ Tile tile_of(int i) const {
        const int columns = (c.out_w + SIDE - 1) / SIDE, channel = i % blocks * CHANNELS; i /= blocks;
        const int t = i % c.out_frames; i /= c.out_frames;
        return {t, i / columns * SIDE, i % columns * SIDE, channel};
    }

    __device__ __forceinline__ void start_pixels(int tile) {
        pixels_tile = tile, dt = slab = 0;
        if (tile >= tiles) return;
        const Tile to = tile_of(tile);
        const int slot = threadIdx.x / CHUNKS, column = to.column - c.pad_w + slot % WIDTH;
        const bool inside = slot < LINES * WIDTH && (u32)column < (u32)c.in_w;
        t = to.t, row0 = to.row - c.pad_h + slot / WIDTH;
        offset = (i64)(row0 * c.in_w + column) * c.x_pitch;
        if (!inside) row0 = OUTSIDE;
    }

    __device__ __forceinline__ void start_weights(int tile) {
        weights_tile = tile, taps = c.taps_t, left = chunks * STEPS;
        from = w + (i64)(tile % blocks) * left * (B_BYTES / 2);
    }

    // Queues the copies of the next slab of pixels, if there is one.
    __device__ __forceinline__ void load_pixels() {
        if (pixels_tile >= tiles) return;
        const int frame = t * c.stride_t + dt + c.first;
        const i64 before = (i64)(frame < 0 ? frame + c.cache_frames : frame) * c.in_h * c.in_w;
        const f16* pixel = (frame < 0 ? cache : x) + before * c.x_pitch + offset + slab * SLAB;
        const i64 below = (i64)LINES * c.in_w * c.x_pitch;
        if (threadIdx.x / CHUNKS < LINES * WIDTH) {
            #pragma unroll
            for (int n = 0; n < WIDTH / LINES; n++)
                copy_async(a_to + a_stage * A_BYTES + n * LINES * LINE, pixel + n * below,
                           (u32)(row0 + n * LINES) < (u32)c.in_h);
        }
        if (++a_stage == A_STAGES) a_stage = 0;
        if (++slab == 2 * chunks) slab = 0, dt++;
        if (dt == c.taps_t) start_pixels(pixels_tile + gridDim.x);
    }

    // Queues the copies of the next step, if there is one. A slab may be overwritten once its last row of points is
    // done: the first slab of the next 64 channels any time, the second one with their first step. Both are complete a
    // step before they are needed.
    __device__ __forceinline__ void load() {
        if (weights_tile < tiles) {
            if (step == 0 || step == 5) load_pixels();
            #pragma unroll
            for (int n = 0; n < B_BYTES / 4096; n++)
                copy_async(b_tiles + b_stage * B_BYTES + n * 4096 + threadIdx.x * 16, from + n * 2048, true);
            from += B_BYTES / 2, b_stage ^= 1, step = (step + 1) % STEPS;
            if (--left == 0) {
                left = chunks * STEPS, from += (i64)(blocks - 1) * left * (B_BYTES / 2);
                if (--taps == 0) start_weights(weights_tile + gridDim.x);
            }
        }
        copy_commit();
    }

    // Address of the first pixels of a lane in a stage.
    __device__ __forceinline__ u32 corner(int a_stage) const {
        return a_tiles + a_stage * A_BYTES + (threadIdx.x / 32 % 4 * 4 + threadIdx.x / 8 % 2 * 2) * LINE;
    }
    // Place of column j of the patches and half of the channels of a slab.
    __device__ __forceinline__ u32 column(int j, int half) const {
        const int at = place(j) + threadIdx.x % 8;
        return (at * ROW + turned(at, threadIdx.x / 16 % 2)) ^ half * 32;
    }

    // Reads the weights of product i of a step.
    __device__ __forceinline__ void load_weights(u32 (&weights)[NJ / 2][4], int i, int b_stage) const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, channel = lane / 16 * 8 + lane % 8;
        const u32 b = b_tiles + b_stage * B_BYTES + (warp / 4 * NJ * 8 + channel) * ROW + turned(channel, lane / 8 % 2);
        #pragma unroll
        for (int j = 0; j < NJ / 2; j++)
            load_matrix(weights[j], (b ^ i / 4 * 32) + (i % 4 * CHANNELS + j * 16) * ROW);
    }

    // sums = or += pixels x weights of one row of points and one slab, in eight products: four points of either half
    // of the slab. Fragments of pixels are read half a step ahead, those of weights one product ahead: r[0] and
    // weights[0] hold those of the first product when a step begins, and those of the next step when it ends. The
    // copies of the next step are complete before its weights are read, and all warps have read the last weights of
    // this one by then.
    template <bool FIRST>
    __device__ __forceinline__ void multiply_and_load(Sum (&sums)[4][NJ], u32 (&r)[2][4][4],
                                                      u32 (&weights)[2][NJ / 2][4], const Rows& here, const Rows& next,
                                                      int b_stage) {
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            const int half = i / 4, point = i % 4;
            load_weights(weights[(i + 1) % 2], (i + 1) % 8, i < 7 ? b_stage : b_stage ^ 1);
            if (i == 6) {
                copy_wait<0>();
                __syncthreads();
            }
            if (half == 0) here.load(r[1][point], column(point, 1));
            else next.load(r[0][point], column(point, 0));
            u32 p[4];
            #pragma unroll
            for (int k = 0; k < 4; k++)
                p[k] = point == 0   ? minus(r[half][0][k], r[half][2][k])
                       : point == 1 ? plus(r[half][1][k], r[half][2][k])
                       : point == 2 ? minus(r[half][2][k], r[half][1][k])
                                    : minus(r[half][3][k], r[half][1][k]);
            if (FIRST && half == 0) mma_row<f16, true>(sums[point], p, weights[i % 2]);
            else mma_row<f16>(sums[point], p, weights[i % 2]);
            if (i == 0) load();
        }
    }

    // outputs[row * 2 + column] += transformed sums of a row of points.
    __device__ __forceinline__ void promote(float (&outputs)[4][NJ][4], const Sum (&sums)[4][NJ], int row) {
        const float upper = row < 3 ? 1.f : 0.f, lower = row == 0 ? 0.f : row == 2 ? -1.f : 1.f;
        #pragma unroll
        for (int j = 0; j < NJ; j++) {
            float left[4], right[4];
            transform(left, right, sums[0][j], sums[1][j], sums[2][j], sums[3][j]);
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                outputs[0][j][i] += upper * left[i], outputs[1][j][i] += upper * right[i];
                outputs[2][j][i] += lower * left[i], outputs[3][j][i] += lower * right[i];
            }
        }
    }

    // Adds bias and residual and writes the pixels inside the plane, one row of patches at a time.
    __device__ __forceinline__ void finish(const float (&outputs)[4][NJ][4], const Tile& tile, f16* y,
                                           const float* bias, const f16* residual) const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int first = tile.channel + warp / 4 * NJ * 8 + lane % 4 * 8;
        const i64 frame = (i64)(tile.t * c.frame_step + c.frame_start) * c.out_h;
        const float4 low = *(const float4*)(bias + first), high = *(const float4*)(bias + first + 4);
        const float shift[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        #pragma unroll
        for (int patch = 0; patch < 2; patch++) {
            i64 at[4];
            uint4 add[4];
            #pragma unroll
            for (int s = 0; s < 4; s++) {
                const int row = tile.row + warp % 4 * 4 + patch * 2 + s / 2,
                          column = tile.column + lane / 4 * 2 + s % 2;
                const bool inside = row < c.out_h && column < c.out_w;
                at[s] = inside ? ((frame + row) * c.out_w + column) * c.y_pitch + first : -1;
                add[s] = residual && inside ? *(const uint4*)(residual + at[s]) : uint4{0, 0, 0, 0};
            }
            #pragma unroll
            for (int s = 0; s < 4; s++) {
                if (at[s] < 0) continue;
                const u32 old[4] = {add[s].x, add[s].y, add[s].z, add[s].w};
                u32 out[4];
                #pragma unroll
                for (int j = 0; j < NJ; j++) {
                    const float lo = outputs[s][j][patch * 2] + shift[2 * j] + wide(f16{(u16)old[j]}),
                                hi = outputs[s][j][patch * 2 + 1] + shift[2 * j + 1] + wide(f16{(u16)(old[j] >> 16)});
                    out[j] = pack<f16>(lo, hi);
                }
                *(uint4*)(y + at[s]) = uint4{out[0], out[1], out[2], out[3]};
            }
        }
    }
};

template <class Sum>
__device__ __forceinline__ void conv(f16* y, const f16* x, const f16* cache, const f16* w, const float* bias,
                                     const f16* residual, const ConvArgs& c) {
    extern __shared__ unsigned char memory[];
    Block<Sum> block(c, x, cache, w, shared_address(memory));
    block.load_pixels();
    block.load();
    copy_wait<0>();
    __syncthreads();
    u32 r[2][4][4], weights[2][NJ / 2][4];
    int a_stage = 0;
    #pragma unroll
    for (int j = 0; j < 4; j++) Rows(block.corner(0), 0).load(r[0][j], block.column(j, 0));
    block.load_weights(weights[0], 0, 0);
    for (int i = blockIdx.x; i < block.tiles; i += gridDim.x) {
        float outputs[4][NJ][4] = {};
        Sum sums[4][NJ];
        for (int k = c.taps_t * block.chunks; k > 0; k--) {
            const int second = a_stage + 1 < A_STAGES ? a_stage + 1 : a_stage + 1 - A_STAGES,
                      following = second + 1 < A_STAGES ? second + 1 : second + 1 - A_STAGES;
            const u32 corners[2] = {block.corner(a_stage), block.corner(second)};
            #pragma unroll 1
            for (int row = 0; row < 4; row++) {
                const Rows here[2] = {Rows(corners[0], row), Rows(corners[1], row)};
                block.template multiply_and_load<true>(sums, r, weights, here[0], here[1], 0);
                const Rows next = row < 3 ? Rows(corners[0], row + 1) : Rows(block.corner(following), 0);
                block.template multiply_and_load<false>(sums, r, weights, here[1], next, 1);
                block.promote(outputs, sums, row);
            }
            a_stage = following;
        }
        block.finish(outputs, block.tile_of(i), y, bias, residual);
    }
}

}  // namespace winograd_2d

#define CONV_WINOGRAD_2D(name, Sum) \
    extern "C" __global__ void __launch_bounds__(256, 1) name(f16* y, const f16* x, const f16* cache, const f16* w, \
                                                              const float* bias, const f16* residual, \
                                                              const __grid_constant__ ConvArgs c) { \
        winograd_2d::conv<Sum>(y, x, cache, w, bias, residual, c); \
    }
CONV_WINOGRAD_2D(conv_winograd_2d_f16, WideSum)
CONV_WINOGRAD_2D(conv_winograd_2d_f16_fast, HalfSum)

#endif
