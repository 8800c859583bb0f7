// conv_winograd_2d: causal convolution on the tensor cores of every GPU since Ampere by Winograd. With 3 x 3 taps
// F(2x2,3x3), 16 products per 2 x 2 pixels where the direct algorithm has 36; with the 2 x 2 taps of an upsampler's
// phases F(2x2,2x2), 9 products where it has 16
//
//   x, cache (frames, H, W, C) f16
//   w        [phase][temporal tap][Co / 64][C / 64][row of points][half of 64][column of points][64][32] f16, as
//            src/ops/conv_winograd_2d.rs packs them: rows in the order of `channel_of`, chunks swizzled
//   y        f16       bias  (Co) f32, or the table of params.cuh       residual  has the layout of y, or is null
//   grid     a block per multiprocessor, each loops over tiles of 16 x 16 pixels of a phase by 64 channels
//   block    8 warps, each 16 patches of 2 x 2 pixels by 32 channels; copies run one step ahead, across tiles
//   needs    C and Co multiples of 64, stride 1, addresses and pitches of 16 bytes
//   differs  from the reference by the order of the sums and by roundings: of the result, of transformed inputs (sums
//            of two, twice), of transformed weights. The kernels whose names end in fast also round sums of 64 products
//            to f16, after every 16 of them and in the transform of the sums.
//
// Along either axis inputs d0 to d3 and taps g0 to g2 give two outputs. With t = (d0 - d2, d1 + d2, d2 - d1, d3 - d1),
// u = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2) and m = t * u point by point, the outputs are m0 + m1 + m2 and
// m1 - m2 + m3. With two taps t = (d0 - d1, d1, d2 - d1) and u = (g0, g0 + g1, g1) give m0 + m1 and m1 + m2. A pass
// multiplies one row of points with 64 channels and adds the transformed sums to the outputs, so that registers hold
// the sums of one row of points instead of all.
//
// A tile's pixels and their border are copied once per 32 channels, 64 bytes each, even columns of a row before odd
// ones: eight patches read eight consecutive rows of shared memory. The four 16-byte chunks are swizzled by the place
// in the row, so that these never share a bank.
#include "element.cuh"
#include "params.cuh"

#if __CUDA_ARCH__ >= 800

