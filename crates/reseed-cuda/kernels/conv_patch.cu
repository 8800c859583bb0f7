// conv_patch: causal convolution on the tensor cores of every GPU since Ampere. A tile's input pixels are copied to
// shared memory once, with their halo, and every spatial tap multiplies the same pixels at another address.
// conv_gather: the same for any taps and strides; every tap copies its own pixels.
//
//   x, cache (frames, H, W, C) E        w  [phase][tap][Co][C] E        y  Out        bias  f32
//   grid     as many blocks as fit, each loops over tiles of 16 x 16 pixels (conv_gather: 256 in a row) by BN channels
//   block    8 warps, each 64 pixels by 64 channels (few: 32 by 16); copies run at least one step ahead, across tiles
//   needs    C a multiple of 32 (f32: 16), Co of 8 (few: at most 16), addresses and pitches of 16 bytes; conv_patch
//            stride 1
//   differs  from the reference by the order of the sums and one rounding; f32 is rounded to tf32 for the product; the
//            kernels whose names end in fast add the products of a step in f16, which rounds after every 16 of them
//
// A step multiplies one column of taps with one slab of channels, 64 bytes of each pixel. The four 16-byte chunks of a
// slab are swizzled by the column of the pixel, so that eight neighbours never share a bank. A tap to the right has
// another address; a tap below has the same address plus a constant.
#include "element.cuh"
#include "params.cuh"

#if __CUDA_ARCH__ >= 800

namespace patch {

constexpr int SIDE = 16, ROW = 64, CHUNKS = ROW / 16;
constexpr int OUTSIDE = -1024;  // a row that stays outside the plane for every tap

struct Tile { int t, row, column, channel, phase; };                   // conv_gather: column is the first pixel

// Offset of chunk q of column x in its row of 64 bytes.
__device__ __forceinline__ int turned(int x, int q) { return (q ^ (x >> 1 & 3)) * 16; }

// The channel in row r of a tile of weights. With this order a thread's sums of four neighbouring products are eight
// consecutive channels, 16 bytes of the output.
template <int BN> __device__ __forceinline__ int channel_of(int r) {
    return BN < 32 ? r : r / 32 * 32 + r % 8 / 2 * 8 + r / 8 % 4 * 2 + r % 2;
}

// Eight packed values; unpacked they would need twice the registers.
template <class E> struct alignas(16) Packed {
    u32 word[4];
    __device__ __forceinline__ float at(int j) const { return wide(E{(u16)(word[j / 2] >> j % 2 * 16)}); }
    __device__ __forceinline__ void set(int j, float lo, float hi) {
        word[j / 2] = narrow<E>(lo).bits | (u32)narrow<E>(hi).bits << 16;
    }
};
template <> struct alignas(16) Packed<float> {
    float word[8];
    __device__ __forceinline__ float at(int j) const { return word[j]; }
    __device__ __forceinline__ void set(int j, float lo, float hi) { word[j] = lo, word[j + 1] = hi; }
};

template <class E, class Out, int K, int BN>
struct Block {
    static constexpr int WIDTH = K == 1 ? SIDE : SIDE + 2, PIXELS = (SIDE + K - 1) * WIDTH;   // an even width
    static constexpr int STAGES = K == 1 ? 4 : K == 2 ? 3 : 2, A_STAGES = K == 1 ? STAGES : 2;
    static constexpr int A_BYTES = PIXELS * ROW, B_BYTES = K * BN * ROW;
    static constexpr int WARPS_N = BN == 128 ? 2 : 1, WARPS_M = 8 / WARPS_N, MI = SIDE / WARPS_M, NJ = BN / WARPS_N / 8;
    static constexpr int PER_CHUNK = 16 / sizeof(E), SLAB = ROW / sizeof(E);
    static constexpr int LINES = K == 1 ? 4 : 3, ROUNDS = (SIDE + K - 1 + LINES - 1) / LINES; // lines copied at a time