namespace winograd_2d {

constexpr int SIDE = 16, WIDTH = SIDE + 2, ROW = 64, CHUNKS = ROW / 16, SLAB = 32, CHANNELS = 64;
constexpr int LINE = WIDTH * ROW, A_BYTES = WIDTH * LINE, A_STAGES = 3, B_STAGES = 2;
constexpr int LINES = 3;                // rows of pixels copied at a time
constexpr int NJ = 4;                   // products of eight channels per warp
constexpr int OUTSIDE = -1024;          // a row that stays outside the plane

struct Tile { int t, row, column, channel, phase; };

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

__device__ __forceinline__ u32 add(u32 a, u32 b) { return plus(a, b); }
__device__ __forceinline__ float add(float a, float b) { return a + b; }
__device__ __forceinline__ u32 subtract(u32 a, u32 b) { return minus(a, b); }
__device__ __forceinline__ float subtract(float a, float b) { return a - b; }

// Transforms the sums m of the points along one axis to those of the left and the right output.
template <class T> __device__ __forceinline__ void outputs_of(T& left, T& right, const T (&m)[4]) {
    left = add(m[0], add(m[1], m[2])), right = add(subtract(m[1], m[2]), m[3]);
}
template <class T> __device__ __forceinline__ void outputs_of(T& left, T& right, const T (&m)[3]) {
    left = add(m[0], m[1]), right = add(m[1], m[2]);
}

// Transforms the sums of product j of a row of points.
template <class Sum, int POINTS>
__device__ __forceinline__ void transform(float (&left)[4], float (&right)[4], const Sum (&sums)[POINTS][NJ], int j) {
    Sum l, r;
    #pragma unroll
    for (int i = 0; i < sizeof(Sum) / 4; i++) {
        decltype(l.v[0] + l.v[0]) m[POINTS];
        #pragma unroll
        for (int point = 0; point < POINTS; point++) m[point] = sums[point][j].v[i];
        outputs_of(l.v[i], r.v[i], m);
    }
    #pragma unroll
    for (int i = 0; i < 4; i++) left[i] = l.at(i), right[i] = r.at(i);
}

// Points along one axis for K taps, and how inputs and outputs depend on them.
template <int K> struct Axis;
template <> struct Axis<3> {
    // Inputs of a point: `first` + `second` * sign.
    __device__ static __forceinline__ int first(int point) { return point; }
    __device__ static __forceinline__ int second(int point) { return point < 2 ? 2 : 1; }
    __device__ static __forceinline__ bool pair(int) { return true; }
    __device__ static __forceinline__ bool positive(int point) { return point == 1; }
    // Factors of a point in both outputs.
    __device__ static __forceinline__ float upper(int point) { return point < 3 ? 1.f : 0.f; }
    __device__ static __forceinline__ float lower(int point) { return point == 0 ? 0.f : point == 2 ? -1.f : 1.f; }
};
template <> struct Axis<2> {
    __device__ static __forceinline__ int first(int point) { return point; }
    __device__ static __forceinline__ int second(int) { return 1; }
    __device__ static __forceinline__ bool pair(int point) { return point != 1; }
    __device__ static __forceinline__ bool positive(int) { return false; }
    __device__ static __forceinline__ float upper(int point) { return point < 2 ? 1.f : 0.f; }
    __device__ static __forceinline__ float lower(int point) { return point > 0 ? 1.f : 0.f; }
};

// The pixels of a row of points: one or two rows of a slab, and the sign of the second as a pair of f16.
template <int K>
struct Rows {
    u32 first, second, sign;
    bool pair;
    __device__ __forceinline__ Rows(u32 corner, int row)
        : first(corner + Axis<K>::first(row) * LINE), second(corner + Axis<K>::second(row) * LINE),
          sign(Axis<K>::positive(row) ? 0x3C003C00u : 0xBC00BC00u), pair(Axis<K>::pair(row)) {}
    // Column j of 16 patches and half of the channels of the slab; `column` is its place.
    __device__ __forceinline__ void load(u32 (&r)[4], u32 column) const {
        load_matrix(r, first + column);
        if (!pair) return;
        u32 s[4];
        load_matrix(s, second + column);
        #pragma unroll
        for (int i = 0; i < 4; i++) r[i] = signed_plus(r[i], s[i], sign);
    }
};

template <class Sum, int K>
struct Block {
    static constexpr int POINTS = K + 1, B_BYTES = POINTS * CHANNELS * ROW;
    static constexpr int STEPS = 2 * POINTS;    // of 64 channels: rows of points by two slabs
    static constexpr int PRODUCTS = 2 * POINTS; // of a step: points of either half of a slab
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
        tiles = blocks * c.phases * c.out_frames * ((c.out_h + SIDE - 1) / SIDE) * ((c.out_w + SIDE - 1) / SIDE);
        start_weights(blockIdx.x);
        start_pixels(blockIdx.x);
    }

    // Channels, phases and frames that read the same pixels are consecutive.
    __device__ __forceinline__ Tile tile_of(int i) const {
        const int columns = (c.out_w + SIDE - 1) / SIDE, channel = i % blocks * CHANNELS; i /= blocks;
        const int phase = K == 2 ? i % c.phases : 0; i /= K == 2 ? c.phases : 1;
        const int t = i % c.out_frames; i /= c.out_frames;
        return {t, i / columns * SIDE, i % columns * SIDE, channel, phase};
    }

    __device__ __forceinline__ void start_pixels(int tile) {
        pixels_tile = tile, dt = slab = 0;
        if (tile >= tiles) return;
        const Tile to = tile_of(tile);
        const int slot = threadIdx.x / CHUNKS, column = to.column - c.pad_w + (to.phase & 1) + slot % WIDTH;
        const bool inside = slot < LINES * WIDTH && (u32)column < (u32)c.in_w;
        t = to.t, row0 = to.row - c.pad_h + (to.phase >> 1) + slot / WIDTH;
        offset = (i64)(row0 * c.in_w + column) * c.x_pitch;
        if (!inside) row0 = OUTSIDE;
    }