    const ConvArgs& c;
    const E *x, *cache, *w;                                             // w: this thread's chunk of its row of weights
    u32 a_tiles, b_tiles;
    u32 a_to, b_to;                                                    // destination of this thread's chunks in a stage
    int tiles, slabs;
    // Position of the copies: tile, temporal tap (conv_gather: tap), slab, column of taps.
    int next, tap, slab, dx, a_stage = 0, b_stage = 0;
    Tile to;
    // This thread's first input pixel; the others are LINES rows apart. conv_gather: all of them, at tap (0, 0).
    int row0[K == 1 ? 4 : 1], column0[K == 1 ? 4 : 1];

    __device__ __forceinline__ Block(const ConvArgs& c, const E* x, const E* cache, const E* w, u32 memory)
        : c(c), a_tiles((memory + 127) & ~127u), b_tiles(a_tiles + A_STAGES * A_BYTES) {
        const int q = threadIdx.x % CHUNKS, slot = threadIdx.x / CHUNKS;
        this->x = x + q * PER_CHUNK, this->cache = cache + q * PER_CHUNK;
        this->w = w + (i64)(slot / BN * K * c.c_out + channel_of<BN>(slot % BN)) * c.w_pitch + q * PER_CHUNK;
        a_to = a_tiles + slot * ROW + turned(slot % WIDTH, q), b_to = b_tiles + slot * ROW + turned(slot, q);
        const int blocks = (c.c_out + BN - 1) / BN;
        const int planes = K == 1 ? (c.out_h * c.out_w + SIDE * SIDE - 1) / (SIDE * SIDE)
                                  : ((c.out_h + SIDE - 1) / SIDE) * ((c.out_w + SIDE - 1) / SIDE);
        tiles = blocks * c.phases * c.out_frames * planes;
        slabs = c.c_in / SLAB;
        start(blockIdx.x);
    }

    __device__ __forceinline__ int taps() const { return K == 1 ? c.taps_t * c.taps_h * c.taps_w : c.taps_t; }

    // Channels, phases and frames that read the same pixels are consecutive.
    __device__ __forceinline__ Tile tile_of(int i) const {
        const int blocks = (c.c_out + BN - 1) / BN, columns = (c.out_w + SIDE - 1) / SIDE;
        const int channel = i % blocks * BN; i /= blocks;
        const int phase = i % c.phases; i /= c.phases;
        const int t = i % c.out_frames; i /= c.out_frames;
        return K == 1 ? Tile{t, 0, i * SIDE * SIDE, channel, phase}
                      : Tile{t, i / columns * SIDE, i % columns * SIDE, channel, phase};
    }

    __device__ __forceinline__ void start(int tile) {
        next = tile, tap = slab = dx = 0;
        if (tile >= tiles) return;
        to = tile_of(tile);
        const int slot = threadIdx.x / CHUNKS;
        if constexpr (K == 1) {
            #pragma unroll
            for (int n = 0; n < 4; n++) {
                const int pixel = to.column + n * 64 + slot;
                row0[n] = pixel < c.out_h * c.out_w ? pixel / c.out_w * c.stride_h - c.pad_h : OUTSIDE;
                column0[n] = pixel % c.out_w * c.stride_w - c.pad_w;
            }
        } else {
            column0[0] = to.column - c.pad_w + (to.phase & 1) + slot % WIDTH;
            const bool inside = slot < LINES * WIDTH && (u32)column0[0] < (u32)c.in_w;
            row0[0] = inside ? to.row - c.pad_h + (to.phase >> 1) + slot / WIDTH : OUTSIDE;
        }
    }

    // Queues the copies of the next step, if there is one.
    __device__ __forceinline__ void load() {
        if (next < tiles) {
            if (dx == 0) load_pixels();
            load_weights();
            if (++dx == K) dx = 0, slab++;
            if (slab == slabs) slab = 0, tap++;
            if (tap == taps()) start(next + gridDim.x);
        }
        copy_commit();
    }

    __device__ __forceinline__ void load_pixels() {
        const int area = c.taps_h * c.taps_w, dt = K == 1 ? tap / area : tap, frame = to.t * c.stride_t + dt + c.first;
        const int dy = K == 1 ? tap % area / c.taps_w : 0, right = K == 1 ? tap % c.taps_w : 0;
        const i64 before = (i64)(frame < 0 ? frame + c.cache_frames : frame) * c.in_h * c.in_w;
        const E* plane = (frame < 0 ? cache : x) + before * c.x_pitch + slab * SLAB;
        #pragma unroll
        for (int n = 0; n < ROUNDS; n++) {
            const int row = K == 1 ? row0[n % 4] + dy : row0[0] + n * LINES,
                      column = column0[K == 1 ? n % 4 : 0] + right;
            const bool inside = (u32)row < (u32)c.in_h && (K > 1 || (u32)column < (u32)c.in_w);
            // Skip threads without a pixel, and lines below the last.
            if (K > 1 &&
                threadIdx.x / CHUNKS + n * LINES * WIDTH >= (n + 1 < ROUNDS ? (n + 1) * LINES * WIDTH : PIXELS))
                continue;
            copy_async(a_to + a_stage * A_BYTES + n * LINES * WIDTH * ROW,
                       plane + (i64)(row * c.in_w + column) * c.x_pitch, inside);
        }
        if (++a_stage == A_STAGES) a_stage = 0;
    }

    // A column of taps: row r of the tile is channel_of(r % BN) of tap (r / BN, dx).
    __device__ __forceinline__ void load_weights() {
        const int slot = threadIdx.x / CHUNKS, channel = to.channel + channel_of<BN>(slot % BN);
        const i64 row = (i64)((to.phase * taps() + tap) * K * K + dx) * c.c_out + to.channel;
        const E* from = w + row * c.w_pitch + slab * SLAB;
        #pragma unroll
        for (int n = 0; n < (K * BN + 63) / 64; n++) {
            const bool inside = channel + n * 64 % BN < c.c_out;
            if (n * 64 + 64 > K * BN && n * 64 + slot >= K * BN) continue;
            copy_async(b_to + b_stage * B_BYTES + n * 64 * ROW,
                       from + (i64)(n * 64 / BN * K * c.c_out + n * 64 % BN) * c.w_pitch, inside);
        }
        if (++b_stage == STAGES) b_stage = 0;
    }