    __device__ __forceinline__ void start_weights(int tile) {
        weights_tile = tile, taps = c.taps_t, left = chunks * STEPS;
        const int phase = K == 2 ? tile / blocks % c.phases : 0;
        from = w + (i64)(phase * taps * blocks + tile % blocks) * left * (B_BYTES / 2);
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
            if (step == 0 || step == STEPS - 3) load_pixels();
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
            load_matrix(weights[j], (b ^ i / POINTS * 32) + (i % POINTS * CHANNELS + j * 16) * ROW);
    }

    // sums = or += pixels x weights of one row of points and one slab: products of all points of either half of the
    // slab. Fragments of pixels are read half a step ahead, those of weights one product ahead: r[0] and
    // weights[0] hold those of the first product when a step begins, and those of the next step when it ends. The
    // copies of the next step are complete before its weights are read, and all warps have read the last weights of
    // this one by then.
    template <bool FIRST>
    __device__ __forceinline__ void multiply_and_load(Sum (&sums)[POINTS][NJ], u32 (&r)[2][POINTS][4],
                                                      u32 (&weights)[2][NJ / 2][4], const Rows<K>& here,
                                                      const Rows<K>& next, int b_stage) {
        #pragma unroll
        for (int i = 0; i < PRODUCTS; i++) {
            const int half = i / POINTS, point = i % POINTS, last = PRODUCTS - 1;
            load_weights(weights[(i + 1) % 2], (i + 1) % PRODUCTS, i < last ? b_stage : b_stage ^ 1);
            if (i == last - 1) {
                copy_wait<0>();
                __syncthreads();
            }
            if (half == 0) here.load(r[1][point], column(point, 1));
            else next.load(r[0][point], column(point, 0));
            const int first = Axis<K>::first(point), second = Axis<K>::second(point);
            u32 p[4];
            #pragma unroll
            for (int k = 0; k < 4; k++)
                p[k] = !Axis<K>::pair(point)       ? r[half][first][k]
                       : Axis<K>::positive(point) ? plus(r[half][first][k], r[half][second][k])
                                                  : minus(r[half][first][k], r[half][second][k]);
            if (FIRST && half == 0) mma_row<f16, true>(sums, point, p, weights[i % 2]);
            else mma_row<f16>(sums, point, p, weights[i % 2]);
            if (i == 0) load();
        }
    }

    // outputs[row * 2 + column] += transformed sums of a row of points.
    __device__ __forceinline__ void promote(float (&outputs)[4][NJ][4], const Sum (&sums)[POINTS][NJ], int row) {
        const float upper = Axis<K>::upper(row), lower = Axis<K>::lower(row);
        #pragma unroll
        for (int j = 0; j < NJ; j++) {
            float left[4], right[4];
            transform(left, right, sums, j);
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                outputs[0][j][i] += upper * left[i], outputs[1][j][i] += upper * right[i];
                outputs[2][j][i] += lower * left[i], outputs[3][j][i] += lower * right[i];
            }
        }
    }

    // Offset of the pixel (i, j) of a phase in y without channels, or -1 outside the plane; and that of its bias.
    __device__ __forceinline__ i64 pixel_of(const Tile& tile, int i, int j, int& shift) const {
        int h = c.out_h, w = c.out_w;
        shift = 0;
        if (i >= h || j >= w) return -1;
        if (K == 2 && c.phases == 4) {
            i = 2 * i + (tile.phase >> 1), j = 2 * j + (tile.phase & 1), h *= 2, w *= 2;
            shift = (border_class(i, h) * 4 + border_class(j, w)) * c.c_out;
        }
        return (((i64)(tile.t * c.frame_step + c.frame_start) * h + i) * w + j) * c.y_pitch;
    }

    // Adds bias and residual and writes the pixels inside the plane, one row of patches at a time.
    __device__ __forceinline__ void finish(const float (&outputs)[4][NJ][4], const Tile& tile, f16* y,
                                           const float* bias, const f16* residual) const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int first = tile.channel + warp / 4 * NJ * 8 + lane % 4 * 8;
        #pragma unroll
        for (int patch = 0; patch < 2; patch++) {
            i64 at[4];
            int shift[4];
            uint4 add[4];
            #pragma unroll
            for (int s = 0; s < 4; s++) {
                at[s] = pixel_of(tile, tile.row + warp % 4 * 4 + patch * 2 + s / 2, tile.column + lane / 4 * 2 + s % 2,
                                 shift[s]);
                add[s] = residual && at[s] >= 0 ? *(const uint4*)(residual + at[s] + first) : uint4{0, 0, 0, 0};
            }
            #pragma unroll
            for (int s = 0; s < 4; s++) {
                if (at[s] < 0) continue;
                const float* from = bias + shift[s] + first;
                const float4 low = __ldg((const float4*)from), high = __ldg((const float4*)from + 1);
                const float bias_of[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
                const u32 old[4] = {add[s].x, add[s].y, add[s].z, add[s].w};
                u32 out[4];
                #pragma unroll
                for (int j = 0; j < NJ; j++) {
                    const float lo = outputs[s][j][patch * 2] + bias_of[2 * j] + wide(f16{(u16)old[j]}),
                                hi = outputs[s][j][patch * 2 + 1] + bias_of[2 * j + 1] +
                                     wide(f16{(u16)(old[j] >> 16)});
                    out[j] = pack<f16>(lo, hi);
                }
                *(uint4*)(y + at[s] + first) = uint4{out[0], out[1], out[2], out[3]};
            }
        }
    }
};

template <class Sum, int K>
__device__ __forceinline__ void conv(f16* y, const f16* x, const f16* cache, const f16* w, const float* bias,
                                     const f16* residual, const ConvArgs& c) {
    extern __shared__ unsigned char memory[];
    using B = Block<Sum, K>;
    using R = Rows<K>;
    B block(c, x, cache, w, shared_address(memory));
    block.load_pixels();
    block.load();
    copy_wait<0>();
    __syncthreads();
    u32 r[2][B::POINTS][4], weights[2][NJ / 2][4];
    int a_stage = 0;
    #pragma unroll
    for (int j = 0; j < B::POINTS; j++) R(block.corner(0), 0).load(r[0][j], block.column(j, 0));
    block.load_weights(weights[0], 0, 0);
    for (int i = blockIdx.x; i < block.tiles; i += gridDim.x) {
        float outputs[4][NJ][4] = {};
        Sum sums[B::POINTS][NJ];
        for (int k = c.taps_t * block.chunks; k > 0; k--) {
            const int second = a_stage + 1 < A_STAGES ? a_stage + 1 : a_stage + 1 - A_STAGES,
                      following = second + 1 < A_STAGES ? second + 1 : second + 1 - A_STAGES;
            const u32 corners[2] = {block.corner(a_stage), block.corner(second)};
            #pragma unroll 1
            for (int row = 0; row < B::POINTS; row++) {
                const R here[2] = {R(corners[0], row), R(corners[1], row)};
                block.template multiply_and_load<true>(sums, r, weights, here[0], here[1], 0);
                const R next = row + 1 < B::POINTS ? R(corners[0], row + 1) : R(block.corner(following), 0);
                block.template multiply_and_load<false>(sums, r, weights, here[1], next, 1);
                block.promote(outputs, sums, row);
            }
            a_stage = following;
        }
        block.finish(outputs, block.tile_of(i), y, bias, residual);
    }
}

}  // namespace winograd_2d

#define CONV_WINOGRAD_2D(name, Sum, K) \
    extern "C" __global__ void __launch_bounds__(256, 1) name(f16* y, const f16* x, const f16* cache, const f16* w, \
                                                              const float* bias, const f16* residual, \
                                                              const __grid_constant__ ConvArgs c) { \
        winograd_2d::conv<Sum, K>(y, x, cache, w, bias, residual, c); \
    }
CONV_WINOGRAD_2D(conv_winograd_2d_3x3_f16, WideSum, 3)
CONV_WINOGRAD_2D(conv_winograd_2d_3x3_f16_fast, HalfSum, 3)
CONV_WINOGRAD_2D(conv_winograd_2d_2x2_f16, WideSum, 2)
CONV_WINOGRAD_2D(conv_winograd_2d_2x2_f16_fast, HalfSum, 2)

#endif