    // Addresses of a lane's rows of pixels and of weights.
    __device__ __forceinline__ u32 pixels_at(int a_stage, int dx) const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane % 16 + dx;
        return a_tiles + a_stage * A_BYTES + (warp % WARPS_M * MI * WIDTH + column) * ROW + turned(column, lane / 16);
    }
    __device__ __forceinline__ u32 weights_at(int b_stage) const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, channel = lane / 16 * 8 + lane % 8;
        return b_tiles + b_stage * B_BYTES + (warp / WARPS_M * NJ * 8 + channel) * ROW + turned(channel, lane / 8 % 2);
    }

    // sums += pixels x weights of one step. Rows of pixels are read once for all taps of the column. The next copies
    // are issued after the first products, so that the address arithmetic of one warp overlaps with products of
    // another.
    __device__ __forceinline__ void multiply_and_load(WideSum (&sums)[MI][NJ], u32 a, u32 b) {
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 pixels[MI + K - 1][4], weights[2][NJ / 2][4];
            auto load_column = [&](int dy) {
                #pragma unroll
                for (int j = 0; j < NJ / 2; j++)
                    load_operand<E>(weights[dy % 2][j], (b ^ half * 32) + (dy * BN + j * 16) * ROW);
            };
            load_column(0);
            #pragma unroll
            for (int r = 0; r < MI + K - 1; r++) load_operand<E>(pixels[r], (a ^ half * 32) + r * WIDTH * ROW);
            #pragma unroll
            for (int dy = 0; dy < K; dy++) {
                if (dy + 1 < K) load_column(dy + 1);
                #pragma unroll
                for (int r = 0; r < MI; r++) mma_row<E>(sums, r, pixels[r + dy], weights[dy % 2]);
                if (half == 0 && dy == 0) load();
            }
        }
    }

    // The same with products added in f16, half of the rows at a time, before they are added to the sums.
    __device__ __forceinline__ void multiply_fast_and_load(WideSum (&sums)[MI][NJ], u32 a, u32 b) {
        #pragma unroll
        for (int top = 0; top < MI; top += MI / 2) {
            HalfSum parts[MI / 2][NJ] = {};
            #pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 pixels[MI / 2 + K - 1][4], weights[NJ / 2][4];
                #pragma unroll
                for (int r = 0; r < MI / 2 + K - 1; r++)
                    load_operand<E>(pixels[r], (a ^ half * 32) + (top + r) * WIDTH * ROW);
                #pragma unroll
                for (int dy = 0; dy < K; dy++) {
                    #pragma unroll
                    for (int j = 0; j < NJ / 2; j++)
                        load_operand<E>(weights[j], (b ^ half * 32) + (dy * BN + j * 16) * ROW);
                    #pragma unroll
                    for (int r = 0; r < MI / 2; r++) mma_row<E>(parts, r, pixels[r + dy], weights);
                    if (top == 0 && half == 0 && dy == 0) load();
                }
            }
            #pragma unroll
            for (int i = 0; i < MI / 2 * NJ * 4; i++)
                sums[top + i / (NJ * 4)][i / 4 % NJ].v[i % 4] += parts[i / (NJ * 4)][i / 4 % NJ].at(i % 4);
        }
    }

    // Output pixel of this thread's sums r, in the left or right half of row r / 2 of its warp, or -1 outside the
    // plane; and the offset of its bias.
    __device__ __forceinline__ i64 pixel_of(const Tile& tile, int r, int& bias) const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        int row = tile.row + warp % WARPS_M * MI + r / 2, column = tile.column + r % 2 * 8 + lane / 4, h = c.out_h,
            w = c.out_w;
        if constexpr (K == 1) column += row * SIDE, row = 0, w *= h, h = 1;
        bias = 0;
        if (row >= h || column >= w) return -1;
        if (c.phases == 4) {
            row = 2 * row + (tile.phase >> 1), column = 2 * column + (tile.phase & 1), h *= 2, w *= 2;
            bias = (border_class(row, h) * 4 + border_class(column, w)) * c.c_out;
        }
        return ((i64)(tile.t * c.frame_step + c.frame_start) * h + row) * w + column;
    }

    // Adds bias and residual and writes the pixels inside the plane, a part at a time: all loads of the residual of a
    // part are issued before the first is needed.
    __device__ __forceinline__ void finish(const WideSum (&sums)[MI][NJ], const Tile& tile, Out* y, const float* bias,
                                           const Out* residual) const {
        constexpr int PART = 8 / sizeof(Out), GROUPS = NJ / 4;
        const int first = tile.channel + threadIdx.x / 32 / WARPS_M * NJ * 8 + threadIdx.x % 4 * 8;
        #pragma unroll
        for (int r0 = 0; r0 < 2 * MI; r0 += PART) {
            i64 at[PART];
            int shift[PART];
            Packed<Out> add[PART][GROUPS];
            #pragma unroll
            for (int r = 0; r < PART; r++) {
                const i64 pixel = pixel_of(tile, r0 + r, shift[r]);
                at[r] = pixel < 0 ? -1 : pixel * c.y_pitch + first;
                #pragma unroll
                for (int g = 0; g < GROUPS; g++)
                    if (residual && pixel >= 0 && first + g * 32 < c.c_out)
                        add[r][g] = *(const Packed<Out>*)(residual + at[r] + g * 32);
            }
            #pragma unroll
            for (int i = 0; i < PART * GROUPS; i++) {
                const int r = i / GROUPS, g = i % GROUPS, row = (r0 + r) / 2, half = (r0 + r) % 2 * 2;
                if (at[r] < 0 || first + g * 32 >= c.c_out) continue;
                const Packed<float> v = *(const Packed<float>*)(bias + shift[r] + first + g * 32);
                Packed<Out> out;
                #pragma unroll
                for (int j = 0; j < 8; j += 2) {
                    float lo = sums[row][g * 4 + j / 2].v[half] + v.at(j),
                          hi = sums[row][g * 4 + j / 2].v[half + 1] + v.at(j + 1);
                    if (residual) lo += add[r][g].at(j), hi += add[r][g].at(j + 1);
                    out.set(j, lo, hi);
                }
                *(Packed<Out>*)(y + at[r] + g * 32) = out;
            }
        }
    }

    // The same for channel counts that are no multiple of eight.
    __device__ __forceinline__ void finish_few(const WideSum (&sums)[MI][NJ], const Tile& tile, Out* y,
                                               const float* bias, const Out* residual) const {
        #pragma unroll
        for (int r = 0; r < 2 * MI; r++) {
            int shift;
            const i64 pixel = pixel_of(tile, r, shift);
            #pragma unroll
            for (int j = 0; j < 2 * NJ; j++) {
                const int channel = tile.channel + j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2;
                if (pixel < 0 || channel >= c.c_out) continue;
                const i64 at = pixel * c.y_pitch + channel;
                const float sum = sums[r / 2][j / 2].v[r % 2 * 2 + j % 2] + bias[shift + channel];
                y[at] = narrow<Out>(residual ? sum + wide(residual[at]) : sum);
            }
        }
    }
};

template <class E, class Out, int K, int BN, bool FAST>
__device__ __forceinline__ void conv(Out* y, const E* x, const E* cache, const E* w, const float* bias,
                                     const Out* residual, const ConvArgs& c) {
    using B = Block<E, Out, K, BN>;
    extern __shared__ unsigned char memory[];
    B block(c, x, cache, w, shared_address(memory));
    for (int s = 0; s < B::STAGES - 1; s++) block.load();
    int a_stage = 0, b_stage = 0;
    for (int i = blockIdx.x; i < block.tiles; i += gridDim.x) {
        WideSum sums[B::MI][B::NJ] = {};
        for (int k = block.taps() * block.slabs; k > 0; k--) {
            #pragma unroll 1
            for (int dx = 0; dx < K; dx++) {
                copy_wait<B::STAGES - 2>();
                __syncthreads();
                const u32 a = block.pixels_at(a_stage, dx), b = block.weights_at(b_stage);
                if constexpr (FAST) block.multiply_fast_and_load(sums, a, b);
                else block.multiply_and_load(sums, a, b);
                if (++b_stage == B::STAGES) b_stage = 0;
            }
            if (++a_stage == B::A_STAGES) a_stage = 0;
        }
        if constexpr (BN < 32) block.finish_few(sums, block.tile_of(i), y, bias, residual);
        else block.finish(sums, block.tile_of(i), y, bias, residual);
    }
}

}  // namespace patch

#define CONV_PATCH(name, E, Out, K, BN, FAST) \
    extern "C" __global__ void __launch_bounds__(256, 1) name(Out* y, const E* x, const E* cache, const E* w, \
                                                              const float* bias, const Out* residual, \
                                                              const __grid_constant__ ConvArgs c) { \
        patch::conv<E, Out, K, BN, FAST>(y, x, cache, w, bias, residual, c); \
    }
#define CONV_PATCHES(E, suffix) \
    CONV_PATCH(conv_patch_3x3_##suffix, E, E, 3, 128, false) \
    CONV_PATCH(conv_patch_3x3_few_##suffix, E, E, 3, 16, false) \
    CONV_PATCH(conv_patch_2x2_##suffix, E, E, 2, 128, false) \
    CONV_PATCH(conv_gather_##suffix, E, E, 1, 128, false)
CONV_PATCHES(f16, f16)
SINCE_AMPERE(CONV_PATCHES(bf16, bf16))
CONV_PATCHES(float, tf32)
CONV_PATCH(conv_gather_f16_f32, f16, float, 1, 128, false)
SINCE_AMPERE(CONV_PATCH(conv_gather_bf16_f32, bf16, float, 1, 128, false))
CONV_PATCH(conv_gather_f16_fast, f16, f16, 1, 128, true)

#endif
